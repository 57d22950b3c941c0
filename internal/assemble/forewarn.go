package assemble

import (
	"context"
	"slices"
	"time"

	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/inventory"
)

// beforehand bounds what the short form takes from a move.
const beforehand = 30 * time.Second

// Forewarn tells what the doctor knows of a VM's move that is about to begin, in the short form. It
// keeps nothing from moving: what the move cannot do it refuses by itself.
func (a *Assembler) Forewarn(ctx context.Context, d *Diagnosis, checks []doctor.Check) {
	ctx, cancel := context.WithTimeout(ctx, beforehand)
	defer cancel()
	a.tellBeforehand(doctor.Examine(ctx, checks, doctor.Options{Short: true}))
}

// DiagnoseOne is the diagnosis of one VM that is about to be moved.
func DiagnoseOne(w *Parts, m Move, vm *inventory.VM, g Ground) *Diagnosis {
	d := &Diagnosis{Move: m, Parts: w, vms: []inventory.VM{*vm}, beside: true}
	d.narrow(g)
	return d
}

// ForewarnVM tells it of one VM.
func (a *Assembler) ForewarnVM(ctx context.Context, w *Parts, m Move, vm *inventory.VM) {
	g, err := ReadGround(ctx, w.Session)
	if err != nil {
		a.Log.Info("not looked at beforehand", "vm", vm.Name, "err", err)
		return
	}
	d := DiagnoseOne(w, m, vm, g)
	a.Forewarn(ctx, d, d.Groups())
}

// refused are codes of what a move refuses by itself, with what it is about to do.
var refused = []string{"host-connected", "host-ssh", "here-folder", "here-space", "path-route", "path-ports", "path-landing"}

// pressing are findings that are worth stopping for, without those that others tell.
func pressing(found []doctor.Finding, others []string) []doctor.Finding {
	return slices.DeleteFunc(found, func(f doctor.Finding) bool { return f.Status < doctor.Warning || slices.Contains(others, f.Code) })
}

func (a *Assembler) tellBeforehand(found []doctor.Finding) {
	found = pressing(found, refused)
	for _, f := range found {
		a.Log.Info("found beforehand", "code", f.Code, "on", f.On, "seen", f.Seen)
	}
	a.Found(found)
}
