package migrate_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/migrate"
)

// budget is an outage limit that a quiet guest meets if its boot is not counted.
const budget = shutdownGuess + 10*time.Second

// runWithBudget runs decamp in a new process that cuts over when the expected outage fits budget. It
// stops the run after the given number of rounds. It returns the last RoundDone event.
func (b *testBed) runWithBudget(boot *time.Duration, rounds int) (journal.Event, error) {
	b.t.Helper()
	p := b.newProcess()
	ctx, stop := context.WithCancel(b.t.Context())
	defer stop()
	clock := time.Unix(1_800_000_000, 0)
	p.Options().Now = func() time.Time { b.mu.Lock(); defer b.mu.Unlock(); return clock }
	p.Options().Sleep = func(ctx context.Context, _ time.Duration) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		clock = clock.Add(10 * time.Minute)
		return ctx.Err()
	}
	done := 0
	b.onEvent = func(e journal.Event) {
		if e.Kind != journal.RoundDone {
			return
		}
		if done++; done == rounds {
			stop()
		}
	}
	had := len(b.eventsOf(journal.RoundDone))
	_, err := p.Migrate(ctx, b.warmPlan(), b.newEnvironment(b.t, b.dir), migrate.Permit{Cutover: migrate.Cutover{Budget: budget, Boot: boot}})
	if err := p.engine.Close(); err != nil {
		b.t.Fatal(err)
	}
	events := b.eventsOf(journal.RoundDone)
	if len(events) == had {
		return journal.Event{}, err
	}
	return events[len(events)-1], err
}

// The guest's boot time is part of the outage that must fit. The journal records it, and a process that
// continues the run uses it until the user gives another one.
func TestWarmBootTimeCountsAndIsRecorded(t *testing.T) {
	t.Parallel()
	b := newWarmTestBed(t, 17)
	boot, none := 20*time.Second, time.Duration(0)
	for _, given := range []*time.Duration{&boot, nil} {
		e, err := b.runWithBudget(given, 4)
		if !fault.Is(err, fault.Canceled) {
			t.Fatalf("the run did not continue with rounds: %v", err)
		}
		if e.OutageEstimate == nil || e.OutageEstimate.Boot != boot || e.OutageEstimate.Outage < shutdownGuess+boot || !strings.Contains(e.Message, "(boot 20s)") {
			t.Errorf("message %q, estimate %+v", e.Message, e.OutageEstimate)
		}
	}
	journal, err := journal.ReadJournal(filepath.Join(b.dir, "state", "runs", string(b.plan().ID), "journal.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	recorded := 0
	for _, e := range journal {
		if e.OutageEstimate != nil && e.OutageEstimate.Boot == boot {
			recorded++
		}
	}
	if recorded < 6 {
		t.Errorf("the journal has %d estimates with the boot time, want at least 6", recorded)
	}
	e, err := b.runWithBudget(&none, 4)
	if err != nil {
		t.Fatalf("the run did not cut over: %v", err)
	}
	if e.OutageEstimate != nil && (e.OutageEstimate.Boot != 0 || !strings.Contains(e.Message, "boot not included")) {
		t.Errorf("message %q, estimate %+v", e.Message, e.OutageEstimate)
	}
	if b.published == nil {
		t.Error("no VM is published")
	}
}

// A boot time as long as the budget is refused before the first operation.
func TestWarmBootLongerThanTheBudget(t *testing.T) {
	t.Parallel()
	b := newWarmTestBed(t, 18)
	boot := budget
	if _, err := b.runWithBudget(&boot, 4); !fault.Is(err, fault.Invalid) || fault.HintOf(err) == "" {
		t.Errorf("got %v", err)
	}
	if len(b.ops) > 0 {
		t.Errorf("operations %v, want none", b.ops)
	}
}
