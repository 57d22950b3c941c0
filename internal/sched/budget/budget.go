package budget

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// A Clock is the time as budgets see it.
type Clock struct {
	Now func() time.Time

	// AfterFunc calls f once after d, in a separate goroutine, unless it was stopped.
	AfterFunc func(d time.Duration, f func()) (stop func() bool)
}

// Wall is the real clock.
func Wall() Clock {
	return Clock{Now: time.Now, AfterFunc: func(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }}
}

// Budgets are all rates of a process.
type Budgets struct {
	clock Clock

	mu      sync.Mutex
	buckets map[string]*timed
}

// A timed bucket has a timer set for when it lets the next piece through.
type timed struct {
	bucket
	stop func() bool // stops the timer; nil while no run waits
}

// New returns budgets without any limits.
func New(c Clock) *Budgets { return &Budgets{clock: c, buckets: map[string]*timed{}} }

// Set gives a budget its rates, from now on and for those who wait, too.
func (s *Budgets) Set(name string, w Week) error {
	if err := w.check(); err != nil {
		return err
	}
	if name == "" {
		return fault.New(fault.Invalid, "a budget without a name")
	}
	w.Rules = slices.Clone(w.Rules)
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.bucketNamed(name)
	b.setWeek(s.clock.Now(), w)
	s.advanceBucket(b)
	return nil
}

// bucketNamed returns the budget of that name, unlimited where it is new. Under mu.
func (s *Budgets) bucketNamed(name string) *timed {
	b := s.buckets[name]
	if b == nil {
		b = &timed{bucket: bucket{name: name, week: Week{Rate: Unlimited}, rate: Unlimited, tokensAt: s.clock.Now(), runs: map[string]*account{}}}
		s.buckets[name] = b
	}
	return b
}

// advanceBucket lets through what there is room for, and sets the timer for the next. Under mu.
func (s *Budgets) advanceBucket(b *timed) {
	now := s.clock.Now()
	if b.stop != nil {
		b.stop()
		b.stop = nil
	}
	if next := b.bucket.releasePieces(now); !next.IsZero() {
		b.stop = s.clock.AfterFunc(next.Sub(now), func() { s.handleTimer(b) })
	}
}

func (s *Budgets) handleTimer(b *timed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advanceBucket(b)
}

// A Flow is one transfer of a run. All flows of a run count as one where shares are cut.
type Flow struct {
	budgets *Budgets
	run     string
	buckets []*timed
}

// Join has a transfer of run pass the named budgets from now on. Weight is the run's claim
// against others, 1 in general; the last that joins sets it for the run.
func (s *Budgets) Join(run string, weight float64, names ...string) *Flow {
	if !(weight > 0) {
		weight = 1
	}
	names = slices.Clone(names)
	slices.Sort(names)
	f := &Flow{budgets: s, run: run}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Compact(names) {
		b := s.bucketNamed(name)
		if b.runs[run] == nil {
			b.runs[run] = &account{finish: b.virtualTime}
		}
		b.runs[run].flows++
		b.runs[run].weight = weight
		f.buckets = append(f.buckets, b)
	}
	return f
}

// Leave ends the flow. Nobody may be in Wait.
func (f *Flow) Leave() {
	f.budgets.mu.Lock()
	defer f.budgets.mu.Unlock()
	for _, b := range f.buckets {
		if a := b.runs[f.run]; a != nil {
			if a.flows--; a.flows == 0 {
				delete(b.runs, f.run)
			}
		}
	}
	f.buckets = nil
}

// Wait returns once bytes may be asked for within all budgets of the flow, or with ctx's
// error. Several goroutines may wait at once.
func (f *Flow) Wait(ctx context.Context, bytes int64) error {
	for bytes > 0 {
		piece := min(bytes, Piece)
		for _, b := range f.buckets {
			if err := f.waitPiece(ctx, b, piece); err != nil {
				return err
			}
		}
		bytes -= piece
	}
	return ctx.Err()
}

// Free reports whether nothing bounds the flow now: to Wait would take no time. What passes unasked
// is in no State.
func (f *Flow) Free() bool {
	f.budgets.mu.Lock()
	defer f.budgets.mu.Unlock()
	for _, b := range f.buckets {
		if !b.isUnlimited() {
			return false
		}
	}
	return true
}

// isUnlimited reports whether the rate is unlimited at any time, and no run waits from an earlier limit.
func (b *bucket) isUnlimited() bool {
	return b.week.Rate == Unlimited && len(b.week.Rules) == 0 && len(b.queue) == 0
}

// waitPiece waits for one piece at one budget.
func (f *Flow) waitPiece(ctx context.Context, b *timed, piece int64) error {
	f.budgets.mu.Lock()
	t := b.enqueuePiece(f.run, piece)
	f.budgets.advanceBucket(b)
	f.budgets.mu.Unlock()
	select {
	case <-t.pass: // closed by advance
		return nil
	case <-ctx.Done():
		f.budgets.mu.Lock()
		defer f.budgets.mu.Unlock()
		b.removePiece(t)
		return ctx.Err()
	}
}

// State is one budget, for a status page.
type State struct {
	Name    string `json:"name"`
	Rate    int64  `json:"rate"`    // current rate in bytes per second; Unlimited is no limit
	Passed  int64  `json:"passed"`  // bytes since the process began, of those who asked
	Runs    int    `json:"runs"`    // number of runs that use it
	Waiting int    `json:"waiting"` // pieces
}

// States returns all budgets by name.
func (s *Budgets) States() []State {
	s.mu.Lock()
	defer s.mu.Unlock()
	var states []State
	for _, b := range s.buckets {
		s.advanceBucket(b)
		states = append(states, State{b.name, b.rate, b.passed, len(b.runs), len(b.queue)})
	}
	slices.SortFunc(states, func(a, b State) int { return strings.Compare(a.Name, b.Name) })
	return states
}
