package proxmox

import (
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab/pve"
	"github.com/decamp/decamp/internal/namemap"
)

// mappedVM boots by EFI and has its two disks on two datastores.
func mappedVM() *inventory.VM {
	return changedVM(biosVM(), func(vm *inventory.VM) {
		vm.Firmware = inventory.EFI
		vm.VMX.Datastore = "ssd1"
		vm.Disks[0].Path = inventory.Path{Datastore: "ssd1", File: "web 01.vmdk"}
		vm.Disks[1].Path = inventory.Path{Datastore: "nfs", File: "data.vmdk"}
	})
}

var testMap = namemap.Map{
	Networks: map[string]namemap.Network{"VM *": {To: "vmbr2", VLAN: 30, Model: "e1000e"}},
	Storages: map[string]string{"ssd*": "local"},
	Names:    map[string]string{"web *": "www-*"},
}

// Objects that a map names go to their mapped destination, all others to the default.
func TestDeliverByAMap(t *testing.T) {
	t.Parallel()
	s := startServer(t, pve.Config{})
	p, d := newPlatform(t, s, Options{Maps: testMap}), newDelivery(t, mappedVM())
	if err := p.Check(t.Context(), d.VM); err != nil {
		t.Fatal(err)
	}
	receipt, err := p.Deliver(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	_, config := guestOf(t, s, d.VM)
	for key, want := range map[string]string{
		"name": "www-01", "scsi0": "local:", "scsi1": "local-lvm:", "efidisk0": "local:",
		"net0": "e1000e=00:50:56:AB:CD:01,bridge=vmbr2,tag=30",
	} {
		if !strings.HasPrefix(config[key], want) {
			t.Errorf("%s = %q, want prefix %q", key, config[key], want)
		}
	}
	if receipt.Name != "www-01" || !strings.Contains(config["description"], "web 01 on esx1") {
		t.Errorf("receipt %+v, description %q", receipt, config["description"])
	}
	if err := p.Withdraw(t.Context(), d.VM); err != nil {
		t.Fatal(err)
	}
	checkGone(t, s)
}

func TestCheckOfMaps(t *testing.T) {
	t.Parallel()
	small := []pve.Storage{
		{ID: "local", Type: "dir", Content: []string{"images", "import"}, Size: 1 << 30},
		{ID: "local-lvm", Type: "lvm", Content: []string{"images"}, Size: 1 << 30},
		{ID: "small", Type: "lvm", Content: []string{"images"}, Size: 1 << 20},
	}
	for name, c := range map[string]struct {
		maps namemap.Map
		kind fault.Kind
		hint string
	}{
		"no such storage":   {namemap.Map{Storages: map[string]string{"nfs": "tank"}}, fault.NotFound, "map of storages"},
		"no name":           {namemap.Map{Storages: map[string]string{"nfs": "a,b"}}, fault.Invalid, "pvesm status"},
		"no room on one":    {namemap.Map{Storages: map[string]string{"nfs": "small"}}, fault.Full, "storage="},
		"two tags":          {namemap.Map{Networks: map[string]namemap.Network{"VM*": {To: "vmbr1,20", VLAN: 30}}}, fault.Invalid, "vlan: 30"},
		"no bridge at all":  {namemap.Map{Networks: map[string]namemap.Network{"*": {To: "multus:*"}}}, fault.Invalid, "vmbr0,20"},
		"the name is taken": {namemap.Map{Names: map[string]string{"*": "older"}}, fault.Conflict, "qm set 150"},
	} {
		s := startServer(t, pve.Config{Storages: small})
		s.AddGuest(150, map[string]string{"name": "older"})
		err := newPlatform(t, s, Options{Maps: c.maps}).Check(t.Context(), mappedVM())
		if !fault.Is(err, c.kind) || !strings.Contains(fault.HintOf(err), c.hint) {
			t.Errorf("%s: got %v: %v (hint %q), want %v", name, fault.KindOf(err), err, fault.HintOf(err), c.kind)
		}
		checkReadOnly(t, s)
	}
}
