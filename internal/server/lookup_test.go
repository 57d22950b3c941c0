package server_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/server"
	"github.com/decamp/decamp/internal/server/servertest"
)

func newWave(t *testing.T, vms ...fleetdb.VM) server.Control {
	t.Helper()
	return servertest.Wave(t, func(_ string, units int64) string { return fmt.Sprint(units) }, vms...)
}

func TestFindVM(t *testing.T) {
	c := newWave(t, servertest.VM("vm-1", "web1"), servertest.VM("vm-2", "web1"), servertest.VM("vm-3", "Web3"), servertest.VM("vm-4", "vm-1"))
	for name, ref := range map[string]string{"vm-1": "vm-1", "web3": "vm-3", "Web3-1f": "vm-3"} {
		if vm, err := server.FindVM(t.Context(), c, "wave", name); err != nil || vm.Key.VM != ref {
			t.Errorf("FindVM of %s: got %s, %v; want %s", name, vm.Key.VM, err, ref)
		}
	}
	_, err := server.FindVM(t.Context(), c, "wave", "web1")
	if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "wave/vm-1") || !strings.Contains(err.Error(), "wave/vm-2") {
		t.Errorf("the name of two VMs: %v", err)
	}
	if _, err := server.FindVM(t.Context(), c, "wave", "web9"); !fault.Is(err, fault.NotFound) || fault.HintOf(err) == "" {
		t.Errorf("an unknown name: %v", err)
	}
}

func TestLocalCommandsAreAudited(t *testing.T) {
	c := newWave(t, servertest.VM("vm-1", "web1"))
	if err := c.CommandVM(t.Context(), fleetdb.Key{Plan: "wave", VM: "vm-1"}, fleetdb.Pause); err != nil {
		t.Fatal(err)
	}
	if err := c.CommandPlan(t.Context(), "wove", fleetdb.Pause); !fault.Is(err, fault.NotFound) {
		t.Errorf("an unknown plan: %v", err)
	}
	if err := c.SetLimit(t.Context(), "host:esx1/vms", 3); err != nil {
		t.Fatal(err)
	}
	if err := c.Rehearse(t.Context(), fleetdb.Key{Plan: "wave", VM: "vm-1"}, fleetdb.Rehearsal{ID: "r-1"}); err == nil {
		t.Error("the rehearsal of a cold migration is not refused")
	}
	if err := c.TakeBack(t.Context(), fleetdb.Key{Plan: "wave", VM: "vm-1"}, "r-1"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Submit(t.Context(), server.Submission{Folder: "/plans"}); err == nil {
		t.Error("an empty plan is not refused")
	}
	if err := c.DropPlan(t.Context(), "wave"); err == nil {
		t.Error("the removal of an unfinished plan is not refused")
	}
	trail, err := c.Audit(t.Context(), 0, 20)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, e := range trail {
		if e.User != "tester" || e.From != "local" {
			t.Errorf("the user of %+v is not the local tester", e)
		}
		line := e.Action + " " + e.On
		if e.Err != "" {
			line += " failed"
		}
		lines = append(lines, line)
	}
	want := "drop a plan wave failed|drop a plan wave|submit plan /plans failed|submit plan /plans|take back a rehearsal wave/vm-1|rehearse wave/vm-1 failed|rehearse wave/vm-1|set limit host:esx1/vms 3|command pause wove failed|command pause wove|command pause wave/vm-1"
	if got := strings.Join(lines, "|"); got != want {
		t.Errorf("got audit trail %q, want %q", got, want)
	}
}
