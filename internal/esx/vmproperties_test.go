package esx

import (
	"reflect"
	"testing"

	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/inventory"
)

// A missing property and a property of an unexpected type stay zero.
func TestToRollVM(t *testing.T) {
	tree := newTree(types.ManagedObjectReference{Type: "Folder", Value: "root"})
	ref := types.ManagedObjectReference{Type: "VirtualMachine", Value: "vm-1"}
	for _, c := range []struct {
		props []types.DynamicProperty
		want  inventory.VM
	}{
		{nil, inventory.VM{Ref: "vm-1"}},
		{[]types.DynamicProperty{{Name: "name", Val: "a%2fb"}, {Name: "config.template", Val: true}}, inventory.VM{Ref: "vm-1", Name: "a/b", Template: true}},
		{[]types.DynamicProperty{{Name: "config.template", Val: false}, {Name: "config.changeTrackingEnabled", Val: true}}, inventory.VM{Ref: "vm-1", ChangeTracking: true}},
		{[]types.DynamicProperty{{Name: "config.firmware", Val: ""}}, inventory.VM{Ref: "vm-1", Firmware: inventory.BIOS}},
		{[]types.DynamicProperty{{Name: "runtime.host", Val: types.ManagedObjectReference{Type: "HostSystem", Value: "host-9"}}}, inventory.VM{Ref: "vm-1", Host: "host-9"}},
		{[]types.DynamicProperty{{Name: "summary.config.numVirtualDisks", Val: int32(-1)}}, inventory.VM{Ref: "vm-1", Disks: []inventory.Disk{}}},
		{[]types.DynamicProperty{{Name: "name", Val: int32(1)}, {Name: "runtime.host", Val: "host-9"}, {Name: "parent", Val: nil}, {Name: "else", Val: "x"}}, inventory.VM{Ref: "vm-1"}},
	} {
		if got := tree.toRollVM(types.ObjectContent{Obj: ref, PropSet: c.props}); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%+v\ngot  %+v\nwant %+v", c.props, got, c.want)
		}
	}
}
