package main

import (
	"context"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/server"
	"github.com/decamp/decamp/internal/server/servertest"
)

// newWave returns a fleet with a plan of VMs.
func newWave(t *testing.T, vms ...fleetdb.VM) server.Control {
	t.Helper()
	return servertest.Wave(t, limitWords, vms...)
}

func TestAuditTrailIsListed(t *testing.T) {
	r := newTestProgram(t)
	for _, args := range [][]string{{"limits", "host:esx1/vms", "3"}, {"pause", "nothing/web1"}, {"audit"}} {
		r.out.Reset()
		r.run(t.Context(), append(args, "--state", r.assembler.State))
	}
	mustContain(t, r.out.String(), "TIME", "set limit", "host:esx1/vms 3", localUser(), "local")
}

func TestStatusLimitsWaitingVMs(t *testing.T) {
	r := newTestProgram(t)
	var vms []fleetdb.VM
	for range maxWaiting + 5 {
		vms = append(vms, servertest.VM("vm-"+string(rune('a'+len(vms))), "web"))
	}
	c := newWave(t, vms...)
	if err := (&statusCommand{out: r.program.out}).statusOfPlan(t.Context(), c, "wave"); err != nil {
		t.Fatal(err)
	}
	mustContain(t, r.out.String(), "Plan wave, listing: 15 VMs (15 queued)", "and 5 more that wait")
	if n := strings.Count(r.out.String(), "queued"); n != maxWaiting+1 {
		t.Errorf("got %d waiting VMs in the output:\n%s", n-1, r.out)
	}
}

// Without a process that executes the plan, a command is queued, and the output names what executes it.
func TestCommandsWithoutAProcessAreQueued(t *testing.T) {
	c := newWave(t, servertest.VM("vm-1", "web"), servertest.VM("vm-2", "db"))
	for _, tt := range []struct {
		vm      string
		command fleetdb.Command
		output  string
	}{
		{"vm-1", fleetdb.CutOver, ""}, // refused: the VM is not warm
		{"vm-1", fleetdb.Pause, "wave/vm-1: paused: no further transfer begins"},
		{"vm-1", fleetdb.GoOn, "wave/vm-1: resume is queued, because no decamp process executes the plan. Execute it with decamp plan run FILE, or with a server (decamp serve)."},
		{"vm-2", fleetdb.Cancel, "wave/vm-2: canceled: "}, // immediately, because the VM has not begun
	} {
		r := newTestProgram(t)
		err := sendCommand(t.Context(), r.program.out, c, "wave/"+tt.vm, "wave", tt.vm, tt.command)
		if (err != nil) != (tt.output == "") {
			t.Errorf("%s: %v", tt.command, err)
		}
		mustContain(t, r.out.String(), tt.output)
	}
}

// countingControl counts the calls that follow a command.
type countingControl struct {
	server.Control
	workers, plans, vms int
}

func (c *countingControl) Workers(ctx context.Context) ([]fleetdb.Worker, error) {
	c.workers++
	return c.Control.Workers(ctx)
}

func (c *countingControl) Plan(ctx context.Context, name string) (fleetdb.Plan, error) {
	c.plans++
	return c.Control.Plan(ctx, name)
}

func (c *countingControl) VM(ctx context.Context, k fleetdb.Key) (fleetdb.VM, error) {
	c.vms++
	return c.Control.VM(ctx, k)
}

// A command reads only the data that its output contains.
func TestCommandsReadOnlyPrintedData(t *testing.T) {
	for _, tt := range []struct {
		command              fleetdb.Command
		json                 bool
		workers, plans, more int // calls; one call of VM finds the VM for the command
	}{
		{fleetdb.Pause, false, 0, 0, 0},
		{fleetdb.GoOn, false, 1, 0, 1},
		{fleetdb.Pause, true, 1, 0, 0},
		{fleetdb.GoOn, true, 1, 0, 0},
	} {
		r := newTestProgram(t)
		r.program.out.json = tt.json
		c := &countingControl{Control: newWave(t, servertest.VM("vm-1", "web"))}
		if err := sendCommand(t.Context(), r.program.out, c, "wave/vm-1", "wave", "vm-1", tt.command); err != nil {
			t.Fatal(err)
		}
		if c.workers != tt.workers || c.plans != tt.plans || c.vms != 1+tt.more {
			t.Errorf("%s, JSON %v: %d calls of Workers, %d of Plan, %d of VM", tt.command, tt.json, c.workers, c.plans, c.vms)
		}
	}
}

// Canceled VMs are an error of the plan, except withdrawn VMs.
func TestWithdrawnVMsCauseNoError(t *testing.T) {
	p := fleetdb.Plan{Name: "wave", State: fleetdb.PlanEnded, Counts: fleetdb.Counts{fleetdb.Done: 1, fleetdb.Canceled: 2}}
	if err := p.Err(2); err != nil {
		t.Error(err)
	}
	if err := p.Err(1); !fault.Is(err, fault.Canceled) || err.Error() != "plan wave: 1 of 3 VMs was canceled" {
		t.Error(err)
	}
}

// decamp plan drop removes only a plan that has ended. The audit trail records each attempt.
func TestPlanDrop(t *testing.T) {
	r := newTestProgram(t)
	url, err := fileDatabase(r.assembler.State)
	if err != nil {
		t.Fatal(err)
	}
	fleet, err := fleetdb.Open(t.Context(), fleetdb.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer fleet.Close()
	if _, err := fleet.Plans.Add(t.Context(), fleetdb.Plan{Name: "wave", Text: "version: 1\n"}); err != nil {
		t.Fatal(err)
	}
	_, err = fleet.Plans.Add(t.Context(), fleetdb.Plan{Name: "wave", Text: "version: 1\n# another\n"})
	if hint := fault.HintOf(err); !strings.Contains(hint, "decamp plan drop wave") {
		t.Errorf("a plan with another text: %v (%s)", err, hint)
	}
	drop := []string{"plan", "drop", "wave", "--state", r.assembler.State}
	if code := r.run(t.Context(), drop); code != 6 {
		t.Errorf("exit code %d for a plan that has not ended, want 6", code)
	}
	mustContain(t, r.stderr(), "plan wave is listing", "decamp cancel --state "+r.assembler.State+" wave")
	if err := fleet.Plans.SetState(t.Context(), "wave", fleetdb.PlanEnded, nil); err != nil {
		t.Fatal(err)
	}
	if code := r.run(t.Context(), drop); code != 0 {
		t.Errorf("exit code %d: %s", code, r.stderr())
	}
	mustContain(t, r.out.String(), "Plan wave is removed. Its migrated VMs are kept.")
	if code := r.run(t.Context(), drop); code != 3 {
		t.Errorf("exit code %d for a plan that does not exist, want 3", code)
	}
	entries, err := fleet.Audit.List(t.Context(), 0, 10)
	if err != nil || len(entries) < 3 || entries[len(entries)-1].Action != "drop a plan" || entries[len(entries)-1].On != "wave" || entries[len(entries)-1].User != localUser() {
		t.Errorf("the audit trail has %+v, %v", entries, err)
	}
}
