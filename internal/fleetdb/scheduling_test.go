package fleetdb

import (
	"errors"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

func TestOnlyWaitingVMsAreGranted(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		ctx := t.Context()
		f := newFleet(t, p.open(), 6)
		f.runVM(1, "w1")
		must(t, f.VMs.SetCommand(ctx, key(2), Pause))
		must(t, f.Workers.Leave(ctx, f.workers["w2"]))
		must(t, f.VMs.SetCommand(ctx, key(4), Cancel))
		given := []Granted{
			{Key: key(1), Worker: "w1"}, // runs, and requests no transfer
			{Key: key(2), Worker: "w1"}, // paused
			{Key: key(3), Worker: "w2"}, // its worker has left
			{Key: key(4), Worker: "w1"}, // canceled
			{Key: key(5), Worker: "w1"},
			{Key: key(7), Worker: "w1"}, // does not exist
		}
		vms := ok(f.Scheduling.Grant(ctx, f.sched, given))(t)
		if len(vms) != 1 || vms[0].Key != key(5) || vms[0].Epoch != 1 {
			t.Errorf("granted %+v, want only vm-5", vms)
		}
		must(t, f.Workers.Drain(ctx, "w1", true))
		if vms := ok(f.Scheduling.Grant(ctx, f.sched, []Granted{{Key: key(6), Worker: "w1"}}))(t); len(vms) != 0 {
			t.Errorf("granted to a drained worker: %+v", vms)
		}
		old := f.sched
		old.Epoch--
		if _, err := f.Scheduling.Grant(ctx, old, given); !errors.Is(err, ErrFenced) || !fault.Is(err, fault.Conflict) {
			t.Errorf("Grant by a former scheduler: got %v, want ErrFenced", err)
		}
	})
}

func TestVMsOfDeadWorkerAreRequeued(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		clock := newClock()
		p.now = clock.Now
		ctx := t.Context()
		f := newFleet(t, p.open(), 4)
		begun, waits, stays := f.runVM(1, "w1"), f.grantVM(2, "w1"), f.runVM(3, "w1")
		keys := []Key{key(1), key(2), key(3), key(4)}
		must(t, f.Scheduling.Requeue(ctx, f.sched, keys, "w1 is gone"))
		if v := f.getVM(1); v.State != Running {
			t.Fatalf("taken from a live worker: %+v", v)
		}
		clock.advance(2 * aMinute)
		must(t, f.Scheduling.Requeue(ctx, f.sched, []Key{key(1), key(2), key(4)}, "w1 is gone"))
		must(t, f.Scheduling.MarkStranded(ctx, f.sched, []Key{key(3), key(4)}, "only w1 has its images"))
		if v := f.getVM(1); v.State != Queued || v.Requested != Again || v.Granted || v.WaitReason != "w1 is gone" || v.Storage[0] != "id-w1" {
			t.Errorf("requeued after it began: %+v", v)
		}
		if v := f.getVM(2); v.State != Queued || v.Requested != First {
			t.Errorf("requeued before it began: %+v", v)
		}
		if v := f.getVM(3); v.State != Stranded || v.Granted || v.Worker != "w1" {
			t.Errorf("stranded: %+v", v)
		}
		if v := f.getVM(4); v.State != Queued || v.WaitReason != "" {
			t.Errorf("VM without a worker: %+v", v)
		}
		for _, c := range []Claim{begun, waits, stays} {
			if err := f.Claims.Finish(ctx, c, End{State: Done}); !errors.Is(err, ErrFenced) {
				t.Errorf("%s: Finish by the dead worker: got %v, want ErrFenced", c.VM, err)
			}
		}
		ok(f.Workers.Join(ctx, Worker{Name: "w1", VMs: 10}, aMinute))(t)
		if v := f.getVM(3); v.State != Queued || v.Requested != Again {
			t.Errorf("stranded VM after its worker joined again: %+v", v)
		}
	})
}

func TestAFailedAttemptIsRepeated(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		ctx := t.Context()
		f := newFleet(t, p.open(), 1)
		later := ok(f.Now(ctx))(t).Add(time.Hour).Truncate(time.Millisecond)
		for attempt := 1; attempt <= 2; attempt++ {
			c := f.runVM(1, "w1")
			must(t, f.Claims.Finish(ctx, c, End{State: Queued, Failure: &Failure{Kind: "unreachable", Text: "no route"}, NotBefore: later}))
			must(t, f.Claims.Finish(ctx, c, End{State: Queued, NotBefore: later})) // the response was lost
			v := f.getVM(1)
			if v.State != Queued || v.Attempts != attempt || v.Requested != Again || !v.NotBefore.Equal(later) || v.Failure.Text != "no route" || !v.Ended.IsZero() {
				t.Fatalf("attempt %d: %+v", attempt, v)
			}
		}
		must(t, f.Claims.Finish(ctx, f.runVM(1, "w1"), End{State: Failed, Failure: &Failure{Text: "no such disk"}}))
		if v := f.getVM(1); v.State != Failed || v.Attempts != 3 || v.Requested != NoTransfer || v.Ended.IsZero() {
			t.Fatalf("failed: %+v", v)
		}
		must(t, f.VMs.SetCommand(ctx, key(1), Retry))
		if v := f.getVM(1); v.State != Queued || v.Attempts != 0 || v.Requested != Again || v.Failure != nil || !v.NotBefore.IsZero() {
			t.Fatalf("retried: %+v", v)
		}
	})
}
