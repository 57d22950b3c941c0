package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/bars"
	"github.com/decamp/decamp/internal/bottleneck"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/server"
	"github.com/decamp/decamp/internal/terminal"
	"github.com/decamp/decamp/test/pty"
)

// runningPlan is a plan with running VMs. It ends when final is closed.
type runningPlan struct {
	server.Control
	vms   []fleetdb.VM
	final chan struct{}
}

// newRunningPlan returns a plan of n VMs, which begin when a client follows the plan.
func newRunningPlan(n int) *runningPlan {
	p := &runningPlan{final: make(chan struct{})}
	for i := range n {
		p.vms = append(p.vms, fleetdb.VM{
			Key: fleetdb.Key{Plan: "wave", VM: fmt.Sprintf("vm-%d", i)}, Name: fmt.Sprintf("web%02d", i), Seq: int64(i + 1),
			State: fleetdb.Running, Step: "copy", Bytes: 8 << 30, Rev: 7,
		})
	}
	return p
}

func (p *runningPlan) Plan(context.Context, string) (fleetdb.Plan, error) {
	select {
	case <-p.final:
		return fleetdb.Plan{Name: "wave", State: fleetdb.PlanEnded, Counts: fleetdb.Counts{fleetdb.Done: len(p.vms)}}, nil
	default:
		return fleetdb.Plan{Name: "wave", State: fleetdb.PlanRunning, Rev: 5}, nil
	}
}

func (p *runningPlan) VMs(_ context.Context, q fleetdb.Query) ([]fleetdb.VM, error) {
	queued := slices.Clone(p.vms[min(int(q.After), len(p.vms)):])
	for i := range queued {
		queued[i].State, queued[i].Step = fleetdb.Queued, ""
	}
	return queued, nil
}

func (p *runningPlan) Progress(context.Context, string) (all []fleetdb.Progress, err error) {
	for _, vm := range p.vms {
		all = append(all, fleetdb.Progress{Key: vm.Key, Total: 8 << 30, Done: 2 << 30, Read: 2 << 30, Rate: 100 << 20, Busy: bottleneck.Busy{Source: 1, Target: 0.5}})
	}
	return all, nil
}

func (p *runningPlan) Follow(ctx context.Context, _ int64, handle func(fleetdb.Changes) error) error {
	if err := handle(fleetdb.Changes{VMs: p.vms}); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return fault.New(fault.Canceled, "wait for changes: %w", ctx.Err())
	case <-p.final:
		return handle(fleetdb.Changes{Plans: []fleetdb.Plan{{Name: "wave", State: fleetdb.PlanEnded}}})
	}
}

func TestPlanShowsBarsOnATerminal(t *testing.T) {
	person, plan := pty.New(t), newRunningPlan(12)
	file := person.Open()
	out := &output{Writer: io.Discard, screen: terminal.NewScreen(file)}
	done := make(chan error, 1)
	go func() { done <- followPlan(t.Context(), out, plan, "wave") }()
	person.Sees("bottleneck: source (100 % busy)")
	mustContain(t, person.Seen(), "web00: begins", "web00: the copy begins", "web00 copy", "web09 copy", "] 25 %, 105 MB/s, 1m1s left",
		"wave: 0 of 12 VMs done, 12 running, 0 waiting, 0 failed (2 without a bar)", "wave: 25 %, 24 GiB of 96 GiB, 1258 MB/s, 1m1s left")
	if strings.Contains(person.Seen(), "web10 copy") {
		t.Error("got more than ten bars")
	}
	close(plan.final)
	if err := <-done; err != nil {
		t.Error(err)
	}
	out.screen.Write([]byte("after\n"))
	person.Sees("after\r\n")
}

// Ctrl-C ends the command, but not the plan.
func TestStoppedFollowerReportsThatThePlanContinues(t *testing.T) {
	r, plan := newTestProgram(t), newRunningPlan(1)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	err := followPlan(ctx, r.program.out, plan, "wave")
	if !fault.Is(err, fault.Canceled) || err.Error() != "following plan wave was stopped; the plan continues" || !strings.Contains(fault.HintOf(err), "run the same command again") {
		t.Errorf("got error %v; hint %s", err, fault.HintOf(err))
	}
	mustContain(t, r.stderr(), "web00: begins\nweb00: the copy begins\n")
}

// The command draws no bars before the first copy, because a password prompt may be on the terminal.
func TestNoBarsBeforeTheFirstCopy(t *testing.T) {
	person, plan := pty.New(t), newRunningPlan(1)
	screen := terminal.NewScreen(person.Open())
	view, err := server.OpenPlanView(t.Context(), plan, "wave")
	must(t, err)
	w := &watcher{out: &output{Writer: io.Discard, screen: screen}, view: view, bars: bars.NewGroup(screen.File)}
	for range int(sumInterval / barInterval) {
		w.printSum(nil)
	}
	person.Sees("wave: 0 of 1 VM done, 0 running, 1 waiting, 0 failed\r\n")
	if got := person.Seen(); strings.Count(got, "wave:") != 1 || strings.Contains(got, "\x1b") {
		t.Errorf("printed %q, want one line", got)
	}
	view.Apply(fleetdb.Changes{VMs: plan.vms})
	progress, _ := plan.Progress(t.Context(), "wave")
	w.printSum(progress)
	person.Sees("] 25 %")
	w.bars.Close()
}

func TestProgressTotalsWithoutTerminalAreLines(t *testing.T) {
	r, plan := newTestProgram(t), newRunningPlan(2)
	view, err := server.OpenPlanView(t.Context(), plan, "wave")
	must(t, err)
	view.Apply(fleetdb.Changes{VMs: plan.vms})
	w := &watcher{out: r.program.out, view: view}
	progress, _ := plan.Progress(t.Context(), "wave")
	w.printSum(progress)
	if got, want := r.stderr(), "wave: 0 of 2 VMs done, 2 running, 0 waiting, 0 failed\nwave: 25 %, 4 GiB of 16 GiB, 210 MB/s, 1m1s left\nwave: bottleneck: source (100 % busy); next: target, at 2.0 times the rate\n"; got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
}
