package openstack

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/guest/linux"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/inventory"
	lab "github.com/decamp/decamp/internal/lab/openstack"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/platform"
)

// webVM returns a VM with two disks and a network card.
func webVM() *inventory.VM {
	return &inventory.VM{
		Ref: "vm-7", Name: "web 01", UUID: "564d1234-0000-1111-2222-333344445555",
		InstanceUUID: "52aa0000-1111-2222-3333-444455556666", HostName: "esx1", GuestID: "debian12_64Guest",
		CPUs: 2, CoresPerSocket: 1, MemoryMiB: 256, Firmware: inventory.BIOS, Annotation: "bill to: R&D",
		Controllers: []inventory.Controller{{Key: 1000, Bus: inventory.PVSCSI}},
		Disks: []inventory.Disk{
			{Key: 2000, Controller: 1000, Capacity: 2 << 20}, {Key: 2001, Controller: 1000, Unit: 1, Capacity: 1 << 20},
		},
		NICs: []inventory.NIC{{Key: 4000, Model: "vmxnet3", MAC: "00:50:56:ab:cd:01", Network: "VM Network", StartConnected: true}},
	}
}

func changedVM(vm *inventory.VM, change func(*inventory.VM)) *inventory.VM {
	change(vm)
	return vm
}

// newTestDelivery returns a delivery of vm. Each word of its images contains its own offset, except in holes.
func newTestDelivery(t *testing.T, vm *inventory.VM) platform.Delivery {
	t.Helper()
	d := platform.Delivery{Definition: targets.Definition{VM: vm, Decamp: "v0.0.0-test"}}
	for _, each := range vm.Disks {
		path := filepath.Join(t.TempDir(), "disk.raw")
		writeFile(t, path, diskContent(t, each))
		d.Images = append(d.Images, targets.Image{Key: each.Key, Path: path, Format: targets.Raw, Size: each.Capacity, Root: "aa55"})
	}
	d.Open = func(ctx context.Context, img targets.Image) (disk.Source, error) {
		return image.File{Path: img.Path, Format: img.Format, Size: img.Size}.Read(ctx)
	}
	return d
}

func diskContent(t *testing.T, d inventory.Disk) []byte {
	t.Helper()
	data := make([]byte, d.Capacity)
	if err := disk.NewPattern(d.Capacity).ReadAt(t.Context(), data, 0); err != nil {
		t.Fatal(err)
	}
	data[0] = byte(d.Key) // no two disks are equal
	return data
}

func mustDeliver(t *testing.T, p *Platform, d platform.Delivery) platform.Receipt {
	t.Helper()
	r, err := p.Deliver(t.Context(), d)
	if err != nil {
		t.Fatalf("Deliver: %v (%s)", err, fault.HintOf(err))
	}
	return r
}

// checkDelivered checks that the volumes of d have the data of its disks, and that no temporary objects are left.
func checkDelivered(t *testing.T, cloud *lab.Cloud, d platform.Delivery) {
	t.Helper()
	volumes := cloud.Volumes()
	if len(volumes) != len(d.VM.Disks) || len(cloud.Images()) > 0 || len(cloud.Ports()) != len(d.VM.NICs) {
		t.Errorf("got %d volumes, %d images and %d ports", len(volumes), len(cloud.Images()), len(cloud.Ports()))
	}
	for _, each := range d.VM.Disks {
		at := slices.IndexFunc(volumes, func(v lab.Volume) bool { return v.Metadata[diskKey] == fmt.Sprint(each.Key) })
		if at < 0 || !bytes.Equal(volumes[at].Data, diskContent(t, each)) {
			t.Errorf("disk %d is missing or has other data", each.Key)
		}
	}
}

// checkEmpty checks that the cloud has no objects.
func checkEmpty(t *testing.T, cloud *lab.Cloud) {
	t.Helper()
	if left := listObjects(cloud); len(left) > 0 {
		t.Errorf("remaining objects: %q", left)
	}
}

func checkError(t *testing.T, err error, kind fault.Kind, message string) {
	t.Helper()
	if !fault.Is(err, kind) || fault.HintOf(err) == "" || !strings.Contains(err.Error()+fault.HintOf(err), message) {
		t.Errorf("got %v (%v, hint %q), want %v with %q", err, fault.KindOf(err), fault.HintOf(err), kind, message)
	}
}

func TestDeliversInBothFormats(t *testing.T) {
	for _, format := range []string{"raw", "qcow2"} {
		cloud := startCloud(t, lab.Config{})
		d := newTestDelivery(t, webVM())
		r := mustDeliver(t, newPlatform(t, cloud, "lab?format="+format+"&volumeType=fast&availabilityZone=nova"), d)
		checkDelivered(t, cloud, d)
		boot := cloud.Volumes()[0]
		if r.ID != boot.ID || r.Name != "web 01" || !boot.Bootable || boot.Type != "fast" || boot.Zone != "nova" || boot.Size != 1 {
			t.Errorf("got receipt %+v for volume %+v", r, boot)
		}
		for key, want := range map[string]string{refKey: "vm-7", instanceKey: webVM().InstanceUUID, uuidKey: webVM().UUID, nameKey: "web 01", flavorKey: "v2"} {
			if boot.Metadata[key] != want {
				t.Errorf("%s is %q, want %q", key, boot.Metadata[key], want)
			}
		}
	}
}

// The command in the warning creates a server with all volumes and ports.
func TestServerCommand(t *testing.T) {
	cloud := startCloud(t, lab.Config{})
	r := mustDeliver(t, newPlatform(t, cloud, "lab"), newTestDelivery(t, webVM()))
	at := slices.IndexFunc(r.Warnings, func(w inventory.Warning) bool { return w.Code == "no-server" })
	if at < 0 {
		t.Fatalf("no warning about the server: %+v", r.Warnings)
	}
	v := cloud.Volumes()
	want := "openstack --os-cloud lab server create --flavor v2 --volume " + v[0].ID +
		" --block-device source_type=volume,destination_type=volume,boot_index=-1,disk_bus=sata,uuid=" + v[1].ID +
		" --port " + cloud.Ports()[0].ID + " -- 'web 01'"
	if got := r.Warnings[at].Remedy; got != want {
		t.Errorf("got command\n%s\nwant\n%s", got, want)
	}
}

func TestDeliverSurvivesTemporaryFailures(t *testing.T) {
	for name, v := range map[string]struct {
		config   lab.Config
		injected lab.Fault
		wait     time.Duration // waiting time that the service requests
	}{
		"token ends in an upload": {config: lab.Config{EndUploads: 2}},
		"tokens end often":        {config: lab.Config{TokenCalls: 4}},
		"upload is cut":           {config: lab.Config{CutUploads: 2}},
		"a byte is damaged":       {config: lab.Config{Damage: 1}},
		"a volume fails":          {config: lab.Config{BadVolumes: 1}},
		"too many requests":       {injected: lab.Fault{Method: "POST", Path: "volumes", Status: 429, RetryAfter: "13", Times: 2}, wait: 13 * time.Second},
		"old rate limit":          {injected: lab.Fault{Method: "POST", Path: "ports", Status: 413, RetryAfter: "17", Times: 2}, wait: 17 * time.Second},
		"a service restarts":      {injected: lab.Fault{Method: "GET", Path: "images", Status: 503, Times: 3}},
		"lists are late":          {config: lab.Config{Late: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := startCloud(t, v.config)
			cloud.InjectFault(v.injected)
			d := newTestDelivery(t, webVM())
			p := newPlatform(t, cloud, "lab")
			waited := map[time.Duration]int{}
			p.cloud.wait = func(ctx context.Context, d time.Duration) error {
				waited[d]++
				return noWait(ctx, d)
			}
			mustDeliver(t, p, d)
			checkDelivered(t, cloud, d)
			if v.wait > 0 && waited[v.wait] != v.injected.Times {
				t.Errorf("waited %v, want %v %d times", waited, v.wait, v.injected.Times)
			}
		})
	}
}

func TestFailedDeliverLeavesNoObjects(t *testing.T) {
	for name, v := range map[string]struct {
		config   lab.Config
		injected lab.Fault
		kind     fault.Kind
		message  string
	}{
		"Cinder's quota":   {config: lab.Config{Gigabytes: 1}, kind: fault.Full, message: "gigabytes quota"},
		"Neutron's quota":  {injected: lab.Fault{Method: "POST", Path: "ports", Status: 409, Body: `{"NeutronError": {"type": "OverQuota", "message": "Quota exceeded for resources: ['port']."}}`, Times: 1}, kind: fault.Full, message: "quota show"},
		"Glance's quota":   {injected: lab.Fault{Method: "PUT", Path: "/file", Status: 413, Body: "<html>Request Entity Too Large</html>", Times: 1}, kind: fault.Full, message: "Too Large"},
		"no right to MACs": {config: lab.Config{Owned: true}, kind: fault.Denied, message: "mac=new"},
		"no right":         {injected: lab.Fault{Method: "POST", Path: "images", Status: 403, Times: 9}, kind: fault.Denied, message: "member"},
		"volumes fail":     {config: lab.Config{BadVolumes: 9}, kind: fault.Transient, message: "volume message list"},
		"damaged transfer": {config: lab.Config{Damage: 9}, kind: fault.Corrupt, message: "differs from the sent data"},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := startCloud(t, v.config)
			cloud.InjectFault(v.injected)
			_, err := newPlatform(t, cloud, "lab").Deliver(t.Context(), newTestDelivery(t, webVM()))
			checkError(t, err, v.kind, v.message)
			checkEmpty(t, cloud)
		})
	}
}

func TestWithdrawKeepsRunningServer(t *testing.T) {
	cloud := startCloud(t, lab.Config{})
	p := newPlatform(t, cloud, "lab")
	d := newTestDelivery(t, webVM())
	mustDeliver(t, p, d)
	mustStart(t, p, d)
	id := cloud.Servers()[0].ID
	before := listObjects(cloud)
	checkError(t, p.Withdraw(t.Context(), d.VM), fault.Conflict, "server stop "+id)
	if now := listObjects(cloud); !slices.Equal(now, before) {
		t.Errorf("Withdraw with a running server changes the objects to %q", now)
	}
	cloud.SetStatus(id, "SHUTOFF")
	if err := p.Withdraw(t.Context(), d.VM); err != nil {
		t.Fatal(err)
	}
	checkEmpty(t, cloud)
}

// Withdraw refuses if the volumes are attached to a server that decamp did not create.
func TestWithdrawKeepsVolumesInUse(t *testing.T) {
	cloud := startCloud(t, lab.Config{})
	p := newPlatform(t, cloud, "lab")
	d := newTestDelivery(t, webVM())
	mustDeliver(t, p, d)
	id := cloud.Volumes()[1].ID
	cloud.Attach(id, "theirs")
	before := listObjects(cloud)
	checkError(t, p.Withdraw(t.Context(), d.VM), fault.Conflict, "server delete theirs")
	if now := listObjects(cloud); !slices.Equal(now, before) {
		t.Errorf("Withdraw with a volume in use changes the objects to %q", now)
	}
	cloud.Attach(id, "")
	if err := p.Withdraw(t.Context(), d.VM); err != nil {
		t.Fatal(err)
	}
	checkEmpty(t, cloud)
}

func TestDeliverRefusesAnEarlierCopy(t *testing.T) {
	cloud := startCloud(t, lab.Config{})
	p := newPlatform(t, cloud, "lab")
	d := newTestDelivery(t, webVM())
	mustDeliver(t, p, d)
	before := listObjects(cloud)
	d.Images[0].Root = "bb66"
	_, err := p.Deliver(t.Context(), d)
	checkError(t, err, fault.Conflict, "earlier copy")
	if now := listObjects(cloud); !slices.Equal(now, before) {
		t.Errorf("Deliver changes the objects to %q", now)
	}
}

// Nova rejects a topology that does not match the flavor's number of CPUs. Each difference is a warning.
func TestTopologyFitsTheFlavor(t *testing.T) {
	for _, v := range []struct {
		name, flavor    string
		cpus, mib       int
		topology, warns bool
	}{
		{"the same", "v2.256", 2, 256, true, false},
		{"more memory", "m1.medium", 2, 256, true, true},
		{"more CPUs", "v4.768", 2, 768, false, true},
		{"fewer of both", "m1.tiny", 2, 1024, false, true},
	} {
		cloud := startCloud(t, lab.Config{})
		vm := changedVM(webVM(), func(vm *inventory.VM) { vm.CPUs, vm.MemoryMiB = v.cpus, int64(v.mib) })
		r := mustDeliver(t, newPlatform(t, cloud, "lab?flavor="+v.flavor), newTestDelivery(t, vm))
		topology := false
		for key := range cloud.Volumes()[0].ImageMetadata {
			topology = topology || strings.HasPrefix(key, "hw_cpu_")
		}
		warns := slices.ContainsFunc(r.Warnings, func(w inventory.Warning) bool { return w.Code == "flavor" })
		if topology != v.topology || warns != v.warns {
			t.Errorf("%s: topology %v, warning %v, want %v and %v", v.name, topology, warns, v.topology, v.warns)
		}
	}
}

// If a delivery and the removal of its objects fail, the error contains both causes. The next delivery, with a newer
// copy of one disk, replaces the volume of that disk and keeps the other volume.
func TestDeliverReplacesVolumesOfAnEarlierCopy(t *testing.T) {
	for changed := range 2 {
		cloud := startCloud(t, lab.Config{})
		p := newPlatform(t, cloud, "lab")
		d := newTestDelivery(t, webVM())
		cloud.InjectFault(lab.Fault{Method: http.MethodPut, Path: "/volumes/", Status: 403, Body: "no completion", Times: 1})
		cloud.InjectFault(lab.Fault{Method: http.MethodDelete, Path: "/ports/", Status: 403, Body: "no removal", Times: 1})
		_, err := p.Deliver(t.Context(), d)
		checkError(t, err, fault.Denied, "no completion")
		checkError(t, err, fault.Denied, "no removal")
		earlier := cloud.Volumes()
		if len(earlier) != 2 {
			t.Fatalf("got objects %q, want 2 volumes", listObjects(cloud))
		}
		content := make([]byte, d.Images[changed].Size)
		copy(content, "newer")
		writeFile(t, d.Images[changed].Path, content)
		d.Images[changed].Root = "bb66"
		mustDeliver(t, p, d)
		now := cloud.Volumes()
		if len(now) != 2 || !slices.ContainsFunc(now, func(v lab.Volume) bool { return bytes.Equal(v.Data, content) }) {
			t.Errorf("disk %d does not have the newer copy", changed)
		}
		kept := earlier[1-changed].ID
		if !slices.ContainsFunc(now, func(v lab.Volume) bool { return v.ID == kept }) {
			t.Errorf("unchanged disk %d was uploaded again", 1-changed)
		}
	}
}

// On storage with clones, such as Ceph, an image cannot be removed before its volume.
func TestImagesOfClonedVolumesAreKept(t *testing.T) {
	cloud := startCloud(t, lab.Config{Clones: true})
	p := newPlatform(t, cloud, "lab")
	d := newTestDelivery(t, webVM())
	r := mustDeliver(t, p, d)
	if len(cloud.Images()) != 2 || !slices.ContainsFunc(r.Warnings, func(w inventory.Warning) bool { return w.Code == "image-kept" }) {
		t.Errorf("got %d images, warnings %+v", len(cloud.Images()), r.Warnings)
	}
	if err := p.Withdraw(t.Context(), d.VM); err != nil {
		t.Fatal(err)
	}
	checkEmpty(t, cloud)
}

func TestBootFromImage(t *testing.T) {
	cloud := startCloud(t, lab.Config{})
	vm := changedVM(webVM(), func(vm *inventory.VM) { vm.Disks, vm.CPUs, vm.MemoryMiB = vm.Disks[:1], 4, 768 })
	p := newPlatform(t, cloud, "lab?boot=image")
	d := newTestDelivery(t, vm)
	mustDeliver(t, p, d)
	mustStart(t, p, d)
	mustDeliver(t, p, d)
	mustStart(t, p, d)
	images, servers := cloud.Images(), cloud.Servers()
	if len(images) != 1 || len(cloud.Volumes()) != 0 || len(servers) != 1 || servers[0].Image != images[0].ID || servers[0].Flavor != "d4" {
		t.Fatalf("got images %+v, servers %+v", images, servers)
	}
	if !bytes.Equal(images[0].Data, diskContent(t, vm.Disks[0])) || images[0].Name != "web 01" || images[0].Fields["hw_disk_bus"] != "sata" {
		t.Errorf("got image %s, %v", images[0].Name, images[0].Fields)
	}
	cloud.SetStatus(servers[0].ID, "SHUTOFF")
	if err := p.Withdraw(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	checkEmpty(t, cloud)
	_, err := p.Deliver(t.Context(), newTestDelivery(t, webVM()))
	checkError(t, err, fault.Invalid, "boot=image")
}

// A port gets the address that the guest has configured if the network contains the address and it is free.
func TestPortsHaveTheGuestsAddresses(t *testing.T) {
	for _, v := range []struct {
		configured, taken string
		want              string
		warned            bool
	}{
		{"10.1.2.3/16", "", "10.1.2.3", false},
		{"192.168.0.5/24", "", "", true},
		{"10.1.2.3/16", "10.1.2.3", "", true},
		{"", "", "", false},
	} {
		cloud := startCloud(t, lab.Config{})
		d := newTestDelivery(t, webVM())
		d.Guest = []guest.Report{{Linux: &linux.Guest{NICs: []linux.NIC{{Name: "ens192", Addresses: []string{v.configured}}}}}, {}}
		if v.taken != "" {
			cloud.AddPort("aaaaaaaa-0000-4000-8000-000000000001", "fa:16:3e:00:00:99", v.taken)
		}
		r := mustDeliver(t, newPlatform(t, cloud, "lab"), d)
		ports := cloud.Ports()
		got := ports[len(ports)-1].Addresses
		warned := slices.ContainsFunc(r.Warnings, func(w inventory.Warning) bool { return w.Code == "address" })
		if len(got) != 1 || (v.want != "") != (got[0] == v.want) || warned != v.warned {
			t.Errorf("%+v: got port address %v, warning %v", v, got, warned)
		}
	}
}

func TestNewMACs(t *testing.T) {
	cloud := startCloud(t, lab.Config{Owned: true})
	p := newPlatform(t, cloud, "lab?mac=new")
	d := newTestDelivery(t, webVM())
	mustDeliver(t, p, d)
	checkDelivered(t, cloud, d)
	if got := cloud.Ports()[0].MAC; got == d.VM.NICs[0].MAC {
		t.Errorf("the port has the VM's MAC %s", got)
	}
}

func TestOutputContainsNoSecrets(t *testing.T) {
	cloud := startCloud(t, lab.Config{})
	for _, name := range []string{"lab", "app"} {
		p := newPlatform(t, cloud, name)
		if err := p.Check(t.Context(), webVM()); err != nil {
			t.Fatal(err)
		}
		output := fmt.Sprintf("%v %+v %#v %v", p.cloud.as, p.cloud.as, p.cloud.as, *p)
		for _, status := range []int{400, 401, 403, 404, 409, 413, 500} {
			cloud.InjectFault(lab.Fault{Method: http.MethodPost, Path: "", Status: status, Times: 50, Body: "no"})
			_, err := p.Deliver(t.Context(), newTestDelivery(t, webVM()))
			output += fmt.Sprintf("%v %+v %s", err, err, fault.HintOf(err))
			cloud.ClearFaults()
		}
		if strings.Contains(output, lab.Password) || strings.Contains(output, lab.Secret) || strings.Contains(output, "gAAAAA") {
			t.Errorf("the output contains a secret: %s", output)
		}
	}
	text, err := os.ReadFile(os.Getenv("OS_CLIENT_CONFIG_FILE"))
	if err != nil || !bytes.Contains(text, []byte(lab.Password)) {
		t.Errorf("clouds.yaml does not contain the secret: %v", err)
	}
}
