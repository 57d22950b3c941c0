package fleet

import (
	"slices"
	"sync/atomic"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
)

// A plan that is not admitted begins neither its hook nor a VM. When it is admitted after a resume, its hook
// runs once.
func TestUnadmittedPlanStartsNothing(t *testing.T) {
	r := newTestFleet(t, nil)
	m := newFakeMover(t, vmsOn(2, 1)...)
	var right atomic.Bool
	m.admit = func() error {
		if right.Load() {
			return nil
		}
		return fault.New(fault.Denied, "it has no signature").WithHint("submit it again")
	}
	r.submitPlan("wave")
	r.startNode(r.nodeConfig(m, "w1"))
	r.waitUntil("the refusal", func() bool { return r.getPlan("wave").Failure != nil })
	p := r.getPlan("wave")
	if f := p.Failure; f.Kind != fault.Denied.String() || f.Hint != "submit it again" || p.State != fleetdb.PlanListing {
		t.Errorf("the plan is %s with failure %+v", p.State, f)
	}
	m.mu.Lock()
	if len(m.hooks) > 0 || len(m.moves) > 0 {
		t.Errorf("hooks %v, moves %v of a plan that is not admitted; want none", m.hooks, m.moves)
	}
	m.mu.Unlock()
	right.Store(true)
	r.sendCommand("wave", fleetdb.GoOn)
	if p := r.waitEnded("wave"); p.Counts[fleetdb.Done] != 2 || p.Failure != nil {
		t.Errorf("the plan ended with %v and failure %+v", p.Counts, p.Failure)
	}
	if want := []string{preHook, postHook}; !slices.Equal(m.hooks, want) {
		t.Errorf("hooks %v, want %v", m.hooks, want)
	}
}

// The next scheduler does not admit a plan whose hook has succeeded. A resume keeps the record of that hook, so it does
// not run again. It deletes the record of a hook that failed or was interrupted.
func TestResumeKeepsTheRecordOfASuccessfulHook(t *testing.T) {
	r := newTestFleet(t, nil)
	c := Control{Database: r.db}
	r.submitPlan("wave")
	p := r.getPlan("wave")
	for name, run := range map[string]string{
		"succeeded":       `{"began":"2026-01-01T00:00:00Z","ended":"2026-01-01T00:00:01Z"}`,
		"failed":          `{"began":"2026-01-01T00:00:00Z","ended":"2026-01-01T00:00:01Z","failure":{"kind":"conflict","text":"x"}}`,
		"was interrupted": `{"began":"2026-01-01T00:00:00Z"}`,
	} {
		if err := r.db.Records.Put(r.Context(), planHookKind, hookID(p, preHook), []byte(run)); err != nil {
			t.Fatal(err)
		}
		if err := r.db.Plans.SetState(r.Context(), "wave", fleetdb.PlanListing, &fleetdb.Failure{Kind: "denied"}); err != nil {
			t.Fatal(err)
		}
		if err := c.CommandPlan(r.Context(), "wave", fleetdb.GoOn); err != nil {
			t.Fatal(err)
		}
		doc, err := r.db.Records.Get(r.Context(), planHookKind, hookID(p, preHook))
		if err != nil || (doc != nil) != (name == "succeeded") {
			t.Errorf("a hook that %s: the record is %q, %v", name, doc, err)
		}
	}
}
