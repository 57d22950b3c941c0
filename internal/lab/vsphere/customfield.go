package vsphere

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"
)

// addAttributes sets the custom attributes of VMs through the API. Each attribute is defined once, for
// VMs.
func (b *builder) addAttributes() error {
	at := b.lab.model.ServiceContent.CustomFieldsManager
	keys := map[string]int32{}
	for ref, m := range b.lab.machines {
		for _, name := range slices.Sorted(maps.Keys(m.spec.Attributes)) {
			if at == nil {
				return errors.New("custom attributes: an ESXi host has none")
			}
			manager := b.reg.Get(*at).(*simulator.CustomFieldsManager)
			if _, defined := keys[name]; !defined {
				res := manager.AddCustomFieldDef(b.ctx, &types.AddCustomFieldDef{This: *at, Name: name, MoType: "VirtualMachine"})
				if err := faultOf(res); err != nil {
					return fmt.Errorf("custom attribute %q: %w", name, err)
				}
				keys[name] = res.(*methods.AddCustomFieldDefBody).Res.Returnval.Key
			}
			res := manager.SetField(b.ctx, &types.SetField{This: *at, Entity: ref, Key: keys[name], Value: m.spec.Attributes[name]})
			if err := faultOf(res); err != nil {
				return fmt.Errorf("custom attribute %q: %w", name, err)
			}
		}
	}
	return nil
}
