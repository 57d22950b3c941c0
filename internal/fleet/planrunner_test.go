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
	*rig
	s *scheduler
}

func newStepper(r *rig, m Mover) *stepper {
	r.Helper()
	g := &errgroup.Group{}
	s := newScheduler(r.config(m, "w1").withDefaults(), fleetdb.Lease{}, 0, g)
	s.admission.Start()
	r.Cleanup(func() {
		if err := g.Wait(); err != nil {
			r.Error(err)
		}
	})
	return &stepper{r, s}
}

// read applies what changed in the database.
func (st *stepper) read() {
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
		next(st, st.s.calls)()
	}
}

// advanceUntil reads and advances until the plan is as wanted in the database, and does not read that.
func (st *stepper) advanceUntil(what, plan string, is func(fleetdb.Plan) bool) {
	st.Helper()
	for range 10 { // no plan has more phases
		st.read()
		if st.advance(); is(st.plan(plan)) {
			return
		}
	}
	st.Fatalf("plan %s is never %s: %+v", plan, what, st.plan(plan))
}

func isOver(p fleetdb.Plan) bool    { return p.State.IsFinal() }
func isRunning(p fleetdb.Plan) bool { return p.State == fleetdb.PlanRunning }

// A plan whose hook before the first VM failed is canceled, and is retried before the scheduler reads that it
// ended. The hook runs again before VMs begin.
func TestHookRunsAgainAfterAQuickRetry(t *testing.T) {
	r := newRig(t, newClock())
	m := newMover(t, vmsOn(2, 1)...)
	fails := true
	m.hook = func(context.Context, fleetdb.Plan, string) error {
		if fails {
			return errPlain
		}
		return nil
	}
	st := newStepper(r, m)
	r.submit("wave")
	st.advanceUntil("failed", "wave", func(p fleetdb.Plan) bool { return p.Failure != nil })
	r.order("wave", fleetdb.Cancel)
	st.advanceUntil("over", "wave", isOver)
	fails = false
	r.order("wave", fleetdb.Retry)
	st.advanceUntil("running", "wave", isRunning)
	if want := []string{preHook, preHook}; !slices.Equal(m.hooks, want) {
		t.Errorf("hooks %v, want %v", m.hooks, want)
	}
	if n := r.plan("wave").Counts[fleetdb.Queued]; n != 2 {
		t.Errorf("%d VMs are queued, want 2", n)
	}
}

// An operator retries a VM while the hook after the last VM runs. The plan does not end before that VM has.
func TestPlanWithARetriedVMDoesNotEnd(t *testing.T) {
	r := newRig(t, newClock())
	m := newMover(t, vmsOn(1, 1)...)
	m.hook = func(_ context.Context, _ fleetdb.Plan, when string) error {
		if when == postHook {
			r.order("wave/vm-1", fleetdb.Retry)
		}
		return nil
	}
	st := newStepper(r, m)
	r.submit("wave")
	st.advanceUntil("running", "wave", isRunning)
	r.order("wave/vm-1", fleetdb.Cancel)
	st.advanceUntil("queued", "wave", func(p fleetdb.Plan) bool { return len(m.hooks) == 2 })
	if p := r.plan("wave"); p.State != fleetdb.PlanRunning || p.Counts[fleetdb.Queued] != 1 {
		t.Errorf("the plan is %s with VMs %v, want running and a queued VM", p.State, p.Counts)
	}
	r.order("wave/vm-1", fleetdb.Cancel)
	st.advanceUntil("over", "wave", isOver)
	if want := []string{preHook, postHook}; !slices.Equal(m.hooks, want) {
		t.Errorf("hooks %v, want %v", m.hooks, want)
	}
}

// An operator retries a canceled plan while the scheduler ends it. The plan continues.
func TestPlanThatIsRetriedDoesNotEnd(t *testing.T) {
	r := newRig(t, newClock())
	m := newMover(t)
	away := true
	m.list = func(_ context.Context, _ fleetdb.Plan, found func([]fleetdb.VM) error) error {
		if away {
			return errAway
		}
		return found(vmsOn(2, 1))
	}
	st := newStepper(r, m)
	r.submit("wave")
	st.advanceUntil("failed", "wave", func(p fleetdb.Plan) bool { return p.Failure != nil })
	r.order("wave", fleetdb.Cancel)
	st.advanceUntil("running", "wave", isRunning)
	st.read()
	away = false
	r.order("wave", fleetdb.Retry)
	st.advance() // by the rows before the retry
	if p := r.plan("wave"); p.State != fleetdb.PlanListing || p.Failure != nil {
		t.Errorf("the plan is %s with %+v, want listing", p.State, p.Failure)
	}
	st.advanceUntil("running", "wave", isRunning)
	if n := r.plan("wave").Counts[fleetdb.Queued]; n != 2 {
		t.Errorf("%d VMs are queued, want 2", n)
	}
}

// A plan is canceled before its VMs were found, and a retry is refused while its first VM is undone. The plan
// keeps its failure, and the next retry lists the VMs again.
func TestRefusedRetryLeavesThePlanUnlisted(t *testing.T) {
	r := newRig(t, newClock())
	m := newMover(t)
	vms := vmsOn(2, 1)
	m.list = func(ctx context.Context, _ fleetdb.Plan, found func([]fleetdb.VM) error) error {
		if err := found(vms[:1]); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}
	held, letGo := m.hold()
	undoing, undone := make(chan struct{}, 10), make(chan struct{})
	m.undo = func(context.Context, fleetdb.VM) error {
		undoing <- struct{}{}
		<-undone
		return nil
	}
	r.submit("wave")
	r.start(r.config(m, "w1"))
	next(t, held)
	r.order("wave", fleetdb.Cancel)
	next(t, undoing)
	r.wait("the end of the listing", func() bool { return isRunning(r.plan("wave")) })
	if err := r.ctl.CommandPlan(t.Context(), "wave", fleetdb.Retry); !fault.Is(err, fault.Conflict) {
		t.Errorf("retried while a VM is undone: %v, want a conflict", err)
	}
	close(undone)
	if p := r.waitEnded("wave"); p.State != fleetdb.PlanFailed || !p.Listed.IsZero() {
		t.Errorf("ended as %s, listed %v; want failed and not listed", p.State, p.Listed)
	}
	m.list, m.vms = nil, vms
	close(letGo)
	r.order("wave", fleetdb.Retry)
	r.waitFor("wave", fleetdb.Done, 2)
}

// The VMs of a plan could not be listed, and an operator resumes or retries it while a VM that was found runs.
// The VMs are listed again.
func TestResumeListsTheVMsAgain(t *testing.T) {
	for _, o := range []fleetdb.Command{fleetdb.GoOn, fleetdb.Retry} {
		t.Run(o.Word(), func(t *testing.T) {
			r := newRig(t, newClock())
			m := newMover(t)
			vms, found := vmsOn(2, 1), 1
			m.list = func(_ context.Context, _ fleetdb.Plan, add func([]fleetdb.VM) error) error {
				if err := add(vms[:found]); err != nil || found == len(vms) {
					return err
				}
				return errBroken
			}
			st := newStepper(r, m)
			r.submit("wave")
			st.advanceUntil("running", "wave", isRunning)
			found = len(vms)
			r.order("wave", o)
			st.advanceUntil("listed", "wave", func(p fleetdb.Plan) bool { return !p.Listed.IsZero() })
			if n := r.plan("wave").Counts[fleetdb.Queued]; n != len(vms) {
				t.Errorf("%d VMs are queued, want %d", n, len(vms))
			}
		})
	}
}

// A refused login is shown in place of the failed listing of a plan, until an operator resumes another plan of
// the source. The VMs are listed again then.
func TestPlanIsListedAgainAfterARefusedLogin(t *testing.T) {
	r := newRig(t, newClock())
	m := newMover(t, vmsOn(1, 1)...)
	broken := true
	m.list = func(_ context.Context, _ fleetdb.Plan, found func([]fleetdb.VM) error) error {
		err := found(m.vms)
		if broken {
			return errBroken
		}
		return err
	}
	st := newStepper(r, m)
	r.submit("wave")
	st.advanceUntil("running", "wave", isRunning)
	st.read()
	if err := tryLogin(t.Context(), login.NewLimiter(r.db, "vc1:443", ""), func() error { return errDenied }); !login.IsRefusal(err) {
		t.Fatal(err)
	}
	readRefusals := func() {
		t.Helper()
		if err := st.s.readRefusals(t.Context()); err != nil {
			t.Fatal(err)
		}
		st.read()
	}
	readRefusals()
	if f := r.plan("wave").Failure; f == nil || f.Kind != fault.Denied.String() {
		t.Fatalf("the plan shows %+v, want the refused login", f)
	}
	if err := login.DropRefusals(t.Context(), r.db, "vc1:443"); err != nil {
		t.Fatal(err)
	}
	readRefusals()
	if p := r.plan("wave"); p.State != fleetdb.PlanListing || p.Failure != nil {
		t.Errorf("the plan is %s with %+v, want listing", p.State, p.Failure)
	}
	broken = false
	st.advanceUntil("listed", "wave", func(p fleetdb.Plan) bool { return !p.Listed.IsZero() })
}
