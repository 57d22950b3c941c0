package server

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleet"
	"github.com/decamp/decamp/internal/fleet/admission"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/journal"
)

// SplitName splits PLAN/VM. vm is "" if name has no slash; names of plans contain none.
func SplitName(name string) (plan, vm string) {
	plan, vm, _ = strings.Cut(name, "/")
	return plan, vm
}

// ResolveName splits a name that is a PLAN or a PLAN/VM. A name without a slash that is not a plan's is
// the id of a run: isRun is true.
func ResolveName(ctx context.Context, c Control, name string) (plan, vm string, isRun bool, err error) {
	plan, vm = SplitName(name)
	_, err = c.Plan(ctx, plan)
	if vm == "" && fault.Is(err, fault.NotFound) {
		return "", "", true, nil
	}
	return plan, vm, false, err
}

// FindVM returns the VM of a plan by its reference, name or run. An ambiguous name is fault.Conflict.
func FindVM(ctx context.Context, c Control, plan, what string) (fleetdb.VM, error) {
	if vm, err := c.VM(ctx, fleetdb.Key{Plan: plan, VM: what}); err == nil || !fault.Is(err, fault.NotFound) {
		return vm, err
	}
	var hits []fleetdb.VM
	err := EachVM(ctx, c, fleetdb.Query{Plan: plan}, func(vm fleetdb.VM) {
		if strings.EqualFold(vm.Name, what) || slices.Contains(vm.Runs, what) {
			hits = append(hits, vm)
		}
	})
	switch {
	case err != nil:
		return fleetdb.VM{}, err
	case len(hits) == 0:
		return fleetdb.VM{}, fault.New(fault.NotFound, "plan %s has no VM %q", plan, what).WithHint("decamp status %s --all lists them", plan)
	case len(hits) > 1:
		var refs []string
		for _, vm := range hits {
			refs = append(refs, vm.Name+" is "+plan+"/"+vm.VM)
		}
		return fleetdb.VM{}, fault.New(fault.Conflict, "%d VMs are called %q: %s", len(hits), what, strings.Join(refs, "; ")).WithHint("name it by its reference")
	}
	return hits[0], nil
}

// ResolveRun returns the run that RUN or PLAN/VM names. A VM with several runs is ambiguous.
func ResolveRun(ctx context.Context, c Control, name string) (journal.ID, error) {
	planName, vmName, isRun, err := ResolveName(ctx, c, name)
	switch {
	case err != nil:
		return "", err
	case isRun:
		return journal.ID(name), nil
	case vmName == "":
		return "", fault.New(fault.Invalid, "%s is a plan: want PLAN/VM", planName).WithHint("list its VMs with decamp status %s --all", fault.Quote(planName))
	}
	vm, err := FindVM(ctx, c, planName, vmName)
	switch {
	case err != nil:
		return "", err
	case len(vm.Runs) == 0:
		return "", fault.New(fault.NotFound, "VM %s is not published", vm.Name).WithHint("see its state with decamp status %s", fault.Quote(planName))
	case len(vm.Runs) > 1:
		return "", fault.New(fault.Conflict, "VM %s was migrated to %d destinations", vm.Name, len(vm.Runs)).WithHint("name one of its runs: %s", strings.Join(vm.Runs, ", "))
	}
	return journal.ID(vm.Runs[0]), nil
}

// vmPage is how many VMs one request returns.
const vmPage = 1000

// EachVM calls do for all VMs of a query, in the order of their plan. It reads them page by page.
func EachVM(ctx context.Context, c Control, q fleetdb.Query, do func(fleetdb.VM)) error {
	for q.Limit = vmPage; ; {
		vms, err := c.VMs(ctx, q)
		if err != nil {
			return err
		}
		for _, vm := range vms {
			do(vm)
			q.After = vm.Seq
		}
		if len(vms) < q.Limit {
			return nil
		}
	}
}

// VMOfRun returns the VM of a plan that a run migrates; "" if the run belongs to no plan. It reads all
// VMs.
func VMOfRun(ctx context.Context, c Control, run string) (planName, vm string, err error) {
	plans, err := c.Plans(ctx)
	if err != nil {
		return "", "", err
	}
	for _, p := range plans {
		err := EachVM(ctx, c, fleetdb.Query{Plan: p.Name}, func(v fleetdb.VM) {
			if slices.Contains(v.Runs, run) {
				planName, vm = v.Plan, v.VM
			}
		})
		if err != nil || planName != "" {
			return planName, vm, err
		}
	}
	return "", "", nil
}

// SchedulerStateOf returns the scheduler's explanations of waits. The scheduler state is empty if no scheduler runs.
func SchedulerStateOf(ctx context.Context, c Control) (b admission.Snapshot) {
	text, at, err := c.SchedulerState(ctx)
	if err != nil || time.Since(at) > staleState || json.Unmarshal(text, &b) != nil {
		return admission.Snapshot{}
	}
	return b
}

// staleState is the age after which a state counts as one without a scheduler. The database's clock may
// differ from ours.
const staleState = time.Minute

// StatusOf returns the progress of a plan with its VMs.
func StatusOf(ctx context.Context, c Control, name string) (s fleet.Status, err error) {
	p, err := c.Plan(ctx, name)
	if err != nil {
		return s, err
	}
	progress, err := c.Progress(ctx, name)
	if err != nil {
		return s, err
	}
	var vms []fleetdb.VM
	err = EachVM(ctx, c, fleetdb.Query{Plan: name}, func(vm fleetdb.VM) { vms = append(vms, vm) })
	return fleet.StatusOf(p, vms, progress, SchedulerStateOf(ctx, c)), err
}
