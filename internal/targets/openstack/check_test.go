package openstack

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/gophercloud/gophercloud/v2"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	lab "github.com/decamp/decamp/internal/lab/openstack"
	"github.com/decamp/decamp/internal/namemap"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/platform"
)

// Check reports a missing object before the copy, with the existing objects or a command in the hint.
func TestCheck(t *testing.T) {
	for name, v := range map[string]struct {
		config  lab.Config
		address string
		vm      *inventory.VM
		occupy  func(*lab.Cloud)
		kind    fault.Kind
		message string // part of the error or hint; empty if Check must succeed
	}{
		"default":           {address: "lab"},
		"application":       {address: "app"},
		"no quota":          {config: lab.Config{Gigabytes: -1}, address: "lab"},
		"zone of servers":   {address: "lab?availabilityZone=compute-only"},
		"smaller flavor":    {address: "lab?flavor=m1.tiny"},
		"reader":            {config: lab.Config{Roles: []string{"reader"}}, address: "lab", kind: fault.Denied, message: "role add"},
		"no such flavor":    {address: "lab?flavor=huge", kind: fault.NotFound, message: "m1.tiny (1 vCPUs, 512 MiB, disk 1 GiB)"},
		"no flavor fits":    {address: "lab", vm: changedVM(webVM(), func(vm *inventory.VM) { vm.CPUs = 64 }), kind: fault.NotFound, message: "flavor create --vcpus 64"},
		"flavor's disk":     {address: "lab?boot=image&flavor=v4", vm: changedVM(webVM(), func(vm *inventory.VM) { vm.Disks = vm.Disks[:1] }), kind: fault.Invalid, message: "boot=image requires 1"},
		"no such network":   {address: "lab?network=wan", kind: fault.NotFound, message: "existing networks: dmz, lan"},
		"ambiguous network": {config: lab.Config{Networks: []lab.Network{{ID: "a", Name: "lan"}, {ID: "b", Name: "lan"}}}, address: "lab", kind: fault.Conflict, message: "network list --name lan"},
		"no such type":      {address: "lab?volumeType=gold", kind: fault.NotFound, message: "fast, slow"},
		"no such zone":      {address: "lab?availabilityZone=mars", kind: fault.NotFound, message: "compute-only"},
		"no such project":   {address: "lab?project=theirs", kind: fault.Denied, message: "token issue"},
		"GiB":               {config: lab.Config{Gigabytes: 1}, address: "lab", kind: fault.Full, message: "2 GiB of volumes"},
		"volumes":           {config: lab.Config{Volumes: 1}, address: "lab", kind: fault.Full, message: "2 volumes"},
		"no servers left":   {config: lab.Config{Servers: 1}, address: "lab", occupy: func(c *lab.Cloud) { c.AddServer("other") }}, // Check does not require a server, because not all VMs are started
		"server's name":     {address: "lab", occupy: func(c *lab.Cloud) { c.AddServer("web 01") }, kind: fault.Conflict, message: "--name 'web 01-old'"},
		"volume's name":     {address: "lab", occupy: func(c *lab.Cloud) { c.AddVolume("web 01-disk0", nil) }, kind: fault.Conflict, message: "volume set"},
		"MAC":               {address: "lab", occupy: func(c *lab.Cloud) { c.AddPort("aaaaaaaa-0000-4000-8000-000000000001", "00:50:56:ab:cd:01", "") }, kind: fault.Conflict, message: "mac=new"},
		"MAC that is left":  {address: "lab?mac=new", occupy: func(c *lab.Cloud) { c.AddPort("aaaaaaaa-0000-4000-8000-000000000001", "00:50:56:ab:cd:01", "") }},
		"disks of an image": {address: "lab?boot=image", kind: fault.Invalid, message: "has 2 disks"},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := startCloud(t, v.config)
			if v.occupy != nil {
				v.occupy(cloud)
			}
			before := len(listObjects(cloud))
			vm := v.vm
			if vm == nil {
				vm = webVM()
			}
			err := newPlatform(t, cloud, v.address).Check(t.Context(), vm)
			if v.message == "" && err != nil {
				t.Errorf("%v (%s)", err, fault.HintOf(err))
			}
			if v.message != "" {
				checkError(t, err, v.kind, v.message)
			}
			if len(listObjects(cloud)) != before {
				t.Errorf("Check changes the objects to %q", listObjects(cloud))
			}
		})
	}
}

// Examine warns if the quota has no server left.
func TestExamineWarnsOfServerQuota(t *testing.T) {
	for _, full := range []bool{false, true} {
		cloud := startCloud(t, lab.Config{Servers: 1})
		if full {
			cloud.AddServer("other")
		}
		results := newPlatform(t, cloud, "lab").Examine(t.Context(), platform.Storage)
		last := results[len(results)-1]
		if (last.Err != nil) != full || last.WarningOnly != full || full && !strings.Contains(last.Err.Error(), "1 servers are required") {
			t.Errorf("full %v: %+v", full, last)
		}
	}
}

func TestMapOfNetworks(t *testing.T) {
	cloud := startCloud(t, lab.Config{})
	setEnvironment(t, cloud)
	p, err := New("lab", Options{Wait: noWait, Maps: namemap.Map{Networks: map[string]namemap.Network{"VM Network": {To: "dmz"}}}})
	if err != nil {
		t.Fatal(err)
	}
	mustDeliver(t, p, newTestDelivery(t, webVM()))
	if got := cloud.Ports()[0].Network; got != "aaaaaaaa-0000-4000-8000-000000000002" {
		t.Errorf("the port is in network %s", got)
	}
	checkError(t, p.Check(t.Context(), changedVM(webVM(), func(vm *inventory.VM) { vm.NICs[0].Network = "other" })), fault.Invalid, `{"other": NETWORK}`)
}

func TestInvalidAddresses(t *testing.T) {
	setEnvironment(t, startCloud(t, lab.Config{}))
	for address, message := range map[string]string{
		"https://user:secret@cloud": "clouds.yaml",
		"lab?password=secret":       "the parameters are flavor",
		"lab?boot=floppy":           "volume|image",
		"lab?flavor=a&flavor=b":     "each once",
		"lab?start=true":            "use --start",
		"lab?start=false":           "use --start",
		"nobody":                    "not found in clouds.yaml",
		"":                          "OS_CLOUD",
		"app?project=other":         "application credential",
		"lab?flavor=%zz":            "clouds.yaml",
	} {
		_, err := New(address, Options{})
		checkError(t, err, fault.Invalid, message)
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// The variables of an openrc.sh replace clouds.yaml. Their values may contain any characters.
func TestEnvironment(t *testing.T) {
	cloud := startCloud(t, lab.Config{})
	setEnvironment(t, cloud)
	ca := strings.TrimSuffix(os.Getenv("OS_CLIENT_CONFIG_FILE"), "clouds.yaml") + "ca.pem"
	variables := map[string]string{
		"OS_AUTH_URL": cloud.AuthURL(), "OS_USERNAME": "mover", "OS_PASSWORD": lab.Password, "OS_PROJECT_NAME": "vms",
		"OS_USER_DOMAIN_NAME": "Default", "OS_PROJECT_DOMAIN_ID": "default", "OS_CACERT": ca, "OS_REGION_NAME": "RegionOne",
	}
	o := Options{Network: "lan", Wait: noWait, Getenv: func(name string) string { return variables[name] }}
	check := func() error {
		p, err := New("", o)
		if err != nil {
			return err
		}
		return p.Check(t.Context(), webVM())
	}
	if err := check(); err != nil {
		t.Errorf("%v (%s)", err, fault.HintOf(err))
	}
	variables["OS_PASSWORD"] = "\"}, evil: {\n #' \u2028\\ & <nobody>"
	checkError(t, check(), fault.Denied, "requires authentication")
	variables["OS_PASSWORD"], variables["OS_REGION_NAME"] = lab.Password, "Mars"
	checkError(t, check(), fault.NotFound, "region_name")
	delete(variables, "OS_REGION_NAME")
	delete(variables, "OS_CACERT")
	checkError(t, check(), fault.Denied, "cacert")
	variables["OS_INSECURE"] = "true"
	if err := check(); err != nil {
		t.Errorf("%v (%s)", err, fault.HintOf(err))
	}
}

// Errors about clouds.yaml do not contain its values.
func TestCloudsYAMLErrorsContainNoValues(t *testing.T) {
	setEnvironment(t, startCloud(t, lab.Config{}))
	for _, text := range []string{"clouds: {lab: {auth: [hunter2]}}", "clouds: hunter2", "hunter2: [", "clouds: {lab: {auth: {password: hunter2}, cacert: /nowhere}}"} {
		writeFile(t, os.Getenv("OS_CLIENT_CONFIG_FILE"), []byte(text))
		_, err := New("lab", Options{})
		checkError(t, err, fault.Invalid, "")
		if strings.Contains(err.Error()+fault.HintOf(err), "hunter2") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestMachineOf(t *testing.T) {
	for name, v := range map[string]struct {
		vm       *inventory.VM
		hardware targets.Hardware
		changed  *convert.Result
		want     map[string]string // an empty value must not exist
		bus      string
	}{
		"compat": {vm: webVM(), bus: "sata", want: map[string]string{
			"hw_disk_bus": "sata", "hw_scsi_model": "", "hw_vif_model": "e1000e", "hw_firmware_type": "bios", "hw_machine_type": "", "os_type": "linux",
			"hw_qemu_guest_agent": "", "os_secure_boot": "", "hw_cpu_sockets": "2", "hw_cpu_cores": "1",
		}},
		"virtio": {vm: webVM(), hardware: targets.Virtio, bus: "scsi", want: map[string]string{
			"hw_disk_bus": "scsi", "hw_scsi_model": "virtio-scsi", "hw_vif_model": "virtio", "hw_qemu_guest_agent": "",
		}},
		"agent": {vm: webVM(), hardware: targets.Virtio, changed: &convert.Result{GuestAgent: true}, bus: "scsi", want: map[string]string{
			"hw_qemu_guest_agent": "yes",
		}},
		"ide": {vm: changedVM(webVM(), func(vm *inventory.VM) { vm.Controllers[0].Bus = inventory.IDE }), bus: "ide", want: map[string]string{
			"hw_disk_bus": "ide", "hw_machine_type": "pc",
		}},
		"ide with EFI": {vm: changedVM(webVM(), func(vm *inventory.VM) { vm.Controllers[0].Bus, vm.Firmware = inventory.IDE, inventory.EFI }), bus: "sata", want: map[string]string{
			"hw_firmware_type": "uefi", "hw_machine_type": "q35", "os_secure_boot": "", "hw_tpm_version": "",
		}},
		"windows": {vm: changedVM(webVM(), func(vm *inventory.VM) {
			vm.GuestID, vm.Firmware, vm.SecureBoot, vm.VTPM, vm.NICs[0].Model = "windows11_64Guest", inventory.EFI, true, true, "e1000"
		}), bus: "sata", want: map[string]string{
			"os_type": "windows", "os_secure_boot": "required", "hw_tpm_version": "2.0", "hw_tpm_model": "tpm-crb", "hw_vif_model": "e1000",
		}},
	} {
		m, err := machineOf(targets.Definition{VM: v.vm, Hardware: v.hardware, Converted: v.changed}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for key, want := range v.want {
			if m.properties[key] != want {
				t.Errorf("%s: %s is %q, want %q", name, key, m.properties[key], want)
			}
		}
		if m.bus != v.bus {
			t.Errorf("%s: got bus %s, want %s", name, m.bus, v.bus)
		}
		for _, w := range m.warnings {
			if w.Code == "" || w.Text == "" || w.Remedy == "" {
				t.Errorf("%s: %+v", name, w)
			}
		}
	}
}

func TestBootDisk(t *testing.T) {
	vm := webVM()
	vm.BootOrder = []string{"net:4000", "disk:2001"}
	if got := bootDisk(vm); got != 1 {
		t.Errorf("by boot order: got disk %d, want 1", got)
	}
	vm.BootOrder, vm.Disks[0].Unit = nil, 9
	if got := bootDisk(vm); got != 1 {
		t.Errorf("by units: got disk %d, want 1", got)
	}
	if got := bootDisk(&inventory.VM{}); got != -1 {
		t.Errorf("without disks: got %d, want -1", got)
	}
}

func FuzzErrorText(f *testing.F) {
	for _, text := range []string{"", "<html><h1>Gone</h1>no <b>image</b>", `{"badRequest": {"message": "no"}}`, `{"NeutronError": {"type": "OverQuota", "message": "x\ny"}}`, "<<<", `{"a": null, "b": []}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got := errorText(body)
		if len(got) > fault.MaxLine+len("…") || strings.ContainsAny(got, "\n\r\x1b\x00") {
			t.Errorf("%q", got)
		}
		c := &cloud{name: "x"}
		for _, status := range []int{400, 401, 403, 404, 409, 413, 429, 500} {
			_, err := c.convertError(t.Context(), "do", gophercloud.ErrUnexpectedResponseCode{Actual: status, Body: body})
			var converted *fault.Error
			if !errors.As(err, &converted) || converted.Hint == "" {
				t.Errorf("%v has no hint", err)
			}
		}
	})
}
