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

// Resolve says which of the VMs the file moves, and how each: those that are named, in the
// order of the file, then those that are only chosen. What it does not find, or finds twice,
// is in the Findings.
func (f *File) Resolve(vms []inventory.VM, names Finder) ([]Move, Findings) {
	r := &resolver{file: f, line: map[inventory.MoRef]int{}}
	for i := range f.VMs {
		r.named(&f.VMs[i], names)
	}
	if !f.Select.IsZero() {
		r.chosen(f.Select.Choose(vms))
	}
	return r.moves, r.found
}

type resolver struct {
	file  *File
	moves []Move
	found Findings
	line  map[inventory.MoRef]int // of the entry that names a VM
}

func (r *resolver) named(entry *VM, names Finder) {
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
	if line, twice := r.line[vm.Ref]; twice {
		r.found = append(r.found, Found("twice", entry.Pos, vm.Name,
			fault.New(fault.Conflict, "two entries are about this VM (%s), the first in line %d", vm.Ref, line).WithHint("keep one of the two")))
		return
	}
	r.line[vm.Ref] = entry.Pos.Line
	r.add(vm, entry.Options, entry.Pos)
}

func (r *resolver) chosen(vms []*inventory.VM) {
	at := r.file.At("select")
	if len(vms) == 0 {
		r.found = append(r.found, Found("select", at, "",
			fault.New(fault.NotFound, "no VM is chosen by: %s", r.file.Select).WithHint("decamp ls lists the VMs; a user sees only those it has privileges on")))
	}
	options := r.file.Defaults
	options.To = nil
	for _, vm := range vms {
		if _, named := r.line[vm.Ref]; !named {
			r.add(vm, options, at)
		}
	}
}

// add decides where a VM is to live: as its entry says, else by its datastore, else by the
// defaults.
func (r *resolver) add(vm *inventory.VM, o Options, at Pos) {
	if o.To == nil {
		if to, ok := r.file.Maps.Datastores[vm.VMX.Datastore]; ok {
			o.To = []Destination{to}
		} else {
			o.To = slices.Clone(r.file.Defaults.To)
		}
	}
	if len(o.To) == 0 {
		r.found = append(r.found, Found("no-destination", at, vm.Name,
			fault.New(fault.Conflict, "it is not said where it is to live: datastore %s is not in maps", vm.VMX.Datastore).
				WithHint("add the datastore to maps: {datastores: …}, or say so in defaults: {to: [dir:/FOLDER]}")))
		return
	}
	r.moves = append(r.moves, Move{VM: vm, Options: o, Pos: at})
}
