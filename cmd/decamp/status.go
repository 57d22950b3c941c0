package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleet"
	"github.com/decamp/decamp/internal/fleet/admission"
	"github.com/decamp/decamp/internal/roster"
	"github.com/decamp/decamp/internal/server"
)

const statusHelp = `
Say where plans stand: all of them, the VMs of one, or everything about one VM. Of a plan the
VMs are listed that are under way, the first that failed, and why the next ones wait; --all
lists them all.

A plan whose VMs were never all found, or whose hook failed, ends as failed; the exit code of
decamp status PLAN is then that of the failure. VMs that failed do not change it.
`

const statusExamples = `
decamp status
decamp status wave-1
decamp status wave-1/db01
decamp status wave-1 --json | jq '.vms[] | select(.state == "failed")'
`

func newStatus(a *app) *cobra.Command {
	var m meetingFlags
	var all bool
	cmd := &cobra.Command{
		Use: "status [PLAN[/VM]]", Short: "Say where plans stand", Long: text(statusHelp) + "\n\n" + text(namedHelp), Example: text(statusExamples),
		Args: cobra.MaximumNArgs(1), Annotations: exits(ordersExits...), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.logged(func(cmd *cobra.Command, args []string) error {
			name := ""
			if len(args) > 0 {
				name = args[0]
			}
			return a.status(cmd.Context(), m, name, all)
		}),
	}
	m.register(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "list all VMs of the plan")
	return cmd
}

func (a *app) status(ctx context.Context, m meetingFlags, name string, all bool) (err error) {
	c, closeControl, err := a.openControl(ctx, m)
	if err != nil {
		return err
	}
	defer closing(&err, closeControl)
	planName, vmName := splitName(name)
	switch {
	case name == "":
		return a.statusOfAll(ctx, c)
	case vmName == "":
		return a.statusOfPlan(ctx, c, planName, all)
	}
	return a.statusOfVM(ctx, c, planName, vmName)
}

func (a *app) statusOfAll(ctx context.Context, c server.Control) error {
	plans, err := c.Plans(ctx)
	if err != nil {
		return err
	}
	if a.json {
		return a.print(map[string]any{"plans": append([]roster.Plan{}, plans...)})
	}
	if len(plans) == 0 {
		fmt.Fprintln(a.out, "No plans. decamp plan run FILE begins one; decamp runs lists what decamp migrate began.")
		return nil
	}
	progress, err := c.Progress(ctx, "")
	if err != nil {
		return err
	}
	t := newTable("PLAN", "STATE", "VMS", "DONE", "UNDER WAY", "WAITING", "FAILED", "RATE", "BEGAN")
	t.alignRight(2, 3, 4, 5, 6, 7)
	for _, p := range plans {
		n := p.Counts
		t.add(p.Name, planState(p), strconv.Itoa(total(n)), strconv.Itoa(n[roster.Done]), strconv.Itoa(underWay(n)),
			strconv.Itoa(waiting(n)), strconv.Itoa(n[roster.Failed]), rate(rateOf(progress, p.Name), time.Second), p.Created.Local().Format(time.DateTime))
	}
	t.write(a.out)
	return nil
}

func planState(p roster.Plan) string {
	switch {
	case !p.State.Over() && p.Order == roster.Pause:
		return "paused"
	case !p.State.Over() && (p.Order == roster.Cancel || p.Order == roster.Rollback):
		return "giving up"
	}
	return string(p.State)
}

func total(n roster.Counts) (all int) {
	for _, each := range n {
		all += each
	}
	return all
}

func underWay(n roster.Counts) int { return n[roster.Running] + n[roster.Assigned] }

func waiting(n roster.Counts) int { return n[roster.Queued] + n[roster.Stranded] }

// rateOf sums up the rates of a plan's transfers that were told lately.
func rateOf(progress []roster.Progress, plan string) (bytes int64) {
	for _, p := range progress {
		if p.Plan == plan {
			bytes += p.Rate
		}
	}
	return bytes
}

// boardOf is what the scheduler says of those that wait. Without a scheduler it is empty, and
// so is one that has long been nobody's.
func boardOf(ctx context.Context, c server.Control) (b admission.Snapshot) {
	text, at, err := c.Board(ctx)
	if err != nil || time.Since(at) > oldBoard || json.Unmarshal(text, &b) != nil {
		return admission.Snapshot{}
	}
	return b
}

// oldBoard is when nobody writes the board any more. It is read from another clock.
const oldBoard = time.Minute

// statusOf returns how a plan goes.
func statusOf(ctx context.Context, c server.Control, name string) (s fleet.Status, err error) {
	p, err := c.Plan(ctx, name)
	if err != nil {
		return s, err
	}
	progress, err := c.Progress(ctx, name)
	if err != nil {
		return s, err
	}
	var vms []roster.VM
	err = eachVM(ctx, c, roster.Query{Plan: name}, func(vm roster.VM) { vms = append(vms, vm) })
	return fleet.StatusOf(p, vms, progress, boardOf(ctx, c)), err
}

// How many VMs that wait, or failed, are listed without --all.
const (
	mostWaiting = 10
	mostFailed  = 20
)

func (a *app) statusOfPlan(ctx context.Context, c server.Control, name string, all bool) error {
	s, err := statusOf(ctx, c, name)
	if err != nil {
		return err
	}
	var more []string
	switch {
	case a.json && !all:
		s.VMs, _ = ofInterest(s.VMs, len(s.VMs)) // a program wants to know of each that failed
	case !all:
		s.VMs, more = ofInterest(s.VMs, mostFailed)
	}
	if a.json {
		if err := a.print(s); err != nil {
			return err
		}
	} else {
		writeStatus(a, s, more)
	}
	if s.Plan.State == roster.PlanFailed {
		return inResult{planError(s.Plan)}
	}
	return nil
}

// writeStatus tells how a plan goes; more is what is left out of its VMs.
func writeStatus(a *app, s fleet.Status, more []string) {
	writePlan(a, s.Plan)
	writeFar(a, s)
	for _, b := range s.Breakers {
		if s.Plan.Failure == nil || s.Plan.Failure.Text != b.Sentence { // else it was just said
			fmt.Fprintln(a.out, plain(fault.OneLine(b.Sentence)))
		}
	}
	if len(s.VMs) > 0 {
		t := newTable("VM", "REF", "STATE", "STEP", "DONE", "RATE", "WORKER", "WHY")
		t.alignRight(4, 5)
		for _, vm := range s.VMs {
			t.add(vmCells(vm)...)
		}
		fmt.Fprintln(a.out)
		t.write(a.out)
	}
	if len(more) > 0 {
		fmt.Fprintf(a.out, "and %s: decamp status %s --all\n", strings.Join(more, ", "), fault.Quote(s.Plan.Name))
	}
}

// ofInterest leaves out the VMs that are over as they were to be, and most of those that wait or
// failed: thousands have one reason. more says of whom there are more.
func ofInterest(vms []fleet.VMStatus, failed int) (some []fleet.VMStatus, more []string) {
	most := map[roster.State]int{roster.Done: 0, roster.Canceled: 0, roster.Queued: mostWaiting, roster.Failed: failed}
	n := roster.Counts{}
	for _, vm := range vms {
		n[vm.State]++
		if bound, bounded := most[vm.State]; !bounded || n[vm.State] <= bound {
			some = append(some, vm)
		}
	}
	for _, of := range []struct {
		state roster.State
		word  string
	}{{roster.Failed, "failed"}, {roster.Queued, "wait"}, {roster.Canceled, "were given up"}} {
		if left := n[of.state] - most[of.state]; left > 0 {
			more = append(more, fmt.Sprintf("%d more that %s", left, of.word))
		}
	}
	return some, more
}

// writeFar says how far a plan is, once something of it was moved.
func writeFar(a *app, s fleet.Status) {
	if s.Total == 0 || s.Plan.State.Over() {
		return
	}
	fmt.Fprintf(a.out, "%s, %s of %s", percent(s.Done, s.Total), size(s.Done), size(s.Total))
	if s.Moved > 0 {
		fmt.Fprintf(a.out, ", %s moved for VMs under way", size(s.Moved))
	}
	if s.Rate > 0 {
		fmt.Fprintf(a.out, ", %s", rate(s.Rate, time.Second))
	}
	if s.Left > 0 {
		fmt.Fprintf(a.out, ", %s left at this rate", longTime(s.Left))
	}
	fmt.Fprintln(a.out)
	if s.Limit.What != "" {
		fmt.Fprintln(a.out, s.Limit)
	}
}

// longTime is a time that may be days: nobody plans by its seconds.
func longTime(d time.Duration) string {
	const day = 24 * time.Hour
	if d < 2*day {
		return duration(d)
	}
	return fmt.Sprintf("about %d days", int64((d+day/2)/day))
}

func vmCells(vm fleet.VMStatus) []string {
	done, speed := "", ""
	if p := vm.Progress; p != nil && vm.State == roster.Running && p.Total > 0 {
		done = percent(p.Done, p.Total)
		if p.Rate > 0 {
			speed = rate(p.Rate, time.Second)
		}
	}
	return []string{plain(vm.Name), vm.Key.VM, string(vm.State), cmp.Or(vm.Step, "-"), done, speed, cmp.Or(vm.Worker, "-"), plain(fault.OneLine(vm.Why))}
}

func writePlan(a *app, p roster.Plan) {
	var parts []string
	for _, s := range []roster.State{roster.Done, roster.Running, roster.Assigned, roster.Queued, roster.Stranded, roster.Failed, roster.Canceled} {
		if n := p.Counts[s]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	fmt.Fprintf(a.out, "Plan %s, %s: %s", p.Name, planState(p), count(total(p.Counts), "VM"))
	if len(parts) > 0 {
		fmt.Fprintf(a.out, " (%s)", strings.Join(parts, ", "))
	}
	fmt.Fprintln(a.out)
	if p.Failure != nil {
		fmt.Fprintf(a.out, "%s\n", plain(fault.OneLine(p.Failure.Text)))
		if p.Failure.Hint != "" {
			fmt.Fprintf(a.out, "Remedy: %s\n", plain(fault.OneLine(p.Failure.Hint)))
		}
	}
}

func (a *app) statusOfVM(ctx context.Context, c server.Control, planName, vmName string) error {
	vm, err := findVM(ctx, c, planName, vmName)
	if err != nil {
		return err
	}
	progress, err := c.Progress(ctx, planName)
	if err != nil {
		return err
	}
	s := fleet.StatusOf(roster.Plan{Name: planName}, []roster.VM{vm}, progress, boardOf(ctx, c)).VMs[0]
	if a.json {
		return a.print(s)
	}
	writeVMStatus(a, s)
	return nil
}

func writeVMStatus(a *app, vm fleet.VMStatus) {
	t := newTable()
	t.rows = nil
	add := func(word, text string) {
		if text != "" {
			t.add(word, plain(fault.OneLine(text)))
		}
	}
	add("VM", vm.Name+" ("+vm.Key.VM+")")
	add("State", string(vm.State))
	add("Step", vm.Step)
	if far := vm.Progress; far != nil {
		done := fmt.Sprintf("%s, %s of %s", percent(far.Done, far.Total), size(far.Done), size(far.Total))
		add("Done", done)
		if far.Moved > 0 {
			moved := size(far.Moved)
			if far.Rate > 0 {
				moved += ", " + rate(far.Rate, time.Second)
			}
			add("Moved", moved)
		}
		if far.Reread > 0 {
			add("Read back", rate(far.Reread, time.Second))
		}
		if far.Outage > 0 {
			add("Outage", "if it were cut over now: "+duration(far.Outage))
		}
	}
	add("Why", vm.Why)
	if vm.Failure != nil {
		add("Remedy", vm.Failure.Hint)
	}
	add("Order", string(vm.Order))
	add("Worker", vm.Worker)
	add("Host", vm.Host)
	add("To", strings.Join(vm.To, ", "))
	add("Runs", strings.Join(vm.Runs, ", "))
	if vm.Attempts > 0 {
		add("Failed", fmt.Sprintf("%d times", vm.Attempts))
	}
	if !vm.NotBefore.IsZero() && vm.State == roster.Queued {
		add("Next", "at "+vm.NotBefore.Local().Format(time.DateTime))
	}
	t.write(a.out)
}

// planError is what a plan that ended comes to: nil if every VM is published.
func planError(p roster.Plan) error {
	if p.Failure != nil {
		return fault.New(fault.KindNamed(p.Failure.Kind), "plan %s: %s", p.Name, p.Failure.Text).WithHint("%s", p.Failure.Hint)
	}
	failed, canceled := p.Counts[roster.Failed], p.Counts[roster.Canceled]
	switch {
	case failed > 0:
		return fault.New(fault.Conflict, "plan %s: %d of %s failed", p.Name, failed, count(total(p.Counts), "VM")).
			WithHint("decamp status %s says why; decamp retry %s tries them again", p.Name, p.Name)
	case canceled > 0:
		return fault.New(fault.Canceled, "plan %s: %d of %s were given up", p.Name, canceled, count(total(p.Counts), "VM"))
	}
	return nil
}
