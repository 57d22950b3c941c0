package openstack

import (
	"slices"
	"testing"

	"github.com/decamp/decamp/internal/inventory"
	lab "github.com/decamp/decamp/internal/lab/openstack"
	"github.com/decamp/decamp/internal/namemap"
	"github.com/decamp/decamp/internal/targets"
)

// The outline is what is delivered: disks by the same names, types and sizes, cards on the same networks.
func TestOutlineIsWhatIsDelivered(t *testing.T) {
	cloud := serve(t, lab.Config{})
	environmentOf(t, cloud)
	vm := with(web(), func(vm *inventory.VM) { vm.NICs[0].Connected, vm.NICs[0].StartConnected = false, false })
	p, err := New("lab?network=lan", Options{Wait: quick, Maps: namemap.Map{Names: map[string]string{vm.Name: "renamed"}}})
	if err != nil {
		t.Fatal(err)
	}
	d := deliveryOf(t, vm)
	o, err := p.Outline(targets.Definition{VM: vm}, targets.Outline{})
	if err != nil {
		t.Fatal(err)
	}
	deliver(t, p, d)
	if o.Name != "renamed" || len(o.Disks) != len(vm.Disks) || len(o.Cards) != len(vm.NICs) || len(o.Boot) != 1 {
		t.Fatalf("%+v", o)
	}
	volumes := cloud.Volumes()
	for _, want := range o.Disks {
		if !slices.ContainsFunc(volumes, func(v lab.Volume) bool { return v.Name == want.As && int64(v.Size)<<30 == want.Size }) {
			t.Errorf("no volume is %+v, of %+v", want, volumes)
		}
	}
	if port := cloud.Ports()[0]; port.MAC != o.Cards[0].MAC || port.Up == o.Cards[0].Down || !o.Cards[0].Down {
		t.Errorf("port %+v, outlined as %+v", port, o.Cards[0])
	}
}
