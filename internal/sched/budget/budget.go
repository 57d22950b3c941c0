package budget

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// A Clock is the source of time for budgets. Tests replace it.
type Clock struct {
	Now func() time.Time // returns the current time

	// AfterFunc calls f once after d, in a separate goroutine, unless it was stopped.
	AfterFunc func(d time.Duration, f func()) (stop func() bool)
}

// Wall returns the real clock.
func Wall() Clock {
	return Clock{Now: time.Now, AfterFunc: func(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }}
}

// Budgets are all budgets of a process. They are safe for concurrent use.
type Budgets struct {
	clock Clock // time for all buckets

	mu      sync.Mutex              // guards buckets and their contents
	buckets map[string]*timedBucket // budgets by name; they are never removed
}

// A timedBucket has a timer for the next piece that it lets through.
type timedBucket struct {
	bucket
	stop func() bool // stops the timer; nil while no run waits
}

// New returns budgets without any limits.
func New(c Clock) *Budgets { return &Budgets{clock: c, buckets: map[string]*timedBucket{}} }

// Set sets the rates of a budget from now on, also for the pieces that wait. It returns fault.Invalid
// for an invalid week or an empty name.
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

// bucketNamed returns the budget of that name. It adds an unlimited one if none exists. mu must be
// held.
func (s *Budgets) bucketNamed(name string) *timedBucket {
	b := s.buckets[name]
	if b == nil {
		b = &timedBucket{bucket: bucket{name: name, week: Week{Rate: Unlimited}, rate: Unlimited, tokensAt: s.clock.Now(), runs: map[string]*account{}}}
		s.buckets[name] = b
	}
	return b
}

// advanceBucket lets through the pieces that the tokens cover, and sets the timer for the next one. mu
// must be held.
func (s *Budgets) advanceBucket(b *timedBucket) {
	now := s.clock.Now()
	if b.stop != nil {
		b.stop()
		b.stop = nil
	}
	if next := b.bucket.releasePieces(now); !next.IsZero() {
		b.stop = s.clock.AfterFunc(next.Sub(now), func() { s.handleTimer(b) })
	}
}

// handleTimer is called by the timer of b, in a separate goroutine.
func (s *Budgets) handleTimer(b *timedBucket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advanceBucket(b)
}

// A Flow is one transfer of a run. All flows of a run have one share together.
type Flow struct {
	budgets *Budgets       // budgets that the flow belongs to
	run     string         // name of the run
	buckets []*timedBucket // budgets that the flow passes, by name; nil after Leave
}

// Join adds a transfer of run to the named budgets. weight is the run's share relative to others, 1 in
// general and for values that are not positive. The last flow that joins sets it for the run.
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

// Leave ends the flow. No goroutine may be in Wait.
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

// Wait returns when so many bytes may be requested within all budgets of the flow, or with ctx's error.
// Several goroutines may wait at once.
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

// Free reports whether no rate limits the flow now, so that Wait returns at once. Bytes that pass
// without Wait are in no State.
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

// waitPiece waits until one piece may pass one budget. If ctx ends first, it removes the piece from the
// queue.
func (f *Flow) waitPiece(ctx context.Context, b *timedBucket, piece int64) error {
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

// State is the state of one budget, for a status page.
type State struct {
	Name    string `json:"name"`    // name of the budget
	Rate    int64  `json:"rate"`    // current rate in bytes per second; Unlimited is no limit
	Passed  int64  `json:"passed"`  // bytes that passed by Wait since the process began
	Runs    int    `json:"runs"`    // number of runs that use it
	Waiting int    `json:"waiting"` // number of pieces that wait
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
