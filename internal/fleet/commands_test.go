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

// holdTransfers makes transfers last until release is closed. held receives the reference of each VM that transfers.
func (m *fakeMover) holdTransfers() (held chan string, release chan struct{}) {
	held, release = make(chan string, 1000), make(chan struct{})
	m.move = func(ctx context.Context, vm fleetdb.VM, d Driver) error {
		if err := d.Storage([]string{"disk-dir:/srv/vm"}); err != nil {
			return err
		}
		giveBack, err := d.RequestSlot(ctx, fleetdb.First, time.Minute)
		if err != nil {
			return err
		}
		defer giveBack()
		m.addTransfers(vm.Host, 1)
		defer m.addTransfers(vm.Host, -1)
		held <- vm.VM
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return held, release
}

// receive returns the next value of a channel. It fails the test after waitTimeout.
func receive[T any](t testing.TB, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(waitTimeout):
		t.Fatal("timeout while waiting for a value")
	}
	return v
}

func TestCancelStopsAndUndoes(t *testing.T) {
	r := newTestFleet(t, nil)
	m := newFakeMover(t, vmsOn(6, 1)...)
	m.caps = map[string]int64{"host:*/vms": 2}
	held, release := m.holdTransfers()
	r.submitPlan("wave")
	r.startNode(r.nodeConfig(m, "w1"))
	first := receive(t, held)
	receive(t, held)
	r.sendCommand("wave/"+first, fleetdb.Cancel)
	r.waitUntil("the VM to be canceled", func() bool { return r.getVM("wave", first).State == fleetdb.Canceled })
	if n := m.undone[fleetdb.Key{Plan: "wave", VM: first}]; n != 1 {
		t.Errorf("%s was undone %d times, want 1", first, n)
	}
	receive(t, held) // another VM gets its slot
	r.sendCommand("wave", fleetdb.Rollback)
	p := r.waitEnded("wave")
	if p.Counts[fleetdb.Canceled] != 6 {
		t.Fatalf("the plan ended with %v", p.Counts)
	}
	if len(m.undone) != 3 {
		t.Errorf("%d VMs were undone, want the 3 that were started", len(m.undone))
	}
	close(release)
	r.sendCommand("wave", fleetdb.Retry)
	r.waitForVMs("wave", fleetdb.Done, 6)
}

// The cancellation of a failed VM also undoes it. An undo that fails is tried again.
func TestCancelOfAFailedVMUndoesIt(t *testing.T) {
	r := newTestFleet(t, newFakeClock())
	m := newFakeMover(t, vmsOn(1, 1)...)
	m.move = func(_ context.Context, _ fleetdb.VM, d Driver) error {
		if err := d.Storage([]string{"disk-dir:/srv/vm"}); err != nil {
			return err
		}
		return errCorrupt
	}
	var undos atomic.Int32
	m.undo = func(context.Context, fleetdb.VM) error {
		if undos.Add(1) < 3 {
			return errUnreachable
		}
		return nil
	}
	r.submitPlan("wave")
	r.startNode(r.nodeConfig(m, "w1"))
	r.waitEnded("wave")
	r.sendCommand("wave/vm-1", fleetdb.Cancel)
	r.waitUntil("the VM to be canceled", func() bool {
		r.clock.advance(10 * time.Second)
		return r.getVM("wave", "vm-1").State == fleetdb.Canceled
	})
	if n := undos.Load(); n != 3 {
		t.Errorf("%d undos, want 3", n)
	}
	if v := r.getVM("wave", "vm-1"); len(v.Storage) > 0 {
		t.Errorf("the images of the canceled VM are still recorded: %v", v.Storage)
	}
}

// A VM fails if its withdrawal is refused, and its failure names the command. A retry finds it published, and a second
// withdrawal removes it.
func TestRefusedWithdrawal(t *testing.T) {
	r := newTestFleet(t, newFakeClock())
	m := newFakeMover(t, vmsOn(1, 1)...)
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
		r.waitUntil(string(want), func() bool { return r.getVM("wave", "vm-1").State == want })
		return r.getVM("wave", "vm-1")
	}
	r.submitPlan("wave")
	r.startNode(r.nodeConfig(m, "w1"))
	r.waitEnded("wave")

	r.sendCommand("wave/vm-1", fleetdb.Withdraw)
	if f := state(fleetdb.Failed).Failure; f == nil || f.Text != "withdraw the published VM: the image is in use" || f.Hint != "shut the VM down first" {
		t.Errorf("the failure is %+v", f)
	}
	r.sendCommand("wave/vm-1", fleetdb.Retry)
	if v := state(fleetdb.Done); v.Failure != nil {
		t.Errorf("after retry: %+v", v.Failure)
	}
	runs.Store(false)
	r.sendCommand("wave/vm-1", fleetdb.Withdraw)
	state(fleetdb.Canceled)
}

func TestPausedPlanWaitsWhileOthersContinue(t *testing.T) {
	r := newTestFleet(t, nil)
	m := newFakeMover(t, vmsOn(4, 1)...)
	r.submitPlan("later")
	r.sendCommand("later", fleetdb.Pause)
	r.submitPlan("now")
	r.startNode(r.nodeConfig(m, "w1"))
	r.waitEnded("now")
	if p := r.getPlan("later"); p.Counts[fleetdb.Queued] != 4 {
		t.Errorf("the paused plan has %v", p.Counts)
	}
	r.sendCommand("later/vm-2", fleetdb.Pause)
	r.sendCommand("later", fleetdb.GoOn)
	r.waitForVMs("later", fleetdb.Done, 3)
	if v := r.getVM("later", "vm-2"); v.State != fleetdb.Queued {
		t.Errorf("the paused VM is %s", v.State)
	}
	r.sendCommand("later/vm-2", fleetdb.GoOn)
	r.waitEnded("later")
}

// A warm VM has a slot only during its transfers. Other VMs get the slot between its rounds and while it waits for its
// cutover. MTV-1543: warm VMs beyond the limit did not start until others were cut over. MTV-6021: a VM kept its slot
// during the conversion.
func TestWarmVMsReleaseSlotsBetweenRounds(t *testing.T) {
	r := newTestFleet(t, nil)
	vms := vmsOn(20, 1)
	for i := range vms {
		vms[i].Warm = true
	}
	m := newFakeMover(t, vms...)
	m.caps = map[string]int64{"host:*/vms": 2}
	cut := make(chan struct{})
	m.move = func(ctx context.Context, vm fleetdb.VM, d Driver) error {
		round := func(s fleetdb.TransferKind) error {
			giveBack, err := d.RequestSlot(ctx, s, time.Minute)
			if err != nil {
				return err
			}
			defer giveBack()
			m.addTransfers(vm.Host, 1)
			defer m.addTransfers(vm.Host, -1)
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
	r.submitPlan("wave")
	r.startNode(r.nodeConfig(m, "w1"))
	r.waitUntil("all VMs to wait for their cutover", func() bool {
		waiting := 0
		for v := range r.allVMs("wave") {
			if v.WaitReason != "" && !v.Granted {
				waiting++
			}
		}
		return waiting == 20
	})
	r.sendCommand("wave", fleetdb.CutOver)
	r.waitUntil("all VMs to get the command", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(slices.DeleteFunc(slices.Clone(m.commands), func(o fleetdb.Command) bool { return o != fleetdb.CutOver })) == 20
	})
	close(cut)
	r.waitEnded("wave")
	if most := m.maxPerHost["esx1"]; most > 2 {
		t.Errorf("%d concurrent transfers, want at most 2", most)
	}
}

func TestHooksStartOnce(t *testing.T) {
	r := newTestFleet(t, newFakeClock())
	m := newFakeMover(t, vmsOn(2, 1)...)
	var right atomic.Bool
	begun := make(chan struct{}, 10)
	m.hook = func(ctx context.Context, _ fleetdb.Plan, when string) error {
		begun <- struct{}{}
		switch {
		case right.Load():
			return nil
		case len(m.hooks) == 1: // the process ends while the hook runs
			<-ctx.Done()
			return ctx.Err()
		}
		return errOther
	}
	r.submitPlan("wave")
	n := r.startNode(r.nodeConfig(m, "w1"))
	receive(t, begun)
	n.end()
	r.startNode(r.nodeConfig(m, "w1"))
	failureContains := func(part string) func() bool {
		return func() bool {
			f := r.getPlan("wave").Failure
			return f != nil && strings.Contains(f.Text, part)
		}
	}
	r.waitUntil("the plan to report the interrupted hook", failureContains("was interrupted"))
	r.sendCommand("wave", fleetdb.GoOn)
	r.waitUntil("the plan to report the failed hook", failureContains(errOther.Error()))
	if n := r.getPlan("wave").Counts[fleetdb.Done]; n > 0 {
		t.Errorf("%d VMs were moved after a failed hook, want 0", n)
	}
	right.Store(true)
	r.sendCommand("wave", fleetdb.GoOn)
	if p := r.waitEnded("wave"); p.Counts[fleetdb.Done] != 2 {
		t.Errorf("the plan ended with %v", p.Counts)
	}
	if want := []string{preHook, preHook, preHook, postHook}; !slices.Equal(m.hooks, want) {
		t.Errorf("hooks %v, want %v", m.hooks, want)
	}
}

func TestListingIsRetried(t *testing.T) {
	r := newTestFleet(t, newFakeClock())
	m := newFakeMover(t)
	tries := 0
	m.list = func(_ context.Context, _ fleetdb.Plan, found func([]fleetdb.VM) error) error {
		tries++
		vms := vmsOn(6, 1)
		if tries < 3 { // lists some VMs, which are kept
			if err := found(vms[:tries]); err != nil {
				return err
			}
			return errUnreachable
		}
		return found(vms[2:]) // the first two VMs have disappeared
	}
	r.submitPlan("wave")
	r.startNode(r.nodeConfig(m, "w1"))
	r.waitUntil("the end of the plan", func() bool {
		if f := r.getPlan("wave").Failure; f != nil {
			r.clock.advance(time.Minute)
		}
		return r.getPlan("wave").State.IsFinal()
	})
	if p := r.getPlan("wave"); p.Counts[fleetdb.Done] != 6 || p.Failure != nil {
		t.Errorf("the plan ended with %v and failure %v", p.Counts, p.Failure)
	}
}

func TestPlanEndsIfListingFails(t *testing.T) {
	r := newTestFleet(t, nil)
	m := newFakeMover(t)
	m.list = func(context.Context, fleetdb.Plan, func([]fleetdb.VM) error) error {
		return fault.New(fault.NotFound, "VM db9 is not there")
	}
	r.submitPlan("wave")
	r.startNode(r.nodeConfig(m, "w1"))
	if p := r.waitEnded("wave"); p.State != fleetdb.PlanFailed || p.Failure.Kind != "not-found" {
		t.Errorf("the plan ended with failure %+v", p.Failure)
	}
	m.list = nil
	m.vms = vmsOn(2, 1)
	r.sendCommand("wave", fleetdb.Retry)
	r.waitForVMs("wave", fleetdb.Done, 2)
}

// allVMs returns an iterator over the VMs of a plan.
func (r *testFleet) allVMs(plan string) func(func(fleetdb.VM) bool) {
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

// A plan that is canceled before its VMs were found has failed, whether its source refused connections or never
// answered.
func TestCanceledPlanWithoutListedVMsFails(t *testing.T) {
	for _, c := range []struct {
		name string
		list func(ctx context.Context) error
		kind string
	}{
		{"refused", func(context.Context) error { return errUnreachable }, "unreachable"},
		{"silent", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, "canceled"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newTestFleet(t, newFakeClock())
			m := newFakeMover(t)
			listing := make(chan struct{}, 10)
			m.list = func(ctx context.Context, _ fleetdb.Plan, _ func([]fleetdb.VM) error) error {
				listing <- struct{}{}
				return c.list(ctx)
			}
			r.submitPlan("wave")
			r.startNode(r.nodeConfig(m, "w1"))
			receive(t, listing)
			if c.kind == "unreachable" {
				r.waitUntil("the plan to report the source", func() bool { return r.getPlan("wave").Failure != nil })
			}
			r.sendCommand("wave", fleetdb.Cancel)
			p := r.waitEnded("wave")
			if p.State != fleetdb.PlanFailed || p.Failure == nil || p.Failure.Kind != c.kind || p.Failure.Hint == "" && c.kind == "canceled" {
				t.Errorf("ended as %s with %+v", p.State, p.Failure)
			}
			m.list, m.vms = nil, vmsOn(2, 1)
			r.sendCommand("wave", fleetdb.Retry)
			r.waitForVMs("wave", fleetdb.Done, 2)
			if p := r.waitEnded("wave"); p.State != fleetdb.PlanEnded || p.Failure != nil {
				t.Errorf("retried, it ended as %s with %+v", p.State, p.Failure)
			}
		})
	}
}

// A plan whose hook before the first VM failed ends as failed when it is canceled, without the hook
// after the last VM. A retry runs the hook again.
func TestPlanWithFailedHookCanBeCanceled(t *testing.T) {
	r := newTestFleet(t, newFakeClock())
	m := newFakeMover(t, vmsOn(2, 1)...)
	var right atomic.Bool
	m.hook = func(context.Context, fleetdb.Plan, string) error {
		if right.Load() {
			return nil
		}
		return errOther
	}
	r.submitPlan("wave")
	r.startNode(r.nodeConfig(m, "w1"))
	r.waitUntil("the plan to report its hook", func() bool { return r.getPlan("wave").Failure != nil })
	r.sendCommand("wave", fleetdb.Cancel)
	if p := r.waitEnded("wave"); p.State != fleetdb.PlanFailed || !strings.Contains(p.Failure.Text, "pre hook") {
		t.Errorf("ended as %s with %+v", p.State, p.Failure)
	}
	right.Store(true)
	r.sendCommand("wave", fleetdb.Retry)
	r.waitForVMs("wave", fleetdb.Done, 2)
	if p := r.waitEnded("wave"); p.State != fleetdb.PlanEnded {
		t.Errorf("retried, it ended as %s with %+v", p.State, p.Failure)
	}
	if want := []string{preHook, preHook, postHook}; !slices.Equal(m.hooks, want) {
		t.Errorf("hooks %v, want %v", m.hooks, want)
	}
}
