package server

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/roster"
)

// waveOf is a roster with a plan of VMs that nobody drives.
func waveOf(t *testing.T, vms ...roster.VM) Control {
	t.Helper()
	r, err := roster.Open(t.Context(), roster.Config{URL: "sqlite:" + filepath.Join(t.TempDir(), "fleet.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	if _, err := r.Plans.Add(t.Context(), roster.Plan{Name: "wave", Text: "version: 1\n"}); err != nil {
		t.Fatal(err)
	}
	for i := range vms {
		vms[i].Plan, vms[i].Seq, vms[i].State, vms[i].Asks = "wave", int64(i+1), roster.Queued, roster.First
	}
	if err := r.VMs.Add(t.Context(), vms); err != nil {
		t.Fatal(err)
	}
	return Audited{Local: Local{Roster: r}, Who: "tester", LimitText: func(_ string, units int64) string { return fmt.Sprint(units) }}
}

func named(ref, name string) roster.VM {
	return roster.VM{Key: roster.Key{VM: ref}, Name: name, Runs: []string{name + "-1f"}, To: []string{"dir:/srv"}}
}

func TestVMsOfPlansAreFoundByWhatTheyAreCalled(t *testing.T) {
	c := waveOf(t, named("vm-1", "web1"), named("vm-2", "web1"), named("vm-3", "Web3"), named("vm-4", "vm-1"))
	for what, ref := range map[string]string{"vm-1": "vm-1", "web3": "vm-3", "Web3-1f": "vm-3"} {
		if vm, err := FindVM(t.Context(), c, "wave", what); err != nil || vm.Key.VM != ref {
			t.Errorf("%s is %s, %v", what, vm.Key.VM, err)
		}
	}
	_, err := FindVM(t.Context(), c, "wave", "web1")
	if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "wave/vm-1") || !strings.Contains(err.Error(), "wave/vm-2") {
		t.Errorf("a name that two have: %v", err)
	}
	if _, err := FindVM(t.Context(), c, "wave", "web9"); !fault.Is(err, fault.NotFound) || fault.HintOf(err) == "" {
		t.Errorf("a name that none has: %v", err)
	}
}

func TestOrdersGivenHereAreOnRecord(t *testing.T) {
	c := waveOf(t, named("vm-1", "web1"))
	if err := c.OrderVM(t.Context(), roster.Key{Plan: "wave", VM: "vm-1"}, roster.Pause); err != nil {
		t.Fatal(err)
	}
	if err := c.OrderPlan(t.Context(), "wove", roster.Pause); !fault.Is(err, fault.NotFound) {
		t.Errorf("a plan that is not there: %v", err)
	}
	if err := c.SetLimit(t.Context(), "host:esx1/vms", 3); err != nil {
		t.Fatal(err)
	}
	trail, err := c.Audit(t.Context(), 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, e := range trail {
		if e.Who != "tester" || e.From != "local" {
			t.Errorf("who: %+v", e)
		}
		line := e.What + " " + e.On
		if e.Err != "" {
			line += " failed"
		}
		lines = append(lines, line)
	}
	want := "set limit host:esx1/vms 3|order pause wove failed|order pause wove|order pause wave/vm-1"
	if got := strings.Join(lines, "|"); got != want {
		t.Errorf("trail %q", got)
	}
}
