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

// budget is what a quiet guest's outage fits, as long as its boot is not counted.
const budget = shutdownGuess + 10*time.Second

// fitting runs decamp as a process of its own that cuts over once the outage fits budget. It
// is stopped after so many rounds, if it gets there. Returned is what it told of the outage last.
func (b *bench) fitting(boot *time.Duration, rounds int) (journal.Event, error) {
	b.t.Helper()
	p := b.process()
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
	had := len(b.told(journal.RoundDone))
	_, err := p.Migrate(ctx, b.warmPlan(), b.rig(b.t, b.dir), migrate.Permit{Cutover: migrate.Cutover{Budget: budget, Boot: boot}})
	if err := p.engine.Close(); err != nil {
		b.t.Fatal(err)
	}
	told := b.told(journal.RoundDone)
	if len(told) == had {
		return journal.Event{}, err
	}
	return told[len(told)-1], err
}

// The guest's boot counts into the outage that has to fit. Whoever continues the run counts
// with what was said, until something else is; the journal has it.
func TestWarmBootTimeCountsAndIsKept(t *testing.T) {
	t.Parallel()
	b := warmBench(t, 17)
	boot, none := 20*time.Second, time.Duration(0)
	for _, said := range []*time.Duration{&boot, nil} {
		e, err := b.fitting(said, 4)
		if !fault.Is(err, fault.Canceled) {
			t.Fatalf("it did not go on with rounds: %v", err)
		}
		if e.OutageEstimate == nil || e.OutageEstimate.Boot != boot || e.OutageEstimate.Outage < shutdownGuess+boot || !strings.Contains(e.Message, "(boot 20s)") {
			t.Errorf("told %q, %+v", e.Message, e.OutageEstimate)
		}
	}
	journal, err := journal.ReadJournal(filepath.Join(b.dir, "state", "runs", string(b.plan().ID), "journal.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	kept := 0
	for _, e := range journal {
		if e.OutageEstimate != nil && e.OutageEstimate.Boot == boot {
			kept++
		}
	}
	if kept < 6 {
		t.Errorf("the journal has it %d times", kept)
	}
	e, err := b.fitting(&none, 4)
	if err != nil {
		t.Fatalf("it did not cut over: %v", err)
	}
	if e.OutageEstimate != nil && (e.OutageEstimate.Boot != 0 || !strings.Contains(e.Message, "boot not included")) {
		t.Errorf("told %q, %+v", e.Message, e.OutageEstimate)
	}
	if b.published == nil {
		t.Error("nothing is published")
	}
}

// A boot that takes all of the budget is refused before anything is done.
func TestWarmBootThatNeverFits(t *testing.T) {
	t.Parallel()
	b := warmBench(t, 18)
	boot := budget
	if _, err := b.fitting(&boot, 4); !fault.Is(err, fault.Invalid) || fault.HintOf(err) == "" {
		t.Errorf("got %v", err)
	}
	if len(b.ops) > 0 {
		t.Errorf("it did %v", b.ops)
	}
}
