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

// followPlan prints the events of a plan until it ends, and returns its error.
func followPlan(ctx context.Context, out *output, c server.Control, name string) error {
	p, err := c.Plan(ctx, name)
	if err != nil {
		return err
	}
	w := &watcher{out: out, plan: name, seen: map[fleetdb.Key]string{}}
	if !p.State.Over() {
		if err := w.followEvents(ctx, c, p.Rev); err != nil {
			return err
		}
		if p, err = c.Plan(ctx, name); err != nil {
			return err
		}
	}
	p.Text = ""
	if out.json {
		if err := out.printJSON(map[string]any{"plan": p}); err != nil {
			return err
		}
	} else {
		writePlan(out, p)
	}
	return planError(p)
}

// watcher prints the changes of a plan for users or programs.
type watcher struct {
	out  *output
	plan string

	mu   sync.Mutex
	seen map[fleetdb.Key]string // last printed state of each VM
}

// errEnded ends a Follow: the plan has ended.
var errEnded = errors.New("the plan has ended")

// followEvents returns when the plan has ended.
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

func (w *watcher) handleChanges(all fleetdb.Changes) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, vm := range all.VMs {
		if vm.Plan == w.plan {
			w.printVM(vm)
		}
	}
	for _, p := range all.Plans {
		if p.Name == w.plan && p.State.Over() {
			return errEnded
		}
	}
	return nil
}

// printVM prints the relevant changes of a VM, without the grants of slots.
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

// told are the printed steps: the others follow from them, or take no time.
var stepTexts = map[string]string{
	"preflight": "begins", "prepare": "begins", "copy": "is copied", "verify": "is read back and verified",
	"wait": "waits for the next round, or the cutover", "power off": "is shut down for the cutover",
}

func (w *watcher) stateText(vm fleetdb.VM) string {
	switch vm.State {
	case fleetdb.Queued:
		if vm.Failure != nil {
			return "will be retried: " + fault.OneLine(vm.Failure.Text)
		}
		return "waits"
	case fleetdb.Assigned, fleetdb.Running:
		if vm.Waits != "" {
			return vm.Step + ": " + fault.OneLine(vm.Waits)
		}
		return stepTexts[vm.Step]
	case fleetdb.Stranded:
		return fault.OneLine(vm.Waits)
	case fleetdb.Failed:
		if vm.Failure != nil {
			return "failed: " + fault.OneLine(vm.Failure.Text)
		}
	}
	return string(vm.State)
}

// sumInterval is how often the whole plan is summed up.
const sumInterval = 10 * time.Second

// printSums prints the progress of the plan at intervals.
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
