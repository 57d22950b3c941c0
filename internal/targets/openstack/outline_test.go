package openstack

import (
	"slices"
	"testing"

	"github.com/decamp/decamp/internal/inventory"
	lab "github.com/decamp/decamp/internal/lab/openstack"
	"github.com/decamp/decamp/internal/namemap"
	"github.com/decamp/decamp/internal/targets"
)

// The outline describes the delivered objects: disks with the same names and sizes, and cards with the same MACs and
// states.
func TestOutlineMatchesDeliveredObjects(t *testing.T) {
	cloud := startCloud(t, lab.Config{})
	setEnvironment(t, cloud)
	vm := changedVM(webVM(), func(vm *inventory.VM) { vm.NICs[0].Connected, vm.NICs[0].StartConnected = false, false })
	p, err := New("lab?network=lan", Options{Wait: noWait, Maps: namemap.Map{Names: map[string]string{vm.Name: "renamed"}}})
	if err != nil {
		t.Fatal(err)
	}
	d := newTestDelivery(t, vm)
	o, err := p.Outline(targets.Definition{VM: vm}, targets.Outline{})
	if err != nil {
		t.Fatal(err)
	}
	mustDeliver(t, p, d)
	if o.Name != "renamed" || len(o.Disks) != len(vm.Disks) || len(o.Cards) != len(vm.NICs) || len(o.Boot) != 1 {
		t.Fatalf("%+v", o)
	}
	volumes := cloud.Volumes()
	for _, want := range o.Disks {
		if !slices.ContainsFunc(volumes, func(v lab.Volume) bool { return v.Name == want.As && int64(v.Size)<<30 == want.Size }) {
			t.Errorf("no volume matches %+v in %+v", want, volumes)
		}
	}
	if port := cloud.Ports()[0]; port.MAC != o.Cards[0].MAC || port.Up == o.Cards[0].Down || !o.Cards[0].Down {
		t.Errorf("got port %+v, outline %+v", port, o.Cards[0])
	}
}
