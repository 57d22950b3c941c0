package esx

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/inventory"
)

// nameProps lists the properties, other than the reference, that identify a VM.
var nameProps = []string{"name", "config.uuid", "config.instanceUuid", "parent", "parentVApp"}

// Names lists all VMs with the properties that are needed to find the VMs that words
// denote. It reads UUIDs and folders only if a word may be a UUID or path. For
// thousands of VMs it is much faster than ListVMs. If a word matches several VMs, it reads
// all properties, so that an error can distinguish the matches.
func (s *inventoryReader) Names(ctx context.Context, words []string) (*Index, error) {
	props := namePropsFor(words)
	x, err := s.readNames(ctx, props)
	// UUIDs and folders distinguish the matches in the error message.
	if err == nil && len(props) < len(nameProps) && slices.ContainsFunc(words, x.isAmbiguous) {
		x, err = s.readNames(ctx, nameProps)
	}
	if err != nil {
		return nil, fmt.Errorf("list VMs of %s: %w", s.end.addr, err)
	}
	return x, nil
}

// readNames reads the properties of all VMs and indexes them. Folders are read only if
// props contains the parent.
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

// namePropsFor returns those of nameProps that may match one of the words.
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

// looksLikeUUID reports whether a word may be a UUID: 36 characters in five groups.
func looksLikeUUID(word string) bool { return len(word) == 36 && strings.Count(word, "-") == 4 }

// convertLeaves returns a function that converts the properties of VMs to VMs and calls
// tell with them.
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
