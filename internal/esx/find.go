package esx

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/suggest"
)

// VM finds one VM by its reference, SMBIOS UUID, instance UUID, inventory path or name.
// "folder/name" is enough of the path "/DC/vm/folder/name". Several matches are
// fault.Conflict, and the error lists them. No match is fault.NotFound, with the most
// similar names. A program that has a reference should use VMByRef, because the name of
// a VM may equal the reference of another.
func (s *inventoryReader) VM(ctx context.Context, nameOrRef string) (*inventory.VM, error) {
	vms, err := s.VMs(ctx)
	if err != nil {
		return nil, err
	}
	return findVM(vms, nameOrRef)
}

// findVM is Index.Find for a single search.
func findVM(vms []inventory.VM, what string) (*inventory.VM, error) { return NewIndex(vms).Find(what) }

// Index finds VMs by name, reference, UUID and inventory path. It does not call the
// server, and is safe for concurrent use.
type Index struct {
	vms    []inventory.VM   // VMs in the order of the caller
	called map[string][]int // indexes of vms by name and by reference
	uuids  map[string][]int // indexes of vms by SMBIOS and instance UUID, in lower case
	paths  map[string][]int // indexes of vms by the last element of their inventory path
}

// NewIndex returns an index of the result of Session.VMs. It keeps vms, which the
// caller must not change.
func NewIndex(vms []inventory.VM) *Index {
	x := &Index{vms, map[string][]int{}, map[string][]int{}, map[string][]int{}}
	for i := range vms {
		v := &vms[i]
		addToIndex(x.called, i, v.Name, string(v.Ref))
		addToIndex(x.uuids, i, strings.ToLower(v.UUID), strings.ToLower(v.InstanceUUID))
		addToIndex(x.paths, i, escapeName(v.Name))
	}
	return x
}

// addToIndex adds i to the entries of the keys, once for each key that is not empty.
// Calls must be in ascending order of i.
func addToIndex(index map[string][]int, i int, keys ...string) {
	for _, k := range keys {
		have := index[k]
		if k != "" && (len(have) == 0 || have[len(have)-1] != i) {
			index[k] = append(have, i)
		}
	}
}

// Find finds one VM in the same way as Session.VM.
func (x *Index) Find(what string) (*inventory.VM, error) {
	hits := x.findAll(what)
	switch len(hits) {
	case 1:
		return hits[0], nil
	case 0:
		return nil, notFoundError(x.vms, what)
	}
	return nil, ambiguousError(hits, what)
}

// Refs returns the references of all VMs in the order of the list.
func (x *Index) Refs() []inventory.MoRef {
	refs := make([]inventory.MoRef, len(x.vms))
	for i := range x.vms {
		refs[i] = x.vms[i].Ref
	}
	return refs
}

// isAmbiguous reports whether more than one VM matches.
func (x *Index) isAmbiguous(what string) bool { return len(x.findAll(what)) > 1 }

// findAll returns all VMs that match, in the order of the list.
func (x *Index) findAll(what string) []*inventory.VM {
	if what == "" {
		return nil
	}
	// A VM may match in several ways; Compact below removes duplicates.
	found := slices.Concat(x.called[what], x.uuids[strings.ToLower(what)])
	if at := strings.LastIndexByte(what, '/'); at >= 0 {
		for _, i := range x.paths[what[at+1:]] {
			// The slash in front prevents a match within a folder's name.
			if strings.HasSuffix(inventoryPath(&x.vms[i]), "/"+strings.TrimPrefix(what, "/")) {
				found = append(found, i)
			}
		}
	}
	slices.Sort(found)
	var hits []*inventory.VM
	for _, i := range slices.Compact(found) {
		hits = append(hits, &x.vms[i])
	}
	return hits
}

// inventoryPath returns the VM's path as vSphere writes it.
func inventoryPath(v *inventory.VM) string {
	p := "/" + v.Datacenter + "/vm/"
	if v.Folder != "" {
		p += v.Folder + "/"
	}
	return p + escapeName(v.Name)
}

// ambiguousError returns fault.Conflict with reference, path and UUID of each match.
func ambiguousError(hits []*inventory.VM, what string) error {
	var list []string
	for _, v := range hits {
		list = append(list, fmt.Sprintf("%s (%s, UUID %s)", v.Ref, inventoryPath(v), v.UUID))
	}
	return fault.New(fault.Conflict, "%q fits %d VMs: %s", what, len(hits), strings.Join(list, "; ")).
		WithHint("select one by its reference, inventory path or UUID")
}

// notFoundError returns fault.NotFound with up to three VMs whose names are similar.
func notFoundError(vms []inventory.VM, what string) error {
	err := fault.New(fault.NotFound, "no VM is called %q", what)
	names := make([]string, len(vms))
	for i := range vms {
		names[i] = vms[i].Name
	}
	nearest := suggest.Words(what, names)
	if len(nearest) == 0 {
		return err.WithHint("list the VMs with decamp ls; a user sees only VMs for which it has privileges")
	}
	return err.WithHint("near: %s", strings.Join(nearest, ", "))
}
