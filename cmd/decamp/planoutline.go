package main

import (
	"context"
	"fmt"
	"io"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/preflight"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/transport/https"
)

// outlines are what the VMs of a plan would be defined as. Nil: nobody asked for them.
type outlines struct {
	of  []*outlinedVM
	by  map[inventory.MoRef]*outlinedVM
	all *assemble.SourceParts
	a   *app
}

// outlinedVM is a VM of the plan, on its way to all of its destinations.
type outlinedVM struct {
	dryRunReport
	def targets.Definition
}

// newOutlines collects what rig's places would make of VMs.
func (a *app) newOutlines(p *assemble.SourceParts, f *planfile.File, rig *preflight.Rig) *outlines {
	p.Reader = https.New(p.Session, https.Options{MaxConnections: f.Defaults.Connections, Log: a.Log})
	o := &outlines{by: map[inventory.MoRef]*outlinedVM{}, all: p, a: a}
	rig.Settled = o.add
	return o
}

// add is told what a place said of a VM.
func (o *outlines) add(ctx context.Context, m planfile.Move, to planfile.Destination, p preflight.Place, refused error) {
	at, ok := p.(assemble.Resident)
	if !ok {
		return
	}
	vm := o.by[m.VM.Ref]
	if vm == nil {
		vm = &outlinedVM{}
		vm.def, vm.dryRunReport = o.a.defined(ctx, o.all.Parts, m.VM, m.Options)
		o.of, o.by[m.VM.Ref] = append(o.of, vm), vm
	}
	out, err := outlineAt(to, at, vm.def)
	if err == nil {
		err = refused
	}
	out.err, out.Failure = err, plan.FailureOf(err)
	vm.Destinations = append(vm.Destinations, out)
}

// reports are those of all VMs, in the order of the plan.
func (o *outlines) reports() []dryRunReport {
	if o == nil {
		return nil
	}
	all := []dryRunReport{}
	for _, vm := range o.of {
		all = append(all, vm.dryRunReport)
	}
	return all
}

// write prints them; what stands in the way is among the findings.
func (o *outlines) write(w io.Writer) {
	if o == nil {
		return
	}
	fmt.Fprintln(w)
	for _, vm := range o.of {
		vm.write(w, vm.def.VM)
	}
}
