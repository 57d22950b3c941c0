package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/migrate"
)

// slotQueue grants a run its transfer slot. It records the requests, and violations of the rules for the slot.
type slotQueue struct {
	grant func(ctx context.Context, s migrate.TransferKind) error // called before a slot is granted; may be nil

	mu       sync.Mutex
	requests []migrate.TransferKind // requests so far
	held     bool                   // the run has its slot
	faults   []string               // violations
}

func (l *slotQueue) requestFunc() func(context.Context, migrate.TransferKind) (func(), error) {
	if l == nil {
		return nil
	}
	return l.requestSlot
}

func (l *slotQueue) requestSlot(ctx context.Context, s migrate.TransferKind) (func(), error) {
	l.mu.Lock()
	l.requests = append(l.requests, s)
	l.mu.Unlock()
	if l.grant != nil {
		if err := l.grant(ctx, s); err != nil {
			return nil, err
		}
	}
	l.setHeld(true)
	return func() { l.setHeld(false) }, nil
}

func (l *slotQueue) setHeld(held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == held {
		l.faults = append(l.faults, fmt.Sprint("slot set twice in a row: held is ", held))
	}
	l.held = held
}

// expectHeld records a violation if the run has its slot, or does not have it, against the rules.
func (l *slotQueue) expectHeld(held bool, when string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held != held {
		l.faults = append(l.faults, fmt.Sprintf("%s: held is %v", when, l.held))
	}
}

// transferOps are the operations that need the slot.
var transferOps = map[string]bool{"freeze": true, "read": true, "write": true, "zero": true, "power off": true, "finish": true}

// stepsWithoutSlot are the steps that start when the run has no slot.
var stepsWithoutSlot = map[string]bool{
	"preflight": true, stepPrepare: true, stepTrack: true, stepVerifyRound: true, stepInspect: true, stepWait: true, stepRestore: true,
	migrate.StepDetect: true, migrate.StepConvert: true, migrate.StepVerify: true, migrate.StepCommit: true,
}

// useSlotQueue lets the run wait for its slot in a slotQueue, and checks when it has the slot.
func (b *testBed) useSlotQueue() *slotQueue {
	l := &slotQueue{}
	b.slots = l
	before := b.before
	b.before = func(ctx context.Context, op string) error {
		if transferOps[op] {
			l.expectHeld(true, op)
		}
		return before(ctx, op)
	}
	l.grant = func(context.Context, migrate.TransferKind) error {
		b.world.mu.Lock()
		defer b.world.mu.Unlock()
		if len(b.guest.snapshots) > 0 {
			l.faults = append(l.faults, "the VM has a snapshot while the run waits for its slot")
		}
		return nil
	}
	b.interfere = func(e journal.Event) bool {
		if e.Kind == journal.StepStarted && stepsWithoutSlot[e.Step] {
			l.expectHeld(false, e.Step)
		}
		return false
	}
	return l
}

func (b *testBed) checkSlots(want ...migrate.TransferKind) {
	b.t.Helper()
	for _, f := range b.slots.faults {
		b.t.Error(f)
	}
	if b.slots.held {
		b.t.Error("the run has ended and still has its slot")
	}
	if want != nil && !slices.Equal(b.slots.requests, want) {
		b.t.Errorf("requests %v, want %v", b.slots.requests, want)
	}
}

// A cold run has its slot from before its VM is powered off until the last byte is written.
func TestColdRunHoldsSlotUntilCopyEnds(t *testing.T) {
	t.Parallel()
	for _, power := range []inventory.Power{inventory.PoweredOff, inventory.PoweredOn} {
		b := newTestBed(t)
		b.vm.Power = power
		b.useSlotQueue()
		b.onEvent = func(e journal.Event) { b.interfere(e) }
		out, err := b.migrate(migrate.Permit{PowerOff: true})
		if err != nil {
			t.Fatal(err)
		}
		b.checkPublished(out)
		b.checkSlots(migrate.First)
	}
}

// A run that continues its copy, or copies a bad chunk again, requests a slot of the kind Again.
func TestContinuedCopyRequestsSlotAgain(t *testing.T) {
	t.Parallel()
	b := newInterruptedRun(t)
	b.useSlotQueue()
	b.continueRun()
	b.checkSlots(migrate.Again)

	b = newRunWithBadChunk(t)
	b.useSlotQueue()
	b.continueRun()
	b.checkSlots(migrate.Again)
}

// A warm run has its slot during its rounds, and from before the outage to the end of the last round.
func TestWarmRunHoldsSlotDuringRounds(t *testing.T) {
	t.Parallel()
	b := newWarmTestBed(t, 21)
	b.useSlotQueue()
	out, err := b.migrateWarm(3)
	if err != nil {
		t.Fatal(err)
	}
	b.checkPublished(out)
	b.checkSlots(migrate.First, migrate.Again, migrate.Again, migrate.AtCutover)
}

// A cutover that waits for another round returns its slot. The round and the cutover request slots again.
func TestSlotIsReturnedWhenTheCutoverWaits(t *testing.T) {
	t.Parallel()
	b := newWarmTestBed(t, 22)
	b.useSlotQueue()
	watch, grown := b.interfere, false
	b.interfere = func(e journal.Event) bool {
		if e.Kind == journal.StepStarted && e.Step == stepPowerOff && !grown {
			grown = b.growDisk(2000, growth)
		}
		return watch(e)
	}
	out, err := b.migrateWarm(1)
	if err != nil {
		t.Fatal(err)
	}
	b.checkPublished(out)
	b.checkSlots(migrate.First, migrate.AtCutover, migrate.Again, migrate.AtCutover)
}

// A run that is killed at any operation returns its slot, also between a snapshot and its round. The
// next attempt requests a slot before it needs one, and has no snapshot while it waits.
func TestKilledRunReleasesSlot(t *testing.T) {
	if testing.Short() {
		t.Skip("kills a run at every operation")
	}
	t.Parallel()
	probe := newWarmTestBed(t, 23)
	probe.useSlotQueue()
	if _, err := probe.migrateWarm(2); err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(probe.ops); at += killInterval * (2 + at/10) {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			t.Parallel()
			b := newWarmTestBed(t, 23)
			b.useSlotQueue()
			out, failed := b.killWarmRunAt(at)
			b.checkSlots()
			if !failed {
				b.checkPublished(out)
				return
			}
			b.powerCut()
			b.before = func(context.Context, string) error { return nil }
			b.useSlotQueue()
			out, err := b.migrateWarm(1)
			if err != nil {
				t.Fatal(err)
			}
			b.checkPublished(out)
			b.checkNoSnapshots()
			b.checkSlots()
		})
	}
}

// A run that is paused while it waits for its slot does not transfer when it gets the slot. It requests
// another one when it continues.
func TestRunPausedWhileWaitingForSlot(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	l := b.useSlotQueue()
	p := b.newProcess()
	id, slept := b.plan().ID, 0
	l.grant = func(context.Context, migrate.TransferKind) error {
		if len(l.requests) > 1 {
			return nil
		}
		return p.store.SendCommand(id, journal.Pause)
	}
	p.Options().Sleep = func(context.Context, time.Duration) error {
		l.expectHeld(false, "paused")
		if slept++; slept < 3 {
			return nil
		}
		return p.store.SendCommand(id, journal.GoOn)
	}
	out, err := p.Migrate(t.Context(), b.plan(), b.newEnvironment(t, b.dir), migrate.Permit{})
	if err := errors.Join(err, p.engine.Close()); err != nil {
		t.Fatal(err)
	}
	b.checkPublished(out)
	b.checkSlots(migrate.First, migrate.First)
	if slept != 3 {
		t.Errorf("the run waited %d times, want 3", slept)
	}
}

// A run that is stopped while it waits for its slot has created no image and can be discarded.
func TestRunStoppedWhileWaitingForSlot(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"interrupted", "canceled"} {
		b := newWarmTestBed(t, 24)
		b.vm.ChangeTracking, b.guest.tracking = false, false
		l := b.useSlotQueue()
		p := b.newProcess()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		l.grant = func(ctx context.Context, _ migrate.TransferKind) error {
			if how == "interrupted" {
				stop()
			} else if err := p.store.SendCommand(b.plan().ID, journal.GiveUp); err != nil {
				return err
			}
			<-ctx.Done()
			return ctx.Err()
		}
		_, err := p.Migrate(ctx, b.warmPlan(), b.newEnvironment(t, b.dir), migrate.Permit{})
		if !fault.Is(err, fault.Canceled) {
			t.Errorf("%s: %v (%v)", how, err, fault.KindOf(err))
		}
		if err := p.engine.Close(); err != nil {
			t.Fatal(err)
		}
		b.checkSlots(migrate.First)
		if len(b.images) > 0 {
			t.Errorf("%s: %d images, want none", how, len(b.images))
		}
		b.discardRun()
	}
}
