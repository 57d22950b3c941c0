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

// line is what a run waits in for its turn. It sees what is done with the turn and without.
type line struct {
	grant func(ctx context.Context, s migrate.TransferKind) error // before a turn is granted; nil: at once

	mu     sync.Mutex
	asks   []migrate.TransferKind
	held   bool
	faults []string
}

func (l *line) asked() func(context.Context, migrate.TransferKind) (func(), error) {
	if l == nil {
		return nil
	}
	return l.turn
}

func (l *line) turn(ctx context.Context, s migrate.TransferKind) (func(), error) {
	l.mu.Lock()
	l.asks = append(l.asks, s)
	l.mu.Unlock()
	if l.grant != nil {
		if err := l.grant(ctx, s); err != nil {
			return nil, err
		}
	}
	l.set(true)
	return func() { l.set(false) }, nil
}

func (l *line) set(held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == held {
		l.faults = append(l.faults, fmt.Sprint("twice in a row: held is ", held))
	}
	l.held = held
}

// expect records when the turn is not as it must be.
func (l *line) expect(held bool, when string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held != held {
		l.faults = append(l.faults, fmt.Sprintf("%s: held is %v", when, l.held))
	}
}

// transfers are the operations that need the turn.
var transfers = map[string]bool{"freeze": true, "read": true, "write": true, "zero": true, "power off": true, "finish": true}

// withoutTurn are the steps that begin when the run has none.
var withoutTurn = map[string]bool{
	"preflight": true, stepPrepare: true, stepTrack: true, stepVerifyRound: true, stepInspect: true, stepWait: true, stepRestore: true,
	migrate.StepDetect: true, migrate.StepConvert: true, migrate.StepVerify: true, migrate.StepCommit: true,
}

// inLine makes the bench's run wait in a line, and watches it.
func (b *bench) inLine() *line {
	l := &line{}
	b.line = l
	before := b.before
	b.before = func(ctx context.Context, op string) error {
		if transfers[op] {
			l.expect(true, op)
		}
		return before(ctx, op)
	}
	l.grant = func(context.Context, migrate.TransferKind) error {
		b.world.mu.Lock()
		defer b.world.mu.Unlock()
		if len(b.guest.snapshots) > 0 {
			l.faults = append(l.faults, "a snapshot stands while the run is in line")
		}
		return nil
	}
	b.meddle = func(e journal.Event) bool {
		if e.Kind == journal.StepStarted && withoutTurn[e.Step] {
			l.expect(false, e.Step)
		}
		return false
	}
	return l
}

func (b *bench) checkLine(want ...migrate.TransferKind) {
	b.t.Helper()
	for _, f := range b.line.faults {
		b.t.Error(f)
	}
	if b.line.held {
		b.t.Error("the run is left and has its turn")
	}
	if want != nil && !slices.Equal(b.line.asks, want) {
		b.t.Errorf("asked for %v, want %v", b.line.asks, want)
	}
}

// A cold run has its turn from before its VM is switched off until the last byte is written.
func TestTurnOfAColdRun(t *testing.T) {
	t.Parallel()
	for _, power := range []inventory.Power{inventory.PoweredOff, inventory.PoweredOn} {
		b := newBench(t)
		b.vm.Power = power
		b.inLine()
		b.onEvent = func(e journal.Event) { b.meddle(e) }
		out, err := b.migrate(migrate.Permit{PowerOff: true})
		if err != nil {
			t.Fatal(err)
		}
		b.checkPublished(out)
		b.checkLine(migrate.First)
	}
}

// One that goes on says so, wherever it was killed, and so does one that mends.
func TestTurnOfACopyThatGoesOn(t *testing.T) {
	t.Parallel()
	b := interrupted(t)
	b.inLine()
	b.continued()
	b.checkLine(migrate.Again)

	b = flipped(t)
	b.inLine()
	b.continued()
	b.checkLine(migrate.Again)
}

// A warm run has its turn in its rounds and from before the outage to the end of the last one,
// and at no other time.
func TestTurnOfAWarmRun(t *testing.T) {
	t.Parallel()
	b := warmBench(t, 21)
	b.inLine()
	out, err := b.warm(3)
	if err != nil {
		t.Fatal(err)
	}
	b.checkPublished(out)
	b.checkLine(migrate.First, migrate.Again, migrate.Again, migrate.AtCutover)
}

// A disk that grew is compared before the VM is switched off, in a turn of its own.
func TestTurnIsGivenBackWhenTheCutoverHasToWait(t *testing.T) {
	t.Parallel()
	b := warmBench(t, 22)
	b.inLine()
	watch, grown := b.meddle, false
	b.meddle = func(e journal.Event) bool {
		if e.Kind == journal.StepStarted && e.Step == stepPowerOff && !grown {
			grown = b.grow(2000, growth)
		}
		return watch(e)
	}
	out, err := b.warm(1)
	if err != nil {
		t.Fatal(err)
	}
	b.checkPublished(out)
	b.checkLine(migrate.First, migrate.AtCutover, migrate.Again, migrate.AtCutover)
}

// Killed anywhere, also between a snapshot and its round, a run has no turn any more, and the
// next attempt asks for one before it needs it. It has no snapshot while it is in line.
func TestTurnAfterAKill(t *testing.T) {
	if testing.Short() {
		t.Skip("kills a run at every operation")
	}
	t.Parallel()
	probe := warmBench(t, 23)
	probe.inLine()
	if _, err := probe.warm(2); err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(probe.ops); at += sparse * (2 + at/10) {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			t.Parallel()
			b := warmBench(t, 23)
			b.inLine()
			out, failed := b.warmKilledAt(at)
			b.checkLine()
			if !failed {
				b.checkPublished(out)
				return
			}
			b.powerCut()
			b.before = func(context.Context, string) error { return nil }
			b.inLine()
			out, err := b.warm(1)
			if err != nil {
				t.Fatal(err)
			}
			b.checkPublished(out)
			b.nothingLeft()
			b.checkLine()
		})
	}
}

// A run that is paused while it stands in line does not transfer when its turn comes, and asks
// again when it is to go on.
func TestPausedInLine(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	l := b.inLine()
	p := b.process()
	id, slept := b.plan().ID, 0
	l.grant = func(context.Context, migrate.TransferKind) error {
		if len(l.asks) > 1 {
			return nil
		}
		return p.store.SendCommand(id, journal.Pause)
	}
	p.Options().Sleep = func(context.Context, time.Duration) error {
		l.expect(false, "paused")
		if slept++; slept < 3 {
			return nil
		}
		return p.store.SendCommand(id, journal.GoOn)
	}
	out, err := p.Migrate(t.Context(), b.plan(), b.rig(t, b.dir), migrate.Permit{})
	if err := errors.Join(err, p.engine.Close()); err != nil {
		t.Fatal(err)
	}
	b.checkPublished(out)
	b.checkLine(migrate.First, migrate.First)
	if slept != 3 {
		t.Errorf("looked %d times before it was to go on", slept)
	}
}

// One that is stopped while it stands in line leaves nothing, and goes on later.
func TestStoppedInLine(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"interrupted", "canceled"} {
		b := warmBench(t, 24)
		b.vm.ChangeTracking, b.guest.tracking = false, false
		l := b.inLine()
		p := b.process()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		l.grant = func(line context.Context, _ migrate.TransferKind) error {
			if how == "interrupted" {
				stop()
			} else if err := p.store.SendCommand(b.plan().ID, journal.GiveUp); err != nil {
				return err
			}
			<-line.Done()
			return line.Err()
		}
		_, err := p.Migrate(ctx, b.warmPlan(), b.rig(t, b.dir), migrate.Permit{})
		if !fault.Is(err, fault.Canceled) {
			t.Errorf("%s: %v (%v)", how, err, fault.KindOf(err))
		}
		if err := p.engine.Close(); err != nil {
			t.Fatal(err)
		}
		b.checkLine(migrate.First)
		if len(b.images) > 0 {
			t.Errorf("%s: %d images", how, len(b.images))
		}
		b.giveUp()
	}
}
