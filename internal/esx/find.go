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

// VM looks one VM up by its reference, its SMBIOS or instance UUID, its inventory path
// ("/DC/vm/folder/name"; "folder/name" is enough) or its name. If several fit, the
// error is fault.Conflict and lists them; if none, fault.NotFound with the nearest
// names. Programs that know the reference use VMByRef: a VM may be named like another
// one's reference.
func (s *inventoryReader) VM(ctx context.Context, nameOrRef string) (*inventory.VM, error) {
	vms, err := s.VMs(ctx)
	if err != nil {
		return nil, err
	}
	return findVM(vms, nameOrRef)
}

func findVM(vms []inventory.VM, what string) (*inventory.VM, error) { return NewIndex(vms).Find(what) }

// Index finds VMs by all that they are called, without asking the host for each.
type Index struct {
	vms    []inventory.VM
	called map[string][]int // by name and reference
	uuids  map[string][]int // in lower case
	paths  map[string][]int // by the last element of the inventory path
}

// NewIndex returns the index of what Session.VMs gave. It keeps vms, which must not change.
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

// addToIndex puts i under each of the keys that is not empty, once. It is called with rising i.
func addToIndex(index map[string][]int, i int, keys ...string) {
	for _, k := range keys {
		have := index[k]
		if k != "" && (len(have) == 0 || have[len(have)-1] != i) {
			index[k] = append(have, i)
		}
	}
}

// Find looks one VM up, as Session.VM does.
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

// Refs are those of all VMs, in the order of the list.
func (x *Index) Refs() []inventory.MoRef {
	refs := make([]inventory.MoRef, len(x.vms))
	for i := range x.vms {
		refs[i] = x.vms[i].Ref
	}
	return refs
}

func (x *Index) isAmbiguous(what string) bool { return len(x.findAll(what)) > 1 }

// findAll are the VMs that what names, in the order of the list.
func (x *Index) findAll(what string) []*inventory.VM {
	if what == "" {
		return nil
	}
	found := slices.Concat(x.called[what], x.uuids[strings.ToLower(what)])
	if at := strings.LastIndexByte(what, '/'); at >= 0 {
		for _, i := range x.paths[what[at+1:]] {
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

// inventoryPath is the VM's place as vSphere writes it.
func inventoryPath(v *inventory.VM) string {
	p := "/" + v.Datacenter + "/vm/"
	if v.Folder != "" {
		p += v.Folder + "/"
	}
	return p + escapeName(v.Name)
}

func ambiguousError(hits []*inventory.VM, what string) error {
	var list []string
	for _, v := range hits {
		list = append(list, fmt.Sprintf("%s (%s, UUID %s)", v.Ref, inventoryPath(v), v.UUID))
	}
	return fault.New(fault.Conflict, "%q fits %d VMs: %s", what, len(hits), strings.Join(list, "; ")).
		WithHint("name one by its reference, inventory path or UUID")
}

// notFoundError names up to three VMs whose names are close to what was asked for.
func notFoundError(vms []inventory.VM, what string) error {
	err := fault.New(fault.NotFound, "no VM is called %q", what)
	names := make([]string, len(vms))
	for i := range vms {
		names[i] = vms[i].Name
	}
	nearest := suggest.Words(what, names)
	if len(nearest) == 0 {
		return err.WithHint("decamp ls lists the VMs; a user sees only those it has privileges on")
	}
	return err.WithHint("near: %s", strings.Join(nearest, ", "))
}
