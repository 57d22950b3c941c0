package esx

import (
	"context"
	"fmt"
	"slices"

	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// vmPage is the number of VMs per page of EachVM. A description takes about 10 kB, and
// a busy server needs one to two milliseconds for it.
const vmPage = 100

// EachVM calls tell with descriptions of VMs, page by page, in the order of refs. The
// caller can process the first page before the last is read. VMs that no longer exist
// are omitted. Duplicate names get no warning.
func (s *inventoryReader) EachVM(ctx context.Context, refs []inventory.MoRef, tell func([]inventory.VM) error) error {
	t, err := s.readAll(ctx, s.relatedKinds()...)
	if err != nil {
		return fmt.Errorf("list VMs of %s: %w", s.end.addr, err)
	}
	for page := range slices.Chunk(refs, vmPage) {
		vms, err := s.readPage(ctx, page)
		if err != nil {
			return fmt.Errorf("list VMs of %s: %w", s.end.addr, err)
		}
		t.vms = vms.vms
		if err := s.sendWithTags(ctx, t, tell); err != nil {
			return err
		}
	}
	return nil
}

// sendWithTags describes the VMs of t, adds tags and custom attributes, and calls tell.
func (s *inventoryReader) sendWithTags(ctx context.Context, t *tree, tell func([]inventory.VM) error) error {
	vms := t.describeVMs(nil)
	if err := s.addTagsAndAttributes(ctx, t, vms); err != nil {
		return err
	}
	return tell(vms)
}

// readPage reads VMs. If one of them no longer exists, the server fails the whole call.
// The VMs are then read one by one, and the removed one is omitted.
func (s *inventoryReader) readPage(ctx context.Context, refs []inventory.MoRef) (*tree, error) {
	t, err := s.readVMs(ctx, nil, refs...)
	// The only VM of this page no longer exists: the page is empty.
	if len(refs) == 1 && fault.Is(err, fault.NotFound) {
		return newTree(s.vim.ServiceContent.RootFolder), nil
	}
	if !fault.Is(err, fault.NotFound) {
		return t, err
	}
	all := newTree(s.vim.ServiceContent.RootFolder)
	for _, ref := range refs {
		one, err := s.readPage(ctx, []inventory.MoRef{ref})
		if err != nil {
			return nil, err
		}
		all.vms = append(all.vms, one.vms...)
	}
	return all, nil
}

// VMByRef returns the VM with that reference, or fault.NotFound. It reads this VM only,
// so its cost does not depend on the size of the inventory. A duplicate name gets no
// warning.
func (s *inventoryReader) VMByRef(ctx context.Context, ref inventory.MoRef) (*inventory.VM, error) {
	t, vms, err := s.byRef(ctx, ref)
	if err != nil {
		return nil, err
	}
	return &vms[0], s.addTagsAndAttributes(ctx, t, vms)
}

// BareVM is VMByRef without tags and custom attributes, in one call. It is for callers
// that poll the state of a VM.
func (s *inventoryReader) BareVM(ctx context.Context, ref inventory.MoRef) (*inventory.VM, error) {
	_, vms, err := s.byRef(ctx, ref)
	if err != nil {
		return nil, err
	}
	return &vms[0], nil
}

// byRef reads one VM with its related objects: host, datastores, networks and folders.
// The returned list has one VM if err is nil. A reference without a VM is
// fault.NotFound.
func (s *inventoryReader) byRef(ctx context.Context, ref inventory.MoRef) (*tree, []inventory.VM, error) {
	t, err := s.readVMs(ctx, vmTraversal, ref)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return nil, nil, fmt.Errorf("read VM %s of %s: %w", ref, s.end.addr, err)
	}
	if err != nil || len(t.vms) == 0 {
		return nil, nil, fault.New(fault.NotFound, "no VM has the reference %s", ref).
			WithHint("it was removed, or registered again under another reference: decamp ls")
	}
	return t, t.describeVMs(nil), nil
}

// readVMs reads VMs and the related objects that path leads to. It returns
// fault.NotFound if one of the VMs no longer exists. If the session ended, it logs in
// and reads again.
func (s *inventoryReader) readVMs(ctx context.Context, path []types.BaseSelectionSpec, refs ...inventory.MoRef) (*tree, error) {
	var spec types.PropertyFilterSpec
	for _, ref := range refs {
		vm := types.ManagedObjectReference{Type: "VirtualMachine", Value: string(ref)}
		spec.ObjectSet = append(spec.ObjectSet, types.ObjectSpec{Obj: vm, SelectSet: path})
	}
	for _, kind := range append([]string{"VirtualMachine"}, s.relatedKinds()...) {
		spec.PropSet = append(spec.PropSet, types.PropertySpec{Type: kind, PathSet: wanted[kind]})
	}
	// The cookie is read before the call, as in readProperties.
	seen := s.pass.get()
	t, err := s.readTree(ctx, spec)
	if !isSessionEnded(err) { // some servers tell it in the answer, where RoundTrip does not see it
		return t, err
	}
	if err := s.renewSession(ctx, seen); err != nil {
		return nil, err
	}
	return s.readTree(ctx, spec)
}

// vmTraversal leads from a VM to its host, datastores and networks, and from each of
// them to the root.
var vmTraversal = []types.BaseSelectionSpec{
	traversal("VirtualMachine", "runtime.host"), traversal("VirtualMachine", "datastore"), traversal("VirtualMachine", "network"),
	traversal("VirtualMachine", "parent"), traversal("VirtualMachine", "parentVApp"),
	&types.TraversalSpec{
		SelectionSpec: types.SelectionSpec{Name: "up"}, Type: "ManagedEntity", Path: "parent",
		SelectSet: []types.BaseSelectionSpec{&types.SelectionSpec{Name: "up"}, &types.SelectionSpec{Name: "out"}},
	},
	&types.TraversalSpec{ // a VirtualApp's parent is a resource pool, of no inventory path
		SelectionSpec: types.SelectionSpec{Name: "out"}, Type: "VirtualApp", Path: "parentFolder",
		SelectSet: []types.BaseSelectionSpec{&types.SelectionSpec{Name: "up"}},
	},
}

// traversal returns the step from objects of a type along one property, and on to their
// parents.
func traversal(kind, path string) *types.TraversalSpec {
	return &types.TraversalSpec{Type: kind, Path: path, SelectSet: []types.BaseSelectionSpec{
		&types.SelectionSpec{Name: "up"}, &types.SelectionSpec{Name: "out"},
	}}
}
