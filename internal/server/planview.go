package server

import (
	"cmp"
	"context"
	"slices"

	"github.com/decamp/decamp/internal/fleet"
	"github.com/decamp/decamp/internal/fleet/admission"
	"github.com/decamp/decamp/internal/fleetdb"
)

// PlanView is the current state of a plan for a command that follows it: the rows when it began, and the
// changes since. Its methods may not be called concurrently.
type PlanView struct {
	name  string               // name of the plan
	plan  fleetdb.Plan         // last row of the plan, without Text
	vms   []fleetdb.VM         // last rows of its VMs, in the order of the plan
	begun map[fleetdb.Key]bool // whether a worker had the VM before, or Apply returned its beginning
}

// VMChange is a changed VM of a PlanView.
type VMChange struct {
	fleetdb.VM
	Begins bool // the first change that shows the VM at a worker; several changes may arrive as one
}

// OpenPlanView reads a plan with its VMs. Follow must begin at its Rev.
func OpenPlanView(ctx context.Context, c Control, name string) (*PlanView, error) {
	p, err := c.Plan(ctx, name)
	if err != nil {
		return nil, err
	}
	p.Text = ""
	v := &PlanView{name: name, plan: p, begun: map[fleetdb.Key]bool{}}
	err = EachVM(ctx, c, fleetdb.Query{Plan: name}, func(vm fleetdb.VM) {
		v.vms = append(v.vms, vm)
		v.begun[vm.Key] = hasBegun(vm)
	})
	return v, err
}

// hasBegun reports whether a worker has the VM, or had it.
func hasBegun(vm fleetdb.VM) bool {
	return vm.State != fleetdb.Queued && vm.State != fleetdb.Canceled || vm.Step != ""
}

// Rev returns the revision after which changes are to be applied.
func (v *PlanView) Rev() int64 { return v.plan.Rev }

// Name returns the name of the plan. It may be called concurrently.
func (v *PlanView) Name() string { return v.name }

// Plan returns the plan, without Text.
func (v *PlanView) Plan() fleetdb.Plan { return v.plan }

// Apply applies changes, and returns those of the plan's VMs.
func (v *PlanView) Apply(all fleetdb.Changes) (changed []VMChange) {
	for _, vm := range all.VMs {
		if vm.Plan != v.name {
			continue
		}
		v.setVM(vm)
		began := hasBegun(vm)
		// A queued VM with a step continues: it began before, under another process.
		changed = append(changed, VMChange{VM: vm, Begins: began && !v.begun[vm.Key] && vm.State != fleetdb.Queued})
		v.begun[vm.Key] = v.begun[vm.Key] || began
	}
	for _, p := range all.Plans {
		if p.Name == v.name {
			v.plan = p
		}
	}
	return changed
}

// setVM replaces the row of a VM, or adds it in the order of the plan.
func (v *PlanView) setVM(vm fleetdb.VM) {
	i, found := slices.BinarySearchFunc(v.vms, vm.Seq, func(have fleetdb.VM, seq int64) int { return cmp.Compare(have.Seq, seq) })
	if found {
		v.vms[i] = vm
		return
	}
	v.vms = slices.Insert(v.vms, i, vm)
}

// Status returns the status of the plan, with the last reports of its workers. The reasons of the
// scheduler are not in it.
func (v *PlanView) Status(progress []fleetdb.Progress) fleet.Status {
	p := v.plan
	p.Counts = fleetdb.Counts{}
	for _, vm := range v.vms {
		p.Counts[vm.State]++
	}
	return fleet.StatusOf(p, v.vms, progress, admission.Snapshot{})
}
