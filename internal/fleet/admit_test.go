package fleet

import (
	"slices"
	"sync/atomic"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
)

// Nothing of a plan that is not admitted begins, not even its hook. When it is admitted after an
// order, its hook runs once.
func TestPlanThatIsNotAdmittedBeginsNothing(t *testing.T) {
	r := newRig(t, nil)
	m := newMover(t, vmsOn(2, 1)...)
	var right atomic.Bool
	m.admit = func() error {
		if right.Load() {
			return nil
		}
		return fault.New(fault.Denied, "it has no signature").WithHint("submit it again")
	}
	r.submit("wave")
	r.start(r.config(m, "w1"))
	r.wait("the refusal", func() bool { return r.plan("wave").Failure != nil })
	p := r.plan("wave")
	if f := p.Failure; f.Kind != fault.Denied.String() || f.Hint != "submit it again" || p.State != fleetdb.PlanListing {
		t.Errorf("plan is %s with failure %+v", p.State, f)
	}
	m.mu.Lock()
	if len(m.hooks) > 0 || len(m.moves) > 0 {
		t.Errorf("hooks %v, moves %v of a plan that is not admitted", m.hooks, m.moves)
	}
	m.mu.Unlock()
	right.Store(true)
	r.order("wave", fleetdb.GoOn)
	if p := r.waitEnded("wave"); p.Counts[fleetdb.Done] != 2 || p.Failure != nil {
		t.Errorf("ended with %v, %+v", p.Counts, p.Failure)
	}
	if want := []string{preHook, postHook}; !slices.Equal(m.hooks, want) {
		t.Errorf("hooks %v, want %v", m.hooks, want)
	}
}

// A process that takes office over while a plan is being listed does not admit it: its hook, which
// had ended well, is not run again when it is admitted later.
func TestHookThatEndedWellIsNotForgotten(t *testing.T) {
	r := newRig(t, nil)
	c := Control{Database: r.db}
	r.submit("wave")
	p := r.plan("wave")
	for name, run := range map[string]string{
		"ended well": `{"began":"2026-01-01T00:00:00Z","ended":"2026-01-01T00:00:01Z"}`,
		"failed":     `{"began":"2026-01-01T00:00:00Z","ended":"2026-01-01T00:00:01Z","failure":{"kind":"conflict","text":"x"}}`,
		"cut off":    `{"began":"2026-01-01T00:00:00Z"}`,
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
		if err != nil || (doc != nil) != (name == "ended well") {
			t.Errorf("a hook that %s: on record %q, %v", name, doc, err)
		}
	}
}
