package esx

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// addTagsAndAttributes adds tags and custom attributes to VMs of a vCenter. A failed
// read becomes a warning of the VM. The only error is that of ctx.
func (s *inventoryReader) addTagsAndAttributes(ctx context.Context, t *tree, vms []inventory.VM) error {
	if !s.about.VCenter || len(vms) == 0 {
		return nil
	}
	s.addAttributes(ctx, t.vms, vms)
	s.tagging.AddTags(ctx, vms)
	for i := range vms {
		removeInvalid(&vms[i])
	}
	return ctx.Err()
}

// addAttributes adds the custom attributes whose values are in raw. It reads the names
// of all attributes in one call, or not at all if no VM has a value.
func (s *inventoryReader) addAttributes(ctx context.Context, raw []mo.VirtualMachine, vms []inventory.VM) {
	values := map[inventory.MoRef]map[int32]string{}
	// Most VMs have no custom attributes. The names are only read if one has.
	for i := range raw {
		if v := attributeValues(&raw[i]); len(v) > 0 {
			values[inventory.MoRef(raw[i].Self.Value)] = v
		}
	}
	if len(values) == 0 {
		return
	}
	fields, err := s.attributeFields(ctx)
	for i := range vms {
		has := values[vms[i].Ref]
		switch {
		case has == nil:
		case err != nil:
			vms[i].Warnings = append(vms[i].Warnings, warningOnly(inventory.WarnAttributes,
				fmt.Sprintf("its custom attributes cannot be read, and are not migrated: %v", err), cmp.Or(fault.HintOf(err), "run the same command again")))
		default:
			vms[i].Attributes = attributesByName(fields, has)
		}
	}
}

// attributeValues returns the non-empty values of a VM by the keys of their fields.
// vCenter keeps a removed value as an empty one.
func attributeValues(v *mo.VirtualMachine) map[int32]string {
	values := map[int32]string{}
	for _, c := range v.CustomValue {
		if text, ok := c.(*types.CustomFieldStringValue); ok && text.Value != "" {
			values[text.Key] = text.Value
		}
	}
	return values
}

// attributeFields returns the definitions of all custom attributes. A server without
// the manager has none.
func (s *inventoryReader) attributeFields(ctx context.Context) ([]types.CustomFieldDef, error) {
	at := s.vim.ServiceContent.CustomFieldsManager
	if at == nil {
		return nil, nil
	}
	var m mo.CustomFieldsManager
	if err := s.readProperties(ctx, *at, &m, "field"); err != nil {
		return nil, classify(err)
	}
	return m.Field, nil
}

// attributesByName returns values by the names of their fields. An attribute for VMs
// and one for all types may have the same name: the name of the second gets its key in
// parentheses. Values of removed fields are omitted.
func attributesByName(fields []types.CustomFieldDef, values map[int32]string) map[string]string {
	// The order of the keys determines which of two attributes keeps its name.
	fields = slices.SortedFunc(slices.Values(fields), func(a, b types.CustomFieldDef) int { return cmp.Compare(a.Key, b.Key) })
	out := map[string]string{}
	for _, f := range fields {
		value, has := values[f.Key]
		if !has {
			continue
		}
		name := f.Name
		if _, taken := out[name]; taken {
			name = fmt.Sprintf("%s (%d)", name, f.Key)
		}
		out[name] = value
	}
	return out
}
