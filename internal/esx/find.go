package esx

import (
	"context"
	"fmt"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/near"
)

// VM looks one VM up by its reference, its SMBIOS or instance UUID, its inventory path
// ("/DC/vm/folder/name"; "folder/name" is enough) or its name. If several fit, the
// error is fault.Conflict and lists them; if none, fault.NotFound with the nearest
// names. Programs that know the reference use VMByRef: a VM may be named like another
// one's reference.
func (s *Session) VM(ctx context.Context, nameOrRef string) (*inventory.VM, error) {
	vms, err := s.VMs(ctx)
	if err != nil {
		return nil, err
	}
	return find(vms, nameOrRef)
}

// VMByRef returns the VM with that reference, or fault.NotFound.
func (s *Session) VMByRef(ctx context.Context, ref inventory.MoRef) (*inventory.VM, error) {
	vms, err := s.VMs(ctx)
	if err != nil {
		return nil, err
	}
	for i := range vms {
		if vms[i].Ref == ref {
			return &vms[i], nil
		}
	}
	return nil, fault.New(fault.NotFound, "no VM has the reference %s", ref).
		WithHint("it was removed, or registered anew under another one: decamp ls")
}

func find(vms []inventory.VM, what string) (*inventory.VM, error) {
	var hits []*inventory.VM
	for i := range vms {
		if isCalled(&vms[i], what) {
			hits = append(hits, &vms[i])
		}
	}
	switch len(hits) {
	case 1:
		return hits[0], nil
	case 0:
		return nil, notFound(vms, what)
	}
	return nil, ambiguous(hits, what)
}

// isCalled reports whether what names the VM in one of the ways that VM documents.
func isCalled(v *inventory.VM, what string) bool {
	switch {
	case what == "":
		return false
	case what == string(v.Ref), what == v.Name:
		return true
	case strings.EqualFold(what, v.UUID), strings.EqualFold(what, v.InstanceUUID):
		return true
	}
	return strings.Contains(what, "/") && strings.HasSuffix(inventoryPath(v), "/"+strings.TrimPrefix(what, "/"))
}

// inventoryPath is the VM's place as vSphere writes it.
func inventoryPath(v *inventory.VM) string {
	p := "/" + v.Datacenter + "/vm/"
	if v.Folder != "" {
		p += v.Folder + "/"
	}
	return p + escapeName(v.Name)
}

func ambiguous(hits []*inventory.VM, what string) error {
	var list []string
	for _, v := range hits {
		list = append(list, fmt.Sprintf("%s (%s, UUID %s)", v.Ref, inventoryPath(v), v.UUID))
	}
	return fault.New(fault.Conflict, "%q fits %d VMs: %s", what, len(hits), strings.Join(list, "; ")).
		WithHint("name one by its reference, inventory path or UUID")
}

// notFound names up to three VMs whose names are close to what was asked for.
func notFound(vms []inventory.VM, what string) error {
	err := fault.New(fault.NotFound, "no VM is called %q", what)
	names := make([]string, len(vms))
	for i := range vms {
		names[i] = vms[i].Name
	}
	nearest := near.Words(what, names)
	if len(nearest) == 0 {
		return err.WithHint("decamp ls lists the VMs; a user sees only those it has privileges on")
	}
	return err.WithHint("near: %s", strings.Join(nearest, ", "))
}
