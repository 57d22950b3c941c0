package fleet

import (
	"context"
	"maps"
	"slices"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleet/login"
	"github.com/decamp/decamp/internal/fleetdb"
)

// A stepper is a scheduler that the test advances. No worker executes the VMs.
type stepper struct {
	*testFleet
	s *scheduler
}

func newStepper(r *testFleet, m Mover) *stepper {
	r.Helper()
	g := &errgroup.Group{}
	s := newScheduler(r.nodeConfig(m, "w1").withDefaults(), fleetdb.Lease{}, 0, g)
	s.admission.Start()
	r.Cleanup(func() {
		if err := g.Wait(); err != nil {
			r.Error(err)
		}
	})
	return &stepper{r, s}
}

// readChanges applies the changes in the database.
func (st *stepper) readChanges() {
	st.Helper()
	if err := st.s.readChanges(st.Context()); err != nil {
		st.Fatal(err)
	}
}

// advance starts the next phase of each plan, and returns when the phases have ended.
func (st *stepper) advance() {
	st.s.plans.advanceAll(st.Context())
	busy := func(p *activePlan) bool { return p.busy }
	for slices.ContainsFunc(slices.Collect(maps.Values(st.s.plans.plans)), busy) {
		receive(st, st.s.calls)()
	}
}

// advanceUntil reads changes and advances until cond holds for the plan in the database. The scheduler has not read the
// last changes then.
func (st *stepper) advanceUntil(what, plan string, cond func(fleetdb.Plan) bool) {
	st.Helper()
	for range 10 { // no plan has more phases
		st.readChanges()
		if st.advance(); cond(st.getPlan(plan)) {
			return
		}
	}
	st.Fatalf("plan %s is never %s: %+v", plan, what, st.getPlan(plan))
}

func isOver(p fleetdb.Plan) bool    { return p.State.IsFinal() }
func isRunning(p fleetdb.Plan) bool { return p.State == fleetdb.PlanRunning }

// A plan whose hook before the first VM failed is canceled, and is retried before the scheduler reads that it
// ended. The hook runs again before VMs begin.
func TestHookRunsAgainAfterAQuickRetry(t *testing.T) {
	r := newTestFleet(t, newFakeClock())
	m := newFakeMover(t, vmsOn(2, 1)...)
	fails := true
	m.hook = func(context.Context, fleetdb.Plan, string) error {
		if fails {
			return errOther
		}
		return nil
	}
	st := newStepper(r, m)
	r.submitPlan("wave")
	st.advanceUntil("failed", "wave", func(p fleetdb.Plan) bool { return p.Failure != nil })
	r.sendCommand("wave", fleetdb.Cancel)
	st.advanceUntil("over", "wave", isOver)
	fails = false
	r.sendCommand("wave", fleetdb.Retry)
	st.advanceUntil("running", "wave", isRunning)
	if want := []string{preHook, preHook}; !slices.Equal(m.hooks, want) {
		t.Errorf("hooks %v, want %v", m.hooks, want)
	}
	if n := r.getPlan("wave").Counts[fleetdb.Queued]; n != 2 {
		t.Errorf("%d VMs are queued, want 2", n)
	}
}

// An operator retries a VM while the hook after the last VM runs. The plan does not end before that VM has.
func TestPlanWithARetriedVMDoesNotEnd(t *testing.T) {
	r := newTestFleet(t, newFakeClock())
	m := newFakeMover(t, vmsOn(1, 1)...)
	m.hook = func(_ context.Context, _ fleetdb.Plan, when string) error {
		if when == postHook {
			r.sendCommand("wave/vm-1", fleetdb.Retry)
		}
		return nil
	}
	st := newStepper(r, m)
	r.submitPlan("wave")
	st.advanceUntil("running", "wave", isRunning)
	r.sendCommand("wave/vm-1", fleetdb.Cancel)
	st.advanceUntil("queued", "wave", func(p fleetdb.Plan) bool { return len(m.hooks) == 2 })
	if p := r.getPlan("wave"); p.State != fleetdb.PlanRunning || p.Counts[fleetdb.Queued] != 1 {
		t.Errorf("the plan is %s with VMs %v, want running and a queued VM", p.State, p.Counts)
	}
	r.sendCommand("wave/vm-1", fleetdb.Cancel)
	st.advanceUntil("over", "wave", isOver)
	if want := []string{preHook, postHook}; !slices.Equal(m.hooks, want) {
		t.Errorf("hooks %v, want %v", m.hooks, want)
	}
}

// An operator retries a canceled plan while the scheduler ends it. The plan continues.
func TestRetriedPlanDoesNotEnd(t *testing.T) {
	r := newTestFleet(t, newFakeClock())
	m := newFakeMover(t)
	unreachable := true
	m.list = func(_ context.Context, _ fleetdb.Plan, found func([]fleetdb.VM) error) error {
		if unreachable {
			return errUnreachable
		}
		return found(vmsOn(2, 1))
	}
	st := newStepper(r, m)
	r.submitPlan("wave")
	st.advanceUntil("failed", "wave", func(p fleetdb.Plan) bool { return p.Failure != nil })
	r.sendCommand("wave", fleetdb.Cancel)
	st.advanceUntil("running", "wave", isRunning)
	st.readChanges()
	unreachable = false
	r.sendCommand("wave", fleetdb.Retry)
	st.advance() // the scheduler has not read the retry
	if p := r.getPlan("wave"); p.State != fleetdb.PlanListing || p.Failure != nil {
		t.Errorf("the plan is %s with %+v, want listing", p.State, p.Failure)
	}
	st.advanceUntil("running", "wave", isRunning)
	if n := r.getPlan("wave").Counts[fleetdb.Queued]; n != 2 {
		t.Errorf("%d VMs are queued, want 2", n)
	}
}

// A plan is canceled before its VMs were found, and a retry is refused while its first VM is undone. The plan
// keeps its failure, and the next retry lists the VMs again.
func TestRefusedRetryLeavesThePlanUnlisted(t *testing.T) {
	r := newTestFleet(t, newFakeClock())
	m := newFakeMover(t)
	vms := vmsOn(2, 1)
	m.list = func(ctx context.Context, _ fleetdb.Plan, found func([]fleetdb.VM) error) error {
		if err := found(vms[:1]); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}
	held, release := m.holdTransfers()
	undoing, undone := make(chan struct{}, 10), make(chan struct{})
	m.undo = func(context.Context, fleetdb.VM) error {
		undoing <- struct{}{}
		<-undone
		return nil
	}
	r.submitPlan("wave")
	r.startNode(r.nodeConfig(m, "w1"))
	receive(t, held)
	r.sendCommand("wave", fleetdb.Cancel)
	receive(t, undoing)
	r.waitUntil("the end of the listing", func() bool { return isRunning(r.getPlan("wave")) })
	if err := r.ctl.CommandPlan(t.Context(), "wave", fleetdb.Retry); !fault.Is(err, fault.Conflict) {
		t.Errorf("retried while a VM is undone: %v, want a conflict", err)
	}
	close(undone)
	if p := r.waitEnded("wave"); p.State != fleetdb.PlanFailed || !p.Listed.IsZero() {
		t.Errorf("ended as %s, listed %v; want failed and not listed", p.State, p.Listed)
	}
	m.list, m.vms = nil, vms
	close(release)
	r.sendCommand("wave", fleetdb.Retry)
	r.waitForVMs("wave", fleetdb.Done, 2)
}

// The VMs of a plan could not be listed, and an operator resumes or retries it while a VM that was found runs.
// The VMs are listed again.
func TestResumeListsTheVMsAgain(t *testing.T) {
	for _, o := range []fleetdb.Command{fleetdb.GoOn, fleetdb.Retry} {
		t.Run(o.Word(), func(t *testing.T) {
			r := newTestFleet(t, newFakeClock())
			m := newFakeMover(t)
			vms, found := vmsOn(2, 1), 1
			m.list = func(_ context.Context, _ fleetdb.Plan, add func([]fleetdb.VM) error) error {
				if err := add(vms[:found]); err != nil || found == len(vms) {
					return err
				}
				return errCorrupt
			}
			st := newStepper(r, m)
			r.submitPlan("wave")
			st.advanceUntil("running", "wave", isRunning)
			found = len(vms)
			r.sendCommand("wave", o)
			st.advanceUntil("listed", "wave", func(p fleetdb.Plan) bool { return !p.Listed.IsZero() })
			if n := r.getPlan("wave").Counts[fleetdb.Queued]; n != len(vms) {
				t.Errorf("%d VMs are queued, want %d", n, len(vms))
			}
		})
	}
}

// A refused login is shown in place of the failed listing of a plan, until an operator resumes another plan of
// the source. The VMs are listed again then.
func TestPlanIsListedAgainAfterARefusedLogin(t *testing.T) {
	r := newTestFleet(t, newFakeClock())
	m := newFakeMover(t, vmsOn(1, 1)...)
	broken := true
	m.list = func(_ context.Context, _ fleetdb.Plan, found func([]fleetdb.VM) error) error {
		err := found(m.vms)
		if broken {
			return errCorrupt
		}
		return err
	}
	st := newStepper(r, m)
	r.submitPlan("wave")
	st.advanceUntil("running", "wave", isRunning)
	st.readChanges()
	if err := tryLogin(t.Context(), login.NewLimiter(r.db, "vc1:443", ""), func() error { return errDenied }); !login.IsRefusal(err) {
		t.Fatal(err)
	}
	readRefusals := func() {
		t.Helper()
		if err := st.s.readRefusals(t.Context()); err != nil {
			t.Fatal(err)
		}
		st.readChanges()
	}
	readRefusals()
	if f := r.getPlan("wave").Failure; f == nil || f.Kind != fault.Denied.String() {
		t.Fatalf("the plan shows %+v, want the refused login", f)
	}
	if err := login.DropRefusals(t.Context(), r.db, "vc1:443"); err != nil {
		t.Fatal(err)
	}
	readRefusals()
	if p := r.getPlan("wave"); p.State != fleetdb.PlanListing || p.Failure != nil {
		t.Errorf("the plan is %s with %+v, want listing", p.State, p.Failure)
	}
	broken = false
	st.advanceUntil("listed", "wave", func(p fleetdb.Plan) bool { return !p.Listed.IsZero() })
}
