package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleet"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/server"
	"github.com/decamp/decamp/internal/units"
)

const statusHelp = `
Show the state of all plans, of the VMs of one plan, or of one VM. The list of plans ends with
the notifications that are pending or were not delivered. For a plan it lists running VMs, the
first failed ones, and why the next ones wait; --all lists all VMs.

A plan fails if its VMs could not be listed or its hook failed; the exit code of decamp status
PLAN is then that of the failure. Failed VMs do not change the exit code.
`

const statusExamples = `
decamp status
decamp status wave-1
decamp status wave-1/db01
decamp status wave-1 --json | jq '.vms[] | select(.state == "failed")'
`

// statusCommand is decamp status.
type statusCommand struct {
	out   *output    // output and messages
	fleet fleetFlags // flags of the fleet
	all   bool       // list all VMs of the plan
}

// newStatus returns the command decamp status.
func newStatus(p *program) *cobra.Command {
	st := &statusCommand{out: p.out, fleet: fleetFlags{assembler: p.assembler}}
	cmd := &cobra.Command{
		Use: "status [PLAN[/VM]]", Short: "Show the state of plans", Long: trimHelp(statusHelp) + "\n\n" + trimHelp(namedHelp), Example: trimHelp(statusExamples),
		Args: cobra.MaximumNArgs(1), Annotations: exitCodes(commandExits...), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: p.withLog(func(cmd *cobra.Command, args []string) error {
			name := ""
			if len(args) > 0 {
				name = args[0]
			}
			return st.runStatus(cmd.Context(), name)
		}),
	}
	st.fleet.registerFlags(cmd)
	cmd.Flags().BoolVar(&st.all, "all", false, "list all VMs of the plan")
	return cmd
}

// runStatus prints the state of all plans, of one plan, or of one VM.
func (st *statusCommand) runStatus(ctx context.Context, name string) (err error) {
	c, closeControl, err := st.fleet.openControl(ctx)
	if err != nil {
		return err
	}
	defer joinClose(&err, closeControl)
	planName, vmName := server.SplitName(name)
	switch {
	case name == "":
		return st.statusOfAll(ctx, c)
	case vmName == "":
		return st.statusOfPlan(ctx, c, planName)
	}
	return st.statusOfVM(ctx, c, planName, vmName)
}

// statusOfAll prints a table of all plans.
func (st *statusCommand) statusOfAll(ctx context.Context, c server.Control) error {
	plans, err := c.Plans(ctx)
	if err != nil {
		return err
	}
	notified, err := c.Notifications(ctx)
	if err != nil {
		return err
	}
	if st.out.json {
		return st.out.printJSON(map[string]any{"plans": append([]fleetdb.Plan{}, plans...), "notifications": append([]fleetdb.NotificationCount{}, notified...)})
	}
	if text := fleetdb.DescribeUndelivered(notified); text != "" {
		defer fmt.Fprintf(st.out, "Notifications that are not delivered: %s\n", fault.Printable(text))
	}
	if len(plans) == 0 {
		fmt.Fprintln(st.out, st.out.message("No plans. Start one with decamp plan run FILE. decamp runs lists single migrations."))
		return nil
	}
	progress, err := c.Progress(ctx, "")
	if err != nil {
		return err
	}
	t := newTable("PLAN", "STATE", "VMS", "DONE", "RUNNING", "WAITING", "FAILED", "RATE", "BEGAN")
	t.alignRight(2, 3, 4, 5, 6, 7)
	for _, p := range plans {
		n := p.Counts
		t.addRow(p.Name, p.StateText(), strconv.Itoa(n.Total()), strconv.Itoa(n[fleetdb.Done]), strconv.Itoa(n.Running()),
			strconv.Itoa(n.Waiting()), strconv.Itoa(n[fleetdb.Failed]), units.Rate(fleetdb.RateOf(progress, p.Name), time.Second), p.Created.Local().Format(time.DateTime))
	}
	t.writeTo(st.out)
	return nil
}

// How many VMs that wait, or failed, are listed without --all.
const (
	maxWaiting = 10 // waiting VMs that are listed
	maxFailed  = 20 // failed VMs that are listed
)

// statusOfPlan prints the state of a plan and of its selected VMs. A failed plan is an error.
func (st *statusCommand) statusOfPlan(ctx context.Context, c server.Control, name string) error {
	s, err := server.StatusOf(ctx, c, name)
	if err != nil {
		return err
	}
	var more []string
	switch {
	case st.out.json && !st.all:
		s.VMs, _ = selectVMs(s.VMs, len(s.VMs)) // a program wants to know of each that failed
	case !st.all:
		s.VMs, more = selectVMs(s.VMs, maxFailed)
	}
	if st.out.json {
		if err := st.out.printJSON(s); err != nil {
			return err
		}
	} else {
		writeStatus(st.out, s, more)
	}
	if s.Plan.State == fleetdb.PlanFailed {
		return inResult{s.Plan.Err(0)}
	}
	return nil
}

// writeStatus prints the state of a plan; more describes VMs that are left out.
func writeStatus(out *output, s fleet.Status, more []string) {
	writePlan(out, s.Plan)
	writeProgress(out, s)
	for _, b := range s.Breakers {
		if s.Plan.Failure == nil || s.Plan.Failure.Text != b.Reason { // otherwise it was just printed
			fmt.Fprintln(out, fault.Printable(fault.OneLine(b.Reason)))
		}
	}
	if len(s.VMs) > 0 {
		t := newTable("VM", "REF", "STATE", "STEP", "DONE", "RATE", "WORKER", "REASON")
		t.alignRight(4, 5)
		for _, vm := range s.VMs {
			t.addRow(vmCells(vm)...)
		}
		fmt.Fprintln(out)
		t.writeTo(out)
	}
	if len(more) > 0 {
		fmt.Fprintln(out, out.message("and %s: decamp status %s --all", strings.Join(more, ", "), fault.Quote(s.Plan.Name)))
	}
}

// selectVMs leaves out VMs that ended as planned, and most of those that wait or failed, because
// thousands may have one reason. more describes the VMs that are left out.
func selectVMs(vms []fleet.VMStatus, failed int) (some []fleet.VMStatus, more []string) {
	most := map[fleetdb.State]int{fleetdb.Done: 0, fleetdb.Canceled: 0, fleetdb.Queued: maxWaiting, fleetdb.Failed: failed}
	n := fleetdb.Counts{}
	for _, vm := range vms {
		n[vm.State]++
		if bound, bounded := most[vm.State]; !bounded || n[vm.State] <= bound {
			some = append(some, vm)
		}
	}
	for _, of := range []struct {
		state fleetdb.State
		word  string
	}{{fleetdb.Failed, "failed"}, {fleetdb.Queued, "wait"}, {fleetdb.Canceled, "were canceled"}} {
		if left := n[of.state] - most[of.state]; left > 0 {
			more = append(more, fmt.Sprintf("%d more that %s", left, of.word))
		}
	}
	return some, more
}

// writeProgress prints the progress of a plan whose transfers have begun.
func writeProgress(out io.Writer, s fleet.Status) {
	if s.Total == 0 || s.Plan.State.IsFinal() {
		return
	}
	fmt.Fprintf(out, "%s, %s of %s", units.Percent(s.Done, s.Total), units.Binary(s.Done), units.Binary(s.Total))
	if s.Moved > 0 {
		fmt.Fprintf(out, ", %s copied for running VMs", units.Binary(s.Moved))
	}
	if s.Rate > 0 {
		fmt.Fprintf(out, ", %s", units.Rate(s.Rate, time.Second))
	}
	if s.Left > 0 {
		fmt.Fprintf(out, ", %s left at this rate", units.LongDuration(s.Left))
	}
	fmt.Fprintln(out)
	if s.Limit.What != "" {
		fmt.Fprintln(out, s.Limit)
	}
}

// vmCells returns the cells of a VM. Progress is shown only while it runs.
func vmCells(vm fleet.VMStatus) []string {
	done, speed := "", ""
	if p := vm.Progress; p != nil && vm.State == fleetdb.Running && p.Total > 0 {
		done = units.Percent(p.Done, p.Total)
		if p.Rate > 0 {
			speed = units.Rate(p.Rate, time.Second)
		}
	}
	return []string{fault.Printable(vm.Name), vm.Key.VM, string(vm.State), cmp.Or(vm.Step, "-"), done, speed, cmp.Or(vm.Worker, "-"), fault.Printable(fault.OneLine(vm.Reason))}
}

// statusOfVM prints the state of one VM.
func (st *statusCommand) statusOfVM(ctx context.Context, c server.Control, planName, vmName string) error {
	vm, err := server.FindVM(ctx, c, planName, vmName)
	if err != nil {
		return err
	}
	progress, err := c.Progress(ctx, planName)
	if err != nil {
		return err
	}
	s := fleet.StatusOf(fleetdb.Plan{Name: planName}, []fleetdb.VM{vm}, progress, server.SchedulerStateOf(ctx, c)).VMs[0]
	if st.out.json {
		return st.out.printJSON(s)
	}
	writeVMStatus(st.out, s)
	return nil
}

// writeVMStatus prints the properties of a VM that are known, one per line.
func writeVMStatus(out *output, vm fleet.VMStatus) {
	t := newTable()
	t.rows = nil
	add := func(word, text string) {
		if text != "" {
			t.addRow(word, fault.Printable(fault.OneLine(text)))
		}
	}
	add("VM", vm.Name+" ("+vm.Key.VM+")")
	add("State", string(vm.State))
	add("Step", vm.Step)
	if far := vm.Progress; far != nil {
		done := fmt.Sprintf("%s, %s of %s", units.Percent(far.Done, far.Total), units.Binary(far.Done), units.Binary(far.Total))
		add("Done", done)
		if far.Read > 0 {
			moved := units.Binary(far.Read)
			if far.Rate > 0 {
				moved += ", " + units.Rate(far.Rate, time.Second)
			}
			add("Read", moved)
		}
		if far.Reread > 0 {
			add("Read back", units.Rate(far.Reread, time.Second))
		}
		if far.Outage > 0 {
			add("Outage", "with a cutover now: "+units.Duration(far.Outage))
		}
	}
	add("Why", vm.Reason)
	if vm.Failure != nil {
		add("Remedy", out.followUps.Complete(vm.Failure.Hint))
	}
	add("Command", string(vm.Command))
	add("Worker", vm.Worker)
	add("Host", vm.Host)
	add("To", strings.Join(vm.To, ", "))
	add("Runs", strings.Join(vm.Runs, ", "))
	if vm.Attempts > 0 {
		add("Failed", fmt.Sprintf("%d times", vm.Attempts))
	}
	if !vm.NotBefore.IsZero() && vm.State == fleetdb.Queued {
		add("Next", "at "+vm.NotBefore.Local().Format(time.DateTime))
	}
	t.writeTo(out)
}
