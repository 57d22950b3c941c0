package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/bars"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleet"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/progress"
	"github.com/decamp/decamp/internal/server"
	"github.com/decamp/decamp/internal/units"
)

// followPlan prints the changes of a plan until it ends, and returns its error.
func followPlan(ctx context.Context, out *output, c server.Control, name string) error {
	view, err := server.OpenPlanView(ctx, c, name)
	if err != nil {
		return err
	}
	return followView(ctx, out, c, view)
}

// followView is followPlan from a view that was read before.
func followView(ctx context.Context, out *output, c server.Control, view *server.PlanView) error {
	name := view.Name()
	if !view.Plan().State.IsFinal() {
		w := &watcher{out: out, view: view, seen: map[fleetdb.Key]string{}}
		if err := w.followEvents(ctx, c); err != nil {
			if ctx.Err() != nil {
				return fault.New(fault.Canceled, "following plan %s was stopped; the plan continues", name).WithHint("run the same command again to follow it")
			}
			return err
		}
	}
	p, err := c.Plan(ctx, name)
	if err != nil {
		return err
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
			fmt.Fprintf(out, "%s withdrawn by command: removed from the target.\n", units.Count(withdrawn, "VM"))
		}
	}
	return p.Err(withdrawn)
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
	bars *bars.Group // bars on a terminal; nil: lines

	mu   sync.Mutex             // guards the fields below, and keeps lines whole
	view *server.PlanView       // current state of the plan
	seen map[fleetdb.Key]string // last printed state of each VM

	drawn bool // bars have been shown
	sums  int  // sums so far
}

// errEnded ends Control.Follow when the plan has ended.
var errEnded = errors.New("the plan has ended")

// The times between two sums of the plan.
const (
	sumInterval = 10 * time.Second // as lines
	barInterval = time.Second      // as bars
)

// followEvents returns when the plan has ended.
func (w *watcher) followEvents(ctx context.Context, c server.Control) error {
	interval := sumInterval
	if !w.out.json && w.out.screen.IsTerminal() {
		w.bars, interval = bars.NewGroup(w.out.screen.File), barInterval
		w.out.screen.Redirect(w.bars)
		defer w.out.screen.Redirect(nil)
		defer w.bars.Close()
	}
	since := w.view.Rev()
	ctx, end := context.WithCancel(ctx)
	var summing sync.WaitGroup
	defer summing.Wait()
	defer end()
	summing.Go(func() { w.printSums(ctx, c, interval) })
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
	for _, vm := range w.view.Apply(all) {
		if vm.Begins && !w.out.json {
			fmt.Fprintf(w.out.screen, "%s: begins\n", fault.Printable(vm.Name))
		}
		w.printVM(vm.VM)
	}
	if w.view.Plan().State.IsFinal() {
		return errEnded
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
		fmt.Fprintf(w.out.screen, "%s: %s\n", fault.Printable(vm.Name), fault.Printable(line))
	}
}

// stepTexts are the steps that are printed. Other steps follow from them, or are short.
var stepTexts = map[string]string{
	"copy": "the copy begins", "verify": "the verification of the images begins",
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

// printSums prints the progress of the plan at intervals until ctx ends.
func (w *watcher) printSums(ctx context.Context, c server.Control, interval time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		transfers, err := c.Progress(ctx, w.view.Name())
		if err != nil {
			continue // Follow reports it if it persists
		}
		w.printSum(transfers)
	}
}

// printSum prints the number of VMs by state, the rate, the remaining time and the limit.
func (w *watcher) printSum(transfers []fleetdb.Progress) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.view.Status(transfers)
	w.sums++
	switch {
	case w.out.json:
		sum := map[string]any{"counts": s.Plan.Counts, "rate": s.Rate}
		if s.Limit.What != "" {
			sum["limit"] = s.Limit
		}
		_ = w.out.printJSON(sum) // without a reader there is nothing to do
	case w.bars != nil && (w.drawn || isCopying(s)):
		w.drawn = true
		progress.ShowPlan(w.bars, s)
	case w.bars != nil && w.sums%int(sumInterval/barInterval) != 0:
	default:
		for _, line := range progress.PlanLines(s) {
			fmt.Fprintln(w.out.screen, line)
		}
	}
}

// isCopying reports whether a VM has progress. Before, the login may still ask for a password, and bars
// would hide the question.
func isCopying(s fleet.Status) bool {
	return slices.ContainsFunc(s.VMs, func(vm fleet.VMStatus) bool {
		return vm.State == fleetdb.Running && vm.Progress != nil && vm.Progress.Total > 0
	})
}
