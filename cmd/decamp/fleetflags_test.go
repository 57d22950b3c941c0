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

// waveOf returns a fleet with a plan of VMs.
func waveOf(t *testing.T, vms ...fleetdb.VM) server.Control {
	t.Helper()
	return servertest.Wave(t, limitWords, vms...)
}

func TestTheAuditTrailIsListed(t *testing.T) {
	r := newRig(t)
	for _, args := range [][]string{{"limits", "host:esx1/vms", "3"}, {"pause", "nothing/web1"}, {"audit"}} {
		r.out.Reset()
		r.run(t.Context(), append(args, "--state", r.assembler.State))
	}
	mustContain(t, r.out.String(), "TIME", "set limit", "host:esx1/vms 3", localUser(), "local")
}

func TestAPlanIsShownWithoutWhatIsOfNoInterest(t *testing.T) {
	r := newRig(t)
	var vms []fleetdb.VM
	for range maxWaiting + 5 {
		vms = append(vms, servertest.VM("vm-"+string(rune('a'+len(vms))), "web"))
	}
	c := waveOf(t, vms...)
	if err := (&statusCommand{out: r.program.out}).statusOfPlan(t.Context(), c, "wave"); err != nil {
		t.Fatal(err)
	}
	mustContain(t, r.out.String(), "Plan wave, listing: 15 VMs (15 queued)", "and 5 more that wait")
	if n := strings.Count(r.out.String(), "queued"); n != maxWaiting+1 {
		t.Errorf("%d VMs are shown in\n%s", n-1, r.out)
	}
}

// Without a process that executes the plan, a command is queued, and the output names what executes it.
func TestCommandsWithoutAProcessAreQueued(t *testing.T) {
	c := waveOf(t, servertest.VM("vm-1", "web"), servertest.VM("vm-2", "db"))
	for _, of := range []struct {
		vm    string
		order fleetdb.Command
		words string
	}{
		{"vm-1", fleetdb.CutOver, ""}, // refused: the VM is not warm
		{"vm-1", fleetdb.Pause, "wave/vm-1: paused: no further transfer begins"},
		{"vm-1", fleetdb.GoOn, "wave/vm-1: resume is queued, because no decamp process executes the plan. Execute it with decamp plan run FILE, or with a server (decamp serve)."},
		{"vm-2", fleetdb.Cancel, "wave/vm-2: canceled: "}, // at once, because it has not begun
	} {
		r := newRig(t)
		err := sendCommand(t.Context(), r.program.out, c, "wave/"+of.vm, "wave", of.vm, of.order)
		if (err != nil) != (of.words == "") {
			t.Errorf("%s: %v", of.order, err)
		}
		mustContain(t, r.out.String(), of.words)
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

// A command reads only what its output contains.
func TestCommandsReadOnlyWhatTheyPrint(t *testing.T) {
	for _, tt := range []struct {
		order                fleetdb.Command
		json                 bool
		workers, plans, more int // calls; one call of VM finds the VM for the command
	}{
		{fleetdb.Pause, false, 0, 0, 0},
		{fleetdb.GoOn, false, 1, 0, 1},
		{fleetdb.Pause, true, 1, 0, 0},
		{fleetdb.GoOn, true, 1, 0, 0},
	} {
		r := newRig(t)
		r.program.out.json = tt.json
		c := &countingControl{Control: waveOf(t, servertest.VM("vm-1", "web"))}
		if err := sendCommand(t.Context(), r.program.out, c, "wave/vm-1", "wave", "vm-1", tt.order); err != nil {
			t.Fatal(err)
		}
		if c.workers != tt.workers || c.plans != tt.plans || c.vms != 1+tt.more {
			t.Errorf("%s, JSON %v: %d calls of Workers, %d of Plan, %d of VM", tt.order, tt.json, c.workers, c.plans, c.vms)
		}
	}
}

// A plan whose only canceled VMs were withdrawn has no error; other canceled VMs are one.
func TestWithdrawnVMsAreNoError(t *testing.T) {
	p := fleetdb.Plan{Name: "wave", State: fleetdb.PlanEnded, Counts: fleetdb.Counts{fleetdb.Done: 1, fleetdb.Canceled: 2}}
	if err := p.Err(2); err != nil {
		t.Error(err)
	}
	if err := p.Err(1); !fault.Is(err, fault.Canceled) || err.Error() != "plan wave: 1 of 3 VMs were canceled" {
		t.Error(err)
	}
}

// A plan is dropped after its end only. The audit trail has both attempts.
func TestPlanDrop(t *testing.T) {
	r := newRig(t)
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
		t.Errorf("another text: %v (%s)", err, hint)
	}
	drop := []string{"plan", "drop", "wave", "--state", r.assembler.State}
	if code := r.run(t.Context(), drop); code != 6 {
		t.Errorf("exit code %d of a plan that has not ended", code)
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
		t.Errorf("exit code %d of a plan that does not exist", code)
	}
	entries, err := fleet.Audit.List(t.Context(), 0, 10)
	if err != nil || len(entries) < 3 || entries[len(entries)-1].Action != "drop a plan" || entries[len(entries)-1].On != "wave" || entries[len(entries)-1].User != localUser() {
		t.Errorf("the audit trail has %+v, %v", entries, err)
	}
}
