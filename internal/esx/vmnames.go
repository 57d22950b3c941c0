package esx

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/inventory"
)

// nameProps are all that VMs are called by, beside their references.
var nameProps = []string{"name", "config.uuid", "config.instanceUuid", "parent", "parentVApp"}

// Names lists all VMs by as much as tells which of them the words mean: by their names, and by
// UUIDs and places only where a word may be one. Of thousands that takes a vCenter a small part
// of the time that Roll does. Where a word fits several VMs all have what tells them apart.
func (s *inventoryReader) Names(ctx context.Context, words []string) (*Index, error) {
	props := namePropsFor(words)
	x, err := s.readNames(ctx, props)
	if err == nil && len(props) < len(nameProps) && slices.ContainsFunc(words, x.isAmbiguous) {
		x, err = s.readNames(ctx, nameProps)
	}
	if err != nil {
		return nil, fmt.Errorf("list VMs of %s: %w", s.end.addr, err)
	}
	return x, nil
}

func (s *inventoryReader) readNames(ctx context.Context, props []string) (*Index, error) {
	t := newTree(s.vim.ServiceContent.RootFolder)
	if slices.Contains(props, "parent") {
		var err error
		if t, err = s.readAllProperties(ctx, rollPlaces, places...); err != nil {
			return nil, err
		}
	}
	var all []inventory.VM
	err := s.eachPage(ctx, "VirtualMachine", props, t.convertLeaves(func(vms []inventory.VM) error {
		all = append(all, vms...)
		return nil
	}))
	return NewIndex(all), err
}

// namePropsFor are those of nameProps that some of the words may be found in.
func namePropsFor(words []string) []string {
	props := nameProps[:1:1]
	if slices.ContainsFunc(words, looksLikeUUID) {
		props = append(props, "config.uuid", "config.instanceUuid")
	}
	if slices.ContainsFunc(words, func(w string) bool { return strings.Contains(w, "/") }) {
		props = append(props, "parent", "parentVApp")
	}
	return props
}

// looksLikeUUID reports whether a word may be a UUID as vSphere writes them, in five groups.
func looksLikeUUID(word string) bool { return len(word) == 36 && strings.Count(word, "-") == 4 }

// convertLeaves makes of a function that is told of VMs one that is told of their leaves.
func (t *tree) convertLeaves(tell func([]inventory.VM) error) func([]types.ObjectContent) error {
	return func(objects []types.ObjectContent) error {
		vms := make([]inventory.VM, len(objects))
		for i, o := range objects {
			if err := sessionEnded(o); err != nil {
				return classify(err)
			}
			vms[i] = t.toRollVM(o)
		}
		return tell(vms)
	}
}
