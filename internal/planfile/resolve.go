package planfile

import (
	"slices"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// Finder looks up VMs by the words that users write. esx.Index implements it.
type Finder interface {
	// Find returns the VM with a name, reference, UUID or inventory path. It fails for an unknown name, or
	// more than one.
	Find(what string) (*inventory.VM, error)
}

// Resolve returns the VMs that the file selects, with their options: first named VMs in the order of
// the file, then VMs that match only the selection. Missing and ambiguous names are in the Findings.
func (f *File) Resolve(vms []inventory.VM, names Finder) ([]Move, Findings) {
	r := f.Resolver(names)
	var moves []Move
	for _, vm := range r.named {
		moves = r.appendMove(moves, vm)
	}
	for i := range vms {
		if _, named := r.entries[vms[i].Ref]; !named {
			moves = r.appendMove(moves, &vms[i])
		}
	}
	return moves, r.End()
}

// Identifiers returns the words by which the file identifies VMs: names and UUIDs.
func (f *File) Identifiers() []string {
	var words []string
	for i := range f.VMs {
		words = append(words, string(f.VMs[i].VM), string(f.VMs[i].UUID))
	}
	return words
}

// A Resolver decides for each VM whether the file selects it, and with which options. It serves lists
// that arrive in parts. Move must be called once for each VM, then End. A Resolver is not safe for
// concurrent use.
type Resolver struct {
	file     *File                    // the plan
	named    []*inventory.VM          // named VMs with the properties that the Finder knows, in the order of the file
	entries  map[inventory.MoRef]*VM  // entries of named VMs
	visited  map[inventory.MoRef]bool // named VMs that Move was called for
	selected int                      // number of VMs that match the selection
	found    Findings                 // findings so far
}

// Resolver looks up the VMs that the file names. The Finder needs to know only their references, UUIDs
// and names.
func (f *File) Resolver(names Finder) *Resolver {
	r := &Resolver{file: f, entries: map[inventory.MoRef]*VM{}, visited: map[inventory.MoRef]bool{}}
	for i := range f.VMs {
		r.addEntry(&f.VMs[i], names)
	}
	return r
}

// addEntry looks up the VM of an entry. It reports a missing VM, a UUID that differs from the entry's,
// and a second entry for the same VM.
func (r *Resolver) addEntry(entry *VM, names Finder) {
	vm, err := names.Find(string(entry.VM))
	if err != nil {
		r.found = append(r.found, ErrorFinding("vm", entry.Pos, "", err))
		return
	}
	if entry.UUID != "" && string(entry.UUID) != vm.UUID {
		r.found = append(r.found, ErrorFinding("other-vm", entry.Pos, vm.Name,
			fault.New(fault.Conflict, "its UUID is %s, and the plan has %s: the name or reference now belongs to another VM", vm.UUID, entry.UUID).
				WithHint("find the VM with decamp ls, and correct the entry")))
		return
	}
	if before, twice := r.entries[vm.Ref]; twice {
		r.found = append(r.found, ErrorFinding("twice", entry.Pos, vm.Name,
			fault.New(fault.Conflict, "two entries name this VM (%s), the first in line %d", vm.Ref, before.Pos.Line).WithHint("keep one of the two")))
		return
	}
	r.named, r.entries[vm.Ref] = append(r.named, vm), entry
}

// Named returns the VMs that the file names, in its order, with the properties that the Finder knows.
func (r *Resolver) Named() []*inventory.VM { return r.named }

// Move returns the migration of a VM; false if the file does not select it, or if it has no
// destination.
func (r *Resolver) Move(vm *inventory.VM) (Move, bool) {
	chosen := r.file.Select.Match(vm)
	if chosen {
		r.selected++
	}
	if entry, named := r.entries[vm.Ref]; named {
		r.visited[vm.Ref] = true
		return r.resolveDestination(vm, entry.Options, entry.Pos)
	}
	if !chosen {
		return Move{}, false
	}
	o := r.file.Defaults
	o.To = nil
	return r.resolveDestination(vm, o, r.file.At("select"))
}

// appendMove appends the migration of a VM, if there is one.
func (r *Resolver) appendMove(moves []Move, vm *inventory.VM) []Move {
	if m, ok := r.Move(vm); ok {
		return append(moves, m)
	}
	return moves
}

// End returns all findings after the last Move. A named VM without a Move was removed since it was
// looked up.
func (r *Resolver) End() Findings {
	for _, vm := range r.named {
		if !r.visited[vm.Ref] {
			r.found = append(r.found, ErrorFinding("vm", r.entries[vm.Ref].Pos, vm.Name,
				fault.New(fault.NotFound, "it was removed while the VMs were listed").WithHint("decamp ls lists the VMs")))
		}
	}
	if !r.file.Select.IsZero() && r.selected == 0 {
		r.found = append(r.found, ErrorFinding("select", r.file.At("select"), "",
			fault.New(fault.NotFound, "the selection matches no VM: %s", r.file.Select).WithHint("decamp ls lists the VMs; a user sees only those it has privileges on")))
	}
	return r.found
}

// resolveDestination sets the destination of a VM: that of its entry, or of its datastore, or of the
// defaults. It returns false, and adds a finding, without a destination.
func (r *Resolver) resolveDestination(vm *inventory.VM, o Options, at Pos) (Move, bool) {
	if o.To == nil {
		if to, ok := r.file.Maps.Datastores[vm.VMX.Datastore]; ok {
			o.To = []Destination{to}
		} else {
			o.To = slices.Clone(r.file.Defaults.To)
		}
	}
	if len(o.To) == 0 {
		r.found = append(r.found, ErrorFinding("no-destination", at, vm.Name,
			fault.New(fault.Conflict, "it has no destination: datastore %s is not in maps", vm.VMX.Datastore).
				WithHint("add the datastore to maps: {datastores: …}, or set a destination in defaults: {to: [dir:/FOLDER]}")))
		return Move{}, false
	}
	return Move{VM: vm, Options: o, Pos: at}, true
}
