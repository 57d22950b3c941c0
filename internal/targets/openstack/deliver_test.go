package openstack

import (
	"bytes"
	"context"
	"errors"
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

// web is a VM with two disks and a card.
func web() *inventory.VM {
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

func with(vm *inventory.VM, change func(*inventory.VM)) *inventory.VM {
	change(vm)
	return vm
}

// delivery is one of vm, with images that say where each of their words is, but in a hole.
func deliveryOf(t *testing.T, vm *inventory.VM) platform.Delivery {
	t.Helper()
	d := platform.Delivery{Definition: targets.Definition{VM: vm, Decamp: "v0.0.0-test"}}
	for _, each := range vm.Disks {
		path := filepath.Join(t.TempDir(), "disk.raw")
		write(t, path, contentOf(t, each))
		d.Images = append(d.Images, targets.Image{Key: each.Key, Path: path, Format: targets.Raw, Size: each.Capacity, Root: "aa55"})
	}
	d.Open = func(ctx context.Context, img targets.Image) (disk.Source, error) {
		return image.File{Path: img.Path, Format: img.Format, Size: img.Size}.Read(ctx)
	}
	return d
}

func contentOf(t *testing.T, d inventory.Disk) []byte {
	t.Helper()
	data := make([]byte, d.Capacity)
	if err := disk.NewPattern(d.Capacity).ReadAt(t.Context(), data, 0); err != nil {
		t.Fatal(err)
	}
	data[0] = byte(d.Key) // no two are the same
	return data
}

func deliver(t *testing.T, p *Platform, d platform.Delivery) platform.Receipt {
	t.Helper()
	r, err := p.Deliver(t.Context(), d)
	if err != nil {
		t.Fatalf("deliver: %v (%s)", err, fault.HintOf(err))
	}
	return r
}

// checkDelivered asserts that the volumes of d are there with its bytes, and nothing of the way is left.
func checkDelivered(t *testing.T, cloud *lab.Cloud, d platform.Delivery) {
	t.Helper()
	there := cloud.Volumes()
	if len(there) != len(d.VM.Disks) || len(cloud.Images()) > 0 || len(cloud.Ports()) != len(d.VM.NICs) {
		t.Errorf("%d volumes, %d images, %d ports", len(there), len(cloud.Images()), len(cloud.Ports()))
	}
	for _, each := range d.VM.Disks {
		at := slices.IndexFunc(there, func(v lab.Volume) bool { return v.Metadata[diskKey] == fmt.Sprint(each.Key) })
		if at < 0 || !bytes.Equal(there[at].Data, contentOf(t, each)) {
			t.Errorf("disk %d is not there, or is another", each.Key)
		}
	}
}

// checkNothing asserts that nothing is left.
func checkNothing(t *testing.T, cloud *lab.Cloud) {
	t.Helper()
	if left := thingsIn(cloud); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func hasHint(t *testing.T, err error, kind fault.Kind, words string) {
	t.Helper()
	if !fault.Is(err, kind) || fault.HintOf(err) == "" || !strings.Contains(err.Error()+fault.HintOf(err), words) {
		t.Errorf("%v (%v, remedy %q), want %v with %q", err, fault.KindOf(err), fault.HintOf(err), kind, words)
	}
}

func TestDeliversInBothFormats(t *testing.T) {
	for _, format := range []string{"raw", "qcow2"} {
		cloud := serve(t, lab.Config{})
		d := deliveryOf(t, web())
		r := deliver(t, place(t, cloud, "lab?format="+format+"&volumeType=fast&availabilityZone=nova"), d)
		checkDelivered(t, cloud, d)
		boot := cloud.Volumes()[0]
		if r.ID != boot.ID || r.Name != "web 01" || !boot.Bootable || boot.Type != "fast" || boot.Zone != "nova" || boot.Size != 1 {
			t.Errorf("receipt %+v of %+v", r, boot)
		}
		for key, want := range map[string]string{refKey: "vm-7", instanceKey: web().InstanceUUID, uuidKey: web().UUID, nameKey: "web 01", flavorKey: "v2"} {
			if boot.Metadata[key] != want {
				t.Errorf("%s is %q, want %q", key, boot.Metadata[key], want)
			}
		}
	}
}

// The printed command names all that there is.
func TestCommandMakesTheServer(t *testing.T) {
	cloud := serve(t, lab.Config{})
	r := deliver(t, place(t, cloud, "lab"), deliveryOf(t, web()))
	at := slices.IndexFunc(r.Warnings, func(w inventory.Warning) bool { return w.Code == "no-server" })
	if at < 0 {
		t.Fatalf("warnings: %+v", r.Warnings)
	}
	v := cloud.Volumes()
	want := "openstack --os-cloud lab server create --flavor v2 --volume " + v[0].ID +
		" --block-device source_type=volume,destination_type=volume,boot_index=-1,disk_bus=sata,uuid=" + v[1].ID +
		" --port " + cloud.Ports()[0].ID + " -- 'web 01'"
	if got := r.Warnings[at].Remedy; got != want {
		t.Errorf("the command is\n%s\nwant\n%s", got, want)
	}
}

func TestDeliverOutlivesWhatPasses(t *testing.T) {
	for name, v := range map[string]struct {
		config  lab.Config
		trouble lab.Fault
		wait    time.Duration // that the service asked for
	}{
		"token ends in an upload": {config: lab.Config{EndUploads: 2}},
		"tokens end often":        {config: lab.Config{TokenCalls: 4}},
		"upload is cut":           {config: lab.Config{CutUploads: 2}},
		"a byte is damaged":       {config: lab.Config{Damage: 1}},
		"a volume fails":          {config: lab.Config{BadVolumes: 1}},
		"too many requests":       {trouble: lab.Fault{Method: "POST", Path: "volumes", Status: 429, RetryAfter: "13", Times: 2}, wait: 13 * time.Second},
		"rate limit of old":       {trouble: lab.Fault{Method: "POST", Path: "ports", Status: 413, RetryAfter: "17", Times: 2}, wait: 17 * time.Second},
		"a service restarts":      {trouble: lab.Fault{Method: "GET", Path: "images", Status: 503, Times: 3}},
		"lists are late":          {config: lab.Config{Late: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := serve(t, v.config)
			cloud.InjectFault(v.trouble)
			d := deliveryOf(t, web())
			p := place(t, cloud, "lab")
			waited := map[time.Duration]int{}
			p.cloud.wait = func(ctx context.Context, d time.Duration) error {
				waited[d]++
				return quick(ctx, d)
			}
			deliver(t, p, d)
			checkDelivered(t, cloud, d)
			if v.wait > 0 && waited[v.wait] != v.trouble.Times {
				t.Errorf("waited %v, want %v %d times", waited, v.wait, v.trouble.Times)
			}
		})
	}
}

func TestDeliverLeavesNothingAfterAnError(t *testing.T) {
	for name, v := range map[string]struct {
		config  lab.Config
		trouble lab.Fault
		kind    fault.Kind
		words   string
	}{
		"Cinder's quota":    {config: lab.Config{Gigabytes: 1}, kind: fault.Full, words: "gigabytes quota"},
		"Neutron's quota":   {trouble: lab.Fault{Method: "POST", Path: "ports", Status: 409, Body: `{"NeutronError": {"type": "OverQuota", "message": "Quota exceeded for resources: ['port']."}}`, Times: 1}, kind: fault.Full, words: "quota show"},
		"Glance's quota":    {trouble: lab.Fault{Method: "PUT", Path: "/file", Status: 413, Body: "<html>Request Entity Too Large</html>", Times: 1}, kind: fault.Full, words: "Too Large"},
		"no right to MACs":  {config: lab.Config{Owned: true}, kind: fault.Denied, words: "mac=new"},
		"no right":          {trouble: lab.Fault{Method: "POST", Path: "images", Status: 403, Times: 9}, kind: fault.Denied, words: "member"},
		"volumes fail":      {config: lab.Config{BadVolumes: 9}, kind: fault.Transient, words: "volume message list"},
		"damage on the way": {config: lab.Config{Damage: 9}, kind: fault.Corrupt, words: "differs from the sent data"},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := serve(t, v.config)
			cloud.InjectFault(v.trouble)
			_, err := place(t, cloud, "lab").Deliver(t.Context(), deliveryOf(t, web()))
			hasHint(t, err, v.kind, v.words)
			checkNothing(t, cloud)
		})
	}
}

func TestWithdrawLeavesWhatRuns(t *testing.T) {
	cloud := serve(t, lab.Config{})
	p := place(t, cloud, "lab")
	d := deliveryOf(t, web())
	deliver(t, p, d)
	startOf(t, p, d)
	id := cloud.Servers()[0].ID
	before := thingsIn(cloud)
	hasHint(t, p.Withdraw(t.Context(), d.VM), fault.Conflict, "server stop "+id)
	if now := thingsIn(cloud); !slices.Equal(now, before) {
		t.Errorf("withdrawn of a server that runs: %q", now)
	}
	cloud.SetStatus(id, "SHUTOFF")
	if err := p.Withdraw(t.Context(), d.VM); err != nil {
		t.Fatal(err)
	}
	checkNothing(t, cloud)
}

// A server that somebody made of our volumes is somebody's.
func TestWithdrawLeavesWhatOthersUse(t *testing.T) {
	cloud := serve(t, lab.Config{})
	p := place(t, cloud, "lab")
	d := deliveryOf(t, web())
	deliver(t, p, d)
	id := cloud.Volumes()[1].ID
	cloud.Attach(id, "theirs")
	before := thingsIn(cloud)
	hasHint(t, p.Withdraw(t.Context(), d.VM), fault.Conflict, "server delete theirs")
	if now := thingsIn(cloud); !slices.Equal(now, before) {
		t.Errorf("withdrawn of a volume in use: %q", now)
	}
	cloud.Attach(id, "")
	if err := p.Withdraw(t.Context(), d.VM); err != nil {
		t.Fatal(err)
	}
	checkNothing(t, cloud)
}

func TestDeliverRefusesAnEarlierCopy(t *testing.T) {
	cloud := serve(t, lab.Config{})
	p := place(t, cloud, "lab")
	d := deliveryOf(t, web())
	deliver(t, p, d)
	before := thingsIn(cloud)
	d.Images[0].Root = "bb66"
	_, err := p.Deliver(t.Context(), d)
	hasHint(t, err, fault.Conflict, "earlier copy")
	if now := thingsIn(cloud); !slices.Equal(now, before) {
		t.Errorf("changed: %q", now)
	}
}

// Nova rejects a topology that does not have the flavor's number of CPUs. The user learns of each difference.
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
		cloud := serve(t, lab.Config{})
		vm := with(web(), func(vm *inventory.VM) { vm.CPUs, vm.MemoryMiB = v.cpus, int64(v.mib) })
		r := deliver(t, place(t, cloud, "lab?flavor="+v.flavor), deliveryOf(t, vm))
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

// A delivery that fails, and whose removal fails, reports both. The next one, of a newer copy of one disk, replaces
// that disk's volume and keeps the other.
func TestDeliverReplacesVolumesOfAnEarlierCopy(t *testing.T) {
	for changed := range 2 {
		cloud := serve(t, lab.Config{})
		p := place(t, cloud, "lab")
		d := deliveryOf(t, web())
		cloud.InjectFault(lab.Fault{Method: http.MethodPut, Path: "/volumes/", Status: 403, Body: "no completion", Times: 1})
		cloud.InjectFault(lab.Fault{Method: http.MethodDelete, Path: "/ports/", Status: 403, Body: "no removal", Times: 1})
		_, err := p.Deliver(t.Context(), d)
		hasHint(t, err, fault.Denied, "no completion")
		hasHint(t, err, fault.Denied, "no removal")
		earlier := cloud.Volumes()
		if len(earlier) != 2 {
			t.Fatalf("left: %q", thingsIn(cloud))
		}
		content := make([]byte, d.Images[changed].Size)
		copy(content, "newer")
		write(t, d.Images[changed].Path, content)
		d.Images[changed].Root = "bb66"
		deliver(t, p, d)
		now := cloud.Volumes()
		if len(now) != 2 || !slices.ContainsFunc(now, func(v lab.Volume) bool { return bytes.Equal(v.Data, content) }) {
			t.Errorf("disk %d is not the newer copy", changed)
		}
		kept := earlier[1-changed].ID
		if !slices.ContainsFunc(now, func(v lab.Volume) bool { return v.ID == kept }) {
			t.Errorf("disk %d was uploaded again", 1-changed)
		}
	}
}

// With clones, as on Ceph, an image cannot go before its volume.
func TestImagesThatVolumesNeedStay(t *testing.T) {
	cloud := serve(t, lab.Config{Clones: true})
	p := place(t, cloud, "lab")
	d := deliveryOf(t, web())
	r := deliver(t, p, d)
	if len(cloud.Images()) != 2 || !slices.ContainsFunc(r.Warnings, func(w inventory.Warning) bool { return w.Code == "image-kept" }) {
		t.Errorf("%d images, warnings %+v", len(cloud.Images()), r.Warnings)
	}
	if err := p.Withdraw(t.Context(), d.VM); err != nil {
		t.Fatal(err)
	}
	checkNothing(t, cloud)
}

func TestBootFromImage(t *testing.T) {
	cloud := serve(t, lab.Config{})
	vm := with(web(), func(vm *inventory.VM) { vm.Disks, vm.CPUs, vm.MemoryMiB = vm.Disks[:1], 4, 768 })
	p := place(t, cloud, "lab?boot=image")
	d := deliveryOf(t, vm)
	deliver(t, p, d)
	startOf(t, p, d)
	deliver(t, p, d)
	startOf(t, p, d)
	images, servers := cloud.Images(), cloud.Servers()
	if len(images) != 1 || len(cloud.Volumes()) != 0 || len(servers) != 1 || servers[0].Image != images[0].ID || servers[0].Flavor != "d4" {
		t.Fatalf("images %+v, servers %+v", images, servers)
	}
	if !bytes.Equal(images[0].Data, contentOf(t, vm.Disks[0])) || images[0].Name != "web 01" || images[0].Fields["hw_disk_bus"] != "sata" {
		t.Errorf("image %s, %v", images[0].Name, images[0].Fields)
	}
	cloud.SetStatus(servers[0].ID, "SHUTOFF")
	if err := p.Withdraw(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	checkNothing(t, cloud)
	_, err := p.Deliver(t.Context(), deliveryOf(t, web()))
	hasHint(t, err, fault.Invalid, "boot=image")
}

// Addresses that the guest has configured are the port's, where its network has them and nobody else.
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
		cloud := serve(t, lab.Config{})
		d := deliveryOf(t, web())
		d.Guest = []guest.Report{{Linux: &linux.Guest{NICs: []linux.NIC{{Name: "ens192", Addresses: []string{v.configured}}}}}, {}}
		if v.taken != "" {
			cloud.AddPort("aaaaaaaa-0000-4000-8000-000000000001", "fa:16:3e:00:00:99", v.taken)
		}
		r := deliver(t, place(t, cloud, "lab"), d)
		ports := cloud.Ports()
		got := ports[len(ports)-1].Addresses
		warned := slices.ContainsFunc(r.Warnings, func(w inventory.Warning) bool { return w.Code == "address" })
		if len(got) != 1 || (v.want != "") != (got[0] == v.want) || warned != v.warned {
			t.Errorf("%+v: port %v, warned %v", v, got, warned)
		}
	}
}

func TestMACsCanBeLeft(t *testing.T) {
	cloud := serve(t, lab.Config{Owned: true})
	p := place(t, cloud, "lab?mac=new")
	d := deliveryOf(t, web())
	deliver(t, p, d)
	checkDelivered(t, cloud, d)
	if got := cloud.Ports()[0].MAC; got == d.VM.NICs[0].MAC {
		t.Errorf("the port has %s", got)
	}
}

func TestNothingTellsSecrets(t *testing.T) {
	cloud := serve(t, lab.Config{})
	for _, name := range []string{"lab", "app"} {
		p := place(t, cloud, name)
		if err := p.Check(t.Context(), web()); err != nil {
			t.Fatal(err)
		}
		said := fmt.Sprintf("%v %+v %#v %v", p.cloud.as, p.cloud.as, p.cloud.as, *p)
		for _, trouble := range []int{400, 401, 403, 404, 409, 413, 500} {
			cloud.InjectFault(lab.Fault{Method: http.MethodPost, Path: "", Status: trouble, Times: 50, Body: "no"})
			_, err := p.Deliver(t.Context(), deliveryOf(t, web()))
			said += fmt.Sprintf("%v %+v %s", err, err, fault.HintOf(err))
			cloud.ClearFaults()
		}
		if strings.Contains(said, lab.Password) || strings.Contains(said, lab.Secret) || strings.Contains(said, "gAAAAA") {
			t.Errorf("a secret is told: %s", said)
		}
	}
	text, err := os.ReadFile(os.Getenv("OS_CLIENT_CONFIG_FILE"))
	if err != nil || !bytes.Contains(text, []byte(lab.Password)) {
		t.Errorf("the secret is not where it was: %v", errors.Join(err))
	}
}
