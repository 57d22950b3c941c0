package main

import (
	"context"
	"slices"
	"time"

	"github.com/decamp/decamp/internal/doctor"
	hostcheck "github.com/decamp/decamp/internal/doctor/host"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/planfile"
)

// beforehand bounds what the short form takes from a move.
const beforehand = 30 * time.Second

// forewarn tells what the doctor knows of a VM's move that is about to begin, in the short form. It
// keeps nothing from moving: what the move cannot do it refuses by itself.
func (a *app) forewarn(ctx context.Context, d *diagnosis, checks []doctor.Check) {
	ctx, cancel := context.WithTimeout(ctx, beforehand)
	defer cancel()
	a.tellBeforehand(doctor.Examine(ctx, checks, doctor.Options{Short: true}))
}

// diagnoseOne is the diagnosis of one VM that is about to be moved.
func diagnoseOne(w *works, m move, vm *inventory.VM, g ground) *diagnosis {
	d := &diagnosis{move: m, works: w, vms: []inventory.VM{*vm}, beside: true}
	d.narrow(g)
	return d
}

// forewarn tells it of decamp migrate's VM.
func (w *works) forewarn(ctx context.Context, a *app, m move, vm *inventory.VM) {
	g, err := readGround(ctx, w.session)
	if err != nil {
		a.log.Info("not looked at beforehand", "vm", vm.Name, "err", err)
		return
	}
	d := diagnoseOne(w, m, vm, g)
	a.forewarn(ctx, d, d.groups())
}

// forewarn tells it of a host, once, before the first VM of a plan is moved from there. VMs are looked
// at by decamp plan check: there may be thousands.
func (s *planSource) forewarn(ctx context.Context, w *works, o planfile.Options, vm *inventory.VM) {
	if !s.isFirst(vm.Host) {
		return
	}
	g, err := s.stand(ctx)
	if err != nil {
		s.a.log.Info("not looked at beforehand", "host", vm.HostName, "err", err)
		return
	}
	d := diagnoseOne(w, s.moveOf(o), vm, g)
	s.a.forewarn(ctx, d, hostcheck.Checks(d.hostOptions()))
}

// refused are codes of what a move refuses by itself, with what it is about to do.
var refused = []string{"host-connected", "host-ssh", "here-folder", "here-space", "path-route", "path-ports", "path-landing"}

// pressing are findings that are worth stopping for, without those that others tell.
func pressing(found []doctor.Finding, others []string) []doctor.Finding {
	return slices.DeleteFunc(found, func(f doctor.Finding) bool { return f.Status < doctor.Warning || slices.Contains(others, f.Code) })
}

// foundOf is what --json prints of a finding beforehand.
type foundOf struct {
	Finding doctor.Finding `json:"finding"`
}

func (a *app) tellBeforehand(found []doctor.Finding) {
	found = pressing(found, refused)
	for _, f := range found {
		a.log.Info("found beforehand", "code", f.Code, "on", f.On, "seen", f.Seen)
		if a.json {
			_ = a.print(foundOf{f}) // the standard output remembers that it failed
		}
	}
	if !a.json {
		writeFindings(a.err, found, doctor.Warning)
	}
}
