package planfile

import (
	"slices"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// Finder looks VMs up by what people call them. esx.Index is one.
type Finder interface {
	Find(what string) (*inventory.VM, error)
}

// Resolve returns the VMs that the file selects, with their options: named VMs in the order of the
// file, then VMs that are only selected. Missing and ambiguous names are in the Findings.
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

// Called returns the words by which the file identifies VMs: names and UUIDs.
func (f *File) Called() []string {
	var words []string
	for i := range f.VMs {
		words = append(words, string(f.VMs[i].VM), string(f.VMs[i].UUID))
	}
	return words
}

// A Resolver decides for one VM after the other whether the file selects it, and with which options:
// for lists that arrive in parts. It is called for each VM once.
type Resolver struct {
	file    *File
	named   []*inventory.VM // named VMs with their known properties, in the order of the file
	entries map[inventory.MoRef]*VM
	visited   map[inventory.MoRef]bool // VMs that were named
	selected  int
	found   Findings
}

// Resolver looks up the VMs that the file names. Of those only reference, UUID and name need be
// known yet.
func (f *File) Resolver(names Finder) *Resolver {
	r := &Resolver{file: f, entries: map[inventory.MoRef]*VM{}, visited: map[inventory.MoRef]bool{}}
	for i := range f.VMs {
		r.addEntry(&f.VMs[i], names)
	}
	return r
}

func (r *Resolver) addEntry(entry *VM, names Finder) {
	vm, err := names.Find(string(entry.VM))
	if err != nil {
		r.found = append(r.found, Found("vm", entry.Pos, "", err))
		return
	}
	if entry.UUID != "" && string(entry.UUID) != vm.UUID {
		r.found = append(r.found, Found("other-vm", entry.Pos, vm.Name,
			fault.New(fault.Conflict, "it has the UUID %s, and the plan means %s: the name or reference is another VM's now", vm.UUID, entry.UUID).
				WithHint("look for the UUID with decamp ls, and correct the entry")))
		return
	}
	if before, twice := r.entries[vm.Ref]; twice {
		r.found = append(r.found, Found("twice", entry.Pos, vm.Name,
			fault.New(fault.Conflict, "two entries are about this VM (%s), the first in line %d", vm.Ref, before.Pos.Line).WithHint("keep one of the two")))
		return
	}
	r.named, r.entries[vm.Ref] = append(r.named, vm), entry
}

// Named returns the VMs that the file names, in its order, with their known properties.
func (r *Resolver) Named() []*inventory.VM { return r.named }

// Move returns how the file moves a VM; false if it does not.
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

func (r *Resolver) appendMove(moves []Move, vm *inventory.VM) []Move {
	if m, ok := r.Move(vm); ok {
		return append(moves, m)
	}
	return moves
}

// End returns all that was found, once every VM was asked for. Who is named and was not asked for is
// gone since its name was looked up.
func (r *Resolver) End() Findings {
	for _, vm := range r.named {
		if !r.visited[vm.Ref] {
			r.found = append(r.found, Found("vm", r.entries[vm.Ref].Pos, vm.Name,
				fault.New(fault.NotFound, "it was removed while the VMs were listed").WithHint("decamp ls lists the VMs")))
		}
	}
	if !r.file.Select.IsZero() && r.selected == 0 {
		r.found = append(r.found, Found("select", r.file.At("select"), "",
			fault.New(fault.NotFound, "no VM is chosen by: %s", r.file.Select).WithHint("decamp ls lists the VMs; a user sees only those it has privileges on")))
	}
	return r.found
}

// resolveDestination decides the destination of a VM: that of its entry, else by its datastore, else that of the
// defaults.
func (r *Resolver) resolveDestination(vm *inventory.VM, o Options, at Pos) (Move, bool) {
	if o.To == nil {
		if to, ok := r.file.Maps.Datastores[vm.VMX.Datastore]; ok {
			o.To = []Destination{to}
		} else {
			o.To = slices.Clone(r.file.Defaults.To)
		}
	}
	if len(o.To) == 0 {
		r.found = append(r.found, Found("no-destination", at, vm.Name,
			fault.New(fault.Conflict, "it has no destination: datastore %s is not in maps", vm.VMX.Datastore).
				WithHint("add the datastore to maps: {datastores: …}, or say so in defaults: {to: [dir:/FOLDER]}")))
		return Move{}, false
	}
	return Move{VM: vm, Options: o, Pos: at}, true
}
