package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/server"
)

// followPlan prints the changes of a plan until it ends, and returns its error.
func followPlan(ctx context.Context, out *output, c server.Control, name string) error {
	p, err := c.Plan(ctx, name)
	if err != nil {
		return err
	}
	w := &watcher{out: out, plan: name, seen: map[fleetdb.Key]string{}}
	if !p.State.IsFinal() {
		if err := w.followEvents(ctx, c, p.Rev); err != nil {
			return err
		}
		if p, err = c.Plan(ctx, name); err != nil {
			return err
		}
	}
	withdrawn, err := countWithdrawn(ctx, c, p)
	if err != nil {
		return err
	}
	p.Text = ""
	if out.json {
		if err := out.printJSON(map[string]any{"plan": p}); err != nil {
			return err
		}
	} else {
		writePlan(out, p)
		if withdrawn > 0 {
			fmt.Fprintf(out, "%s withdrawn by command: removed from the target.\n", countOf(withdrawn, "VM"))
		}
	}
	return planError(p, withdrawn)
}

// countWithdrawn returns the number of canceled VMs of p whose withdrawal the user requested.
func countWithdrawn(ctx context.Context, c server.Control, p fleetdb.Plan) (n int, err error) {
	if p.Counts[fleetdb.Canceled] == 0 {
		return 0, nil
	}
	err = server.EachVM(ctx, c, fleetdb.Query{Plan: p.Name, States: []fleetdb.State{fleetdb.Canceled}}, func(vm fleetdb.VM) {
		if vm.Command == fleetdb.Withdraw {
			n++
		}
	})
	return n, err
}

// A watcher prints the changes of one plan. Its methods may be called concurrently.
type watcher struct {
	out  *output
	plan string // name of the plan

	mu   sync.Mutex             // guards seen, and keeps lines whole
	seen map[fleetdb.Key]string // last printed state of each VM
}

// errEnded ends Control.Follow when the plan has ended.
var errEnded = errors.New("the plan has ended")

// followEvents returns when the plan has ended. since is the revision of the first change.
func (w *watcher) followEvents(ctx context.Context, c server.Control, since int64) error {
	ctx, end := context.WithCancel(ctx)
	var summing sync.WaitGroup
	defer summing.Wait()
	defer end()
	summing.Go(func() { w.printSums(ctx, c) })
	err := c.Follow(ctx, since, w.handleChanges)
	if errors.Is(err, errEnded) {
		return nil
	}
	return err
}

// handleChanges prints changes of the plan's VMs. It returns errEnded if the plan has ended.
func (w *watcher) handleChanges(all fleetdb.Changes) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, vm := range all.VMs {
		if vm.Plan == w.plan {
			w.printVM(vm)
		}
	}
	for _, p := range all.Plans {
		if p.Name == w.plan && p.State.IsFinal() {
			return errEnded
		}
	}
	return nil
}

// printVM prints the state of a VM if it differs from the last printed one. Grants of slots are not
// printed, nor the initial waiting state.
func (w *watcher) printVM(vm fleetdb.VM) {
	line := w.stateText(vm)
	before, seen := w.seen[vm.Key]
	if line == before || line == "" {
		return
	}
	w.seen[vm.Key] = line
	switch {
	case w.out.json:
		_ = w.out.printJSON(map[string]any{"vm": vm}) // without a reader there is nothing to do
	case !seen && vm.State == fleetdb.Queued:
	default:
		fmt.Fprintf(w.out.screen, "%s: %s\n", printable(vm.Name), printable(line))
	}
}

// stepTexts are the steps that are printed. Other steps follow from them, or are short.
var stepTexts = map[string]string{
	"preflight": "begins", "prepare": "begins", "copy": "is copied", "verify": "is read back and verified",
	"wait": "waits for the next round, or the cutover", "power off": "is shut down for the cutover",
}

// stateText returns the state of a VM as text; empty if it is not printed.
func (w *watcher) stateText(vm fleetdb.VM) string {
	switch vm.State {
	case fleetdb.Queued:
		if vm.Failure != nil {
			return "will be retried: " + fault.OneLine(vm.Failure.Text)
		}
		return "waits"
	case fleetdb.Assigned, fleetdb.Running:
		if vm.WaitReason != "" {
			return vm.Step + ": " + fault.OneLine(vm.WaitReason)
		}
		return stepTexts[vm.Step]
	case fleetdb.Stranded:
		return fault.OneLine(vm.WaitReason)
	case fleetdb.Failed:
		if vm.Failure != nil {
			return "failed: " + fault.OneLine(vm.Failure.Text)
		}
	}
	return string(vm.State)
}

// sumInterval is the time between summaries of the plan.
const sumInterval = 10 * time.Second

// printSums prints the progress of the plan at intervals until ctx ends. Errors are ignored: Follow
// reports them if they persist.
func (w *watcher) printSums(ctx context.Context, c server.Control) {
	tick := time.NewTicker(sumInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		p, err := c.Plan(ctx, w.plan)
		if err != nil {
			continue // Follow reports it if it persists
		}
		progress, err := c.Progress(ctx, w.plan)
		if err != nil {
			continue
		}
		w.printSum(p, progress)
	}
}

// printSum prints the number of VMs by state, the rate and the limit.
func (w *watcher) printSum(p fleetdb.Plan, progress []fleetdb.Progress) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := p.Counts
	if w.out.json {
		sum := map[string]any{"counts": n, "rate": rateOf(progress, p.Name)}
		if limit := fleetdb.BusyOf(progress).Limit(); limit.What != "" {
			sum["limit"] = limit
		}
		_ = w.out.printJSON(sum)
		return
	}
	fmt.Fprintf(w.out.screen, "%s: %d of %s done, %d running, %d waiting, %d failed, %s\n", p.Name, n[fleetdb.Done], countOf(totalOf(n), "VM"),
		runningCount(n), waitingCount(n), n[fleetdb.Failed], rateText(rateOf(progress, p.Name), time.Second))
	if limit := fleetdb.BusyOf(progress).Limit(); limit.What != "" {
		fmt.Fprintf(w.out.screen, "%s: %s\n", p.Name, limit)
	}
}
