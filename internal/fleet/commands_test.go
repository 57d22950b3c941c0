package fleet

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
)

// hold makes transfers last until they are let go; it tells of each that it holds.
func (m *mover) hold() (held chan string, letGo chan struct{}) {
	held, letGo = make(chan string, 1000), make(chan struct{})
	m.move = func(ctx context.Context, vm fleetdb.VM, d Driver) error {
		if err := d.Storage([]string{"disk-dir:/srv/vm"}); err != nil {
			return err
		}
		back, err := d.RequestSlot(ctx, fleetdb.First, time.Minute)
		if err != nil {
			return err
		}
		defer back()
		m.busy(vm.Host, 1)
		defer m.busy(vm.Host, -1)
		held <- vm.VM
		select {
		case <-letGo:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return held, letGo
}

// next returns what a channel has within the patience.
func next[T any](t testing.TB, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(patience):
		t.Fatal("waited in vain")
	}
	return v
}

func TestCancelStopsAndUndoes(t *testing.T) {
	r := newRig(t, nil)
	m := newMover(t, vmsOn(6, 1)...)
	m.caps = map[string]int64{"host:*/vms": 2}
	held, letGo := m.hold()
	r.submit("wave")
	r.start(r.config(m, "w1"))
	first := next(t, held)
	next(t, held)
	r.order("wave/"+first, fleetdb.Cancel)
	r.wait("it to be canceled", func() bool { return r.vm("wave", first).State == fleetdb.Canceled })
	if n := m.undone[fleetdb.Key{Plan: "wave", VM: first}]; n != 1 {
		t.Errorf("undone %d times", n)
	}
	next(t, held) // its slot is another's now
	r.order("wave", fleetdb.Rollback)
	p := r.waitEnded("wave")
	if p.Counts[fleetdb.Canceled] != 6 {
		t.Fatalf("ended with %v", p.Counts)
	}
	if len(m.undone) != 3 {
		t.Errorf("%d VMs were undone, and 3 begun", len(m.undone))
	}
	close(letGo)
	r.order("wave", fleetdb.Retry)
	r.waitFor("wave", fleetdb.Done, 6)
}

// What is left of a failed VM is undone, too; and an undo that fails is tried again.
func TestCancelOfAFailedVMUndoesIt(t *testing.T) {
	r := newRig(t, newClock())
	m := newMover(t, vmsOn(1, 1)...)
	m.move = func(_ context.Context, _ fleetdb.VM, d Driver) error {
		if err := d.Storage([]string{"disk-dir:/srv/vm"}); err != nil {
			return err
		}
		return errBroken
	}
	var undos atomic.Int32
	m.undo = func(context.Context, fleetdb.VM) error {
		if undos.Add(1) < 3 {
			return errAway
		}
		return nil
	}
	r.submit("wave")
	r.start(r.config(m, "w1"))
	r.waitEnded("wave")
	r.order("wave/vm-1", fleetdb.Cancel)
	r.wait("it to be canceled", func() bool {
		r.clock.add(10 * time.Second)
		return r.vm("wave", "vm-1").State == fleetdb.Canceled
	})
	if n := undos.Load(); n != 3 {
		t.Errorf("%d undos", n)
	}
	if v := r.vm("wave", "vm-1"); len(v.Storage) > 0 {
		t.Errorf("its images are still on record: %v", v.Storage)
	}
}

// A withdrawal that is refused leaves a failed VM that names the order. Retry then finds it published, and
// a second withdrawal removes it.
func TestRefusedWithdrawal(t *testing.T) {
	r := newRig(t, newClock())
	m := newMover(t, vmsOn(1, 1)...)
	m.move = func(_ context.Context, _ fleetdb.VM, d Driver) error { return d.Storage([]string{"disk-dir:/srv/vm"}) }
	var runs atomic.Bool
	runs.Store(true)
	m.undo = func(context.Context, fleetdb.VM) error {
		if runs.Load() {
			return fault.New(fault.Conflict, "the image is in use").WithHint("shut the VM down first")
		}
		return nil
	}
	state := func(want fleetdb.State) fleetdb.VM {
		r.wait(string(want), func() bool { return r.vm("wave", "vm-1").State == want })
		return r.vm("wave", "vm-1")
	}
	r.submit("wave")
	r.start(r.config(m, "w1"))
	r.waitEnded("wave")

	r.order("wave/vm-1", fleetdb.Withdraw)
	if f := state(fleetdb.Failed).Failure; f == nil || f.Text != "withdraw the published VM: the image is in use" || f.Hint != "shut the VM down first" {
		t.Errorf("the failure is %+v", f)
	}
	r.order("wave/vm-1", fleetdb.Retry)
	if v := state(fleetdb.Done); v.Failure != nil {
		t.Errorf("after retry: %+v", v.Failure)
	}
	runs.Store(false)
	r.order("wave/vm-1", fleetdb.Withdraw)
	state(fleetdb.Canceled)
}

func TestPausedPlanBeginsNothingAndOthersGoOn(t *testing.T) {
	r := newRig(t, nil)
	m := newMover(t, vmsOn(4, 1)...)
	r.submit("later")
	r.order("later", fleetdb.Pause)
	r.submit("now")
	r.start(r.config(m, "w1"))
	r.waitEnded("now")
	if p := r.plan("later"); p.Counts[fleetdb.Queued] != 4 {
		t.Errorf("the paused plan has %v", p.Counts)
	}
	r.order("later/vm-2", fleetdb.Pause)
	r.order("later", fleetdb.GoOn)
	r.waitFor("later", fleetdb.Done, 3)
	if v := r.vm("later", "vm-2"); v.State != fleetdb.Queued {
		t.Errorf("the paused VM is %s", v.State)
	}
	r.order("later/vm-2", fleetdb.GoOn)
	r.waitEnded("later")
}

// A warm VM holds its slot for exactly its transfers: between rounds and while it waits for
// its cutover others have it. MTV-1543: warm VMs beyond the limit did not start until others
// were cut over; MTV-6021: the slot was held through the conversion.
func TestWarmVMsHoldNothingBetweenRounds(t *testing.T) {
	r := newRig(t, nil)
	vms := vmsOn(20, 1)
	for i := range vms {
		vms[i].Warm = true
	}
	m := newMover(t, vms...)
	m.caps = map[string]int64{"host:*/vms": 2}
	cut := make(chan struct{})
	m.move = func(ctx context.Context, vm fleetdb.VM, d Driver) error {
		round := func(s fleetdb.TransferKind) error {
			back, err := d.RequestSlot(ctx, s, time.Minute)
			if err != nil {
				return err
			}
			defer back()
			m.busy(vm.Host, 1)
			defer m.busy(vm.Host, -1)
			return nil
		}
		for _, s := range []fleetdb.TransferKind{fleetdb.First, fleetdb.Again} {
			if err := round(s); err != nil {
				return err
			}
		}
		d.Step("wait", "for the cutover")
		select {
		case <-cut:
		case <-ctx.Done():
			return ctx.Err()
		}
		return round(fleetdb.Cutover)
	}
	r.submit("wave")
	r.start(r.config(m, "w1"))
	r.wait("all to wait for their cutover", func() bool {
		waiting := 0
		for v := range r.each("wave") {
			if v.WaitReason != "" && !v.Granted {
				waiting++
			}
		}
		return waiting == 20
	})
	r.order("wave", fleetdb.CutOver)
	r.wait("all to be told", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(slices.DeleteFunc(slices.Clone(m.orders), func(o fleetdb.Command) bool { return o != fleetdb.CutOver })) == 20
	})
	close(cut)
	r.waitEnded("wave")
	if most := m.most["esx1"]; most > 2 {
		t.Errorf("%d transfers at a time, of 2", most)
	}
}

func TestHooksAreBegunOnce(t *testing.T) {
	r := newRig(t, newClock())
	m := newMover(t, vmsOn(2, 1)...)
	var right atomic.Bool
	begun := make(chan struct{}, 10)
	m.hook = func(ctx context.Context, _ fleetdb.Plan, when string) error {
		begun <- struct{}{}
		switch {
		case right.Load():
			return nil
		case len(m.hooks) == 1: // the process ends under it
			<-ctx.Done()
			return ctx.Err()
		}
		return errPlain
	}
	r.submit("wave")
	n := r.start(r.config(m, "w1"))
	next(t, begun)
	n.end()
	r.start(r.config(m, "w1"))
	says := func(part string) func() bool {
		return func() bool {
			f := r.plan("wave").Failure
			return f != nil && strings.Contains(f.Text, part)
		}
	}
	r.wait("the plan to say that the hook was cut off", says("was interrupted"))
	r.order("wave", fleetdb.GoOn)
	r.wait("the plan to say that the hook failed", says(errPlain.Error()))
	if n := r.plan("wave").Counts[fleetdb.Done]; n > 0 {
		t.Errorf("%d VMs were moved behind a hook that failed", n)
	}
	right.Store(true)
	r.order("wave", fleetdb.GoOn)
	if p := r.waitEnded("wave"); p.Counts[fleetdb.Done] != 2 {
		t.Errorf("ended with %v", p.Counts)
	}
	if want := []string{preHook, preHook, preHook, postHook}; !slices.Equal(m.hooks, want) {
		t.Errorf("hooks %v, want %v", m.hooks, want)
	}
}

func TestListingIsTriedAgain(t *testing.T) {
	r := newRig(t, newClock())
	m := newMover(t)
	tries := 0
	m.list = func(_ context.Context, _ fleetdb.Plan, tell func([]fleetdb.VM) error) error {
		tries++
		vms := vmsOn(6, 1)
		if tries < 3 { // part of it comes, and stays
			if err := tell(vms[:tries]); err != nil {
				return err
			}
			return errAway
		}
		return tell(vms[2:]) // two of those that were found are gone meanwhile
	}
	r.submit("wave")
	r.start(r.config(m, "w1"))
	r.wait("the end", func() bool {
		if f := r.plan("wave").Failure; f != nil {
			r.clock.add(time.Minute)
		}
		return r.plan("wave").State.IsFinal()
	})
	if p := r.plan("wave"); p.Counts[fleetdb.Done] != 6 || p.Failure != nil {
		t.Errorf("ended with %v, %v", p.Counts, p.Failure)
	}
}

func TestPlanThatCannotBeListedEnds(t *testing.T) {
	r := newRig(t, nil)
	m := newMover(t)
	m.list = func(context.Context, fleetdb.Plan, func([]fleetdb.VM) error) error {
		return fault.New(fault.NotFound, "VM db9 is not there")
	}
	r.submit("wave")
	r.start(r.config(m, "w1"))
	if p := r.waitEnded("wave"); p.State != fleetdb.PlanFailed || p.Failure.Kind != "not-found" {
		t.Errorf("ended with %+v", p.Failure)
	}
	m.list = nil
	m.vms = vmsOn(2, 1)
	r.order("wave", fleetdb.Retry)
	r.waitFor("wave", fleetdb.Done, 2)
}

// each ranges over the VMs of a plan.
func (r *rig) each(plan string) func(func(fleetdb.VM) bool) {
	all, err := r.db.VMs.List(r.Context(), fleetdb.Query{Plan: plan})
	if err != nil {
		r.Fatal(err)
	}
	return func(yield func(fleetdb.VM) bool) {
		for _, v := range all {
			if !yield(v) {
				return
			}
		}
	}
}

// A plan that is canceled before its VMs were found moved nothing: it has failed, whether its source
// refused connections or never answered.
func TestPlanWhoseSourceNeverAnsweredFails(t *testing.T) {
	for _, c := range []struct {
		name string
		list func(ctx context.Context) error
		kind string
	}{
		{"refused", func(context.Context) error { return errAway }, "unreachable"},
		{"silent", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, "canceled"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, newClock())
			m := newMover(t)
			asked := make(chan struct{}, 10)
			m.list = func(ctx context.Context, _ fleetdb.Plan, _ func([]fleetdb.VM) error) error {
				asked <- struct{}{}
				return c.list(ctx)
			}
			r.submit("wave")
			r.start(r.config(m, "w1"))
			next(t, asked)
			if c.kind == "unreachable" {
				r.wait("the plan to report the source", func() bool { return r.plan("wave").Failure != nil })
			}
			r.order("wave", fleetdb.Cancel)
			p := r.waitEnded("wave")
			if p.State != fleetdb.PlanFailed || p.Failure == nil || p.Failure.Kind != c.kind || p.Failure.Hint == "" && c.kind == "canceled" {
				t.Errorf("ended as %s with %+v", p.State, p.Failure)
			}
			m.list, m.vms = nil, vmsOn(2, 1)
			r.order("wave", fleetdb.Retry)
			r.waitFor("wave", fleetdb.Done, 2)
			if p := r.waitEnded("wave"); p.State != fleetdb.PlanEnded || p.Failure != nil {
				t.Errorf("retried, it ended as %s with %+v", p.State, p.Failure)
			}
		})
	}
}

// A plan whose hook before the first VM failed ends as failed when it is canceled, without the hook
// after the last VM. A retry runs the hook again.
func TestPlanWhoseHookFailedCanBeCanceled(t *testing.T) {
	r := newRig(t, newClock())
	m := newMover(t, vmsOn(2, 1)...)
	var right atomic.Bool
	m.hook = func(context.Context, fleetdb.Plan, string) error {
		if right.Load() {
			return nil
		}
		return errPlain
	}
	r.submit("wave")
	r.start(r.config(m, "w1"))
	r.wait("the plan to report its hook", func() bool { return r.plan("wave").Failure != nil })
	r.order("wave", fleetdb.Cancel)
	if p := r.waitEnded("wave"); p.State != fleetdb.PlanFailed || !strings.Contains(p.Failure.Text, "pre hook") {
		t.Errorf("ended as %s with %+v", p.State, p.Failure)
	}
	right.Store(true)
	r.order("wave", fleetdb.Retry)
	r.waitFor("wave", fleetdb.Done, 2)
	if p := r.waitEnded("wave"); p.State != fleetdb.PlanEnded {
		t.Errorf("retried, it ended as %s with %+v", p.State, p.Failure)
	}
	if want := []string{preHook, preHook, postHook}; !slices.Equal(m.hooks, want) {
		t.Errorf("hooks %v, want %v", m.hooks, want)
	}
}
