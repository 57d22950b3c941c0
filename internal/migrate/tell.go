package migrate

import (
	"slices"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/bottleneck"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/plan"
)

// tell completes an event and hands it to the journal and to whoever listens. A journal
// that cannot be written is no reason to stop a migration; flow's record decides. Runs do not
// wait for each other's journals.
func (m *Migrator) tell(id plan.ID, e plan.Event) {
	if err := m.journal(id, e); err != nil {
		m.opts.Log.Error("event is not journaled", "run", id, "err", err)
	}
}

// journal is tell for an event that must be there in the end.
func (m *Migrator) journal(id plan.ID, e plan.Event) (err error) {
	e.Run = id
	a := m.attending(id)
	if a == nil {
		e.Time = m.opts.Now()
		m.notify(e)
		return nil
	}
	a.telling.Lock()
	defer a.telling.Unlock()
	e.Time = m.opts.Now()
	err = a.journal.Append(e)
	m.notify(e)
	return err
}

func (m *Migrator) notify(e plan.Event) {
	m.notifying.Lock()
	defer m.notifying.Unlock()
	m.opts.Notify(e)
}

// tellDone puts the end of a run that is done on record, if whoever drove it to there did not
// come to it: it was killed, or had no room.
func (m *Migrator) tellDone(id plan.ID) error {
	r, err := m.store.Run(id)
	if fault.Is(err, fault.NotFound) || r.State == plan.Done { // it was done on another machine: its journal is there
		return nil
	}
	if err != nil {
		return err
	}
	return m.record(id, plan.Event{Kind: plan.RunDone})
}

func (m *Migrator) attending(id plan.ID) *attendance {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.runs[id]
}

func (r *Run) tell(e plan.Event) {
	e.Step = r.step
	r.m.tell(r.Plan.ID, e)
}

// warn adds a warning once: a step that runs again finds the same things.
func (r *Run) warn(w inventory.Warning) {
	r.m.warning.Lock()
	had := slices.Contains(r.Facts.Warnings, w)
	if !had {
		r.Facts.Warnings = append(r.Facts.Warnings, w)
	}
	r.m.warning.Unlock()
	if had {
		return
	}
	r.tell(plan.Event{Kind: plan.Warned, Warning: &w})
}

// addStage adds to where the time went. What a warm run does in every round is one stage.
func (r *Run) addStage(s plan.Stage) {
	if r.Facts.Warm != nil {
		for i := range r.Facts.Stages {
			if had := &r.Facts.Stages[i]; had.Name == s.Name {
				had.Bytes += s.Bytes
				had.Moved += s.Moved
				had.Elapsed += s.Elapsed
				had.Working += s.Working
				had.Source += s.Source
				had.Target += s.Target
				return
			}
		}
	}
	r.Facts.Stages = append(r.Facts.Stages, s)
}

// A meter turns the progress of one disk into events, a few a second, with the rate of
// the last seconds.
type meter struct {
	r   *Run
	key int32

	mu   sync.Mutex
	past []reading // the last few seconds, oldest first
	told time.Time
}

type reading struct {
	at    time.Time
	done  int64 // bytes of the disk, zeros included
	read  int64 // bytes moved
	times blockcopy.Times
}

const (
	meterEvery  = 200 * time.Millisecond
	meterWindow = 5 * time.Second

	// shortestRate is the time that a rate is over at least: bytes that a budget lets through at once
	// would be a rate above it else.
	shortestRate = time.Second
)

func (r *Run) meter(key int32) *meter { return &meter{r: r, key: key} }

func (m *meter) copying(p blockcopy.Progress) {
	m.show(plan.Bytes{Total: p.Size, Done: p.Done, Skipped: p.Skipped, Read: p.Read, Zero: max(p.Done-p.Written, 0)}, p.Times)
}

func (m *meter) verifying(p manifest.Progress) {
	m.show(plan.Bytes{Total: p.Size, Done: p.Done, Read: p.Read}, blockcopy.Times{})
}

// delivering is of all disks together: key is 0. How much of it is sent is not known, so there is no rate.
func (m *meter) delivering(done, total int64) {
	m.show(plan.Bytes{Total: total, Done: done}, blockcopy.Times{})
}

func (m *meter) show(b plan.Bytes, t blockcopy.Times) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.r.opts.Now()
	last := b.Done+b.Skipped == b.Total
	if now.Sub(m.told) < meterEvery && !last {
		return
	}
	m.told = now
	m.lately(&b, reading{now, b.Done, b.Read, t})
	m.r.tell(plan.Event{Kind: plan.Progressed, Disk: m.key, Bytes: &b})
}

// lately sets what is known from the readings of the last meterWindow.
func (m *meter) lately(b *plan.Bytes, now reading) {
	m.past = append(m.past, now)
	for len(m.past) > 2 && now.at.Sub(m.past[1].at) >= meterWindow {
		m.past = m.past[1:]
	}
	first := m.past[0]
	d := now.at.Sub(first.at)
	if d <= 0 {
		return
	}
	b.Rate = perSecond(now.read-first.read, max(d, shortestRate))
	b.Left = at(b.Total-b.Done-b.Skipped, perSecond(now.done-first.done, d))
	b.Busy = busyOf(first.times, now.times, d)
}

// busyOf says what kept a copy's readers, and what its writers, within d. It is zero where nobody
// reads. Of a landing the host is the reader.
func busyOf(was, is blockcopy.Times, d time.Duration) (busy bottleneck.Busy) {
	source, budget := max(float64(is.ReadTime-was.ReadTime), 0), float64(is.PaceWait-was.PaceWait)
	processor, target := float64(is.HashTime-was.HashTime), float64(is.WindowWait-was.WindowWait)
	readers := source + budget + processor + target
	if readers <= 0 || is.Writers == 0 {
		return busy
	}
	hash, write := float64(is.WriterHash-was.WriterHash), float64(is.WriteTime-was.WriteTime)
	if hash > 0 { // who waits for writers that hash waits for both
		part := target * hash / (hash + write)
		processor, target = processor+part, target-part
	}
	writers := float64(is.Writers) * float64(d)
	return bottleneck.Busy{
		Source: source / readers, Budget: budget / readers,
		Processor: min(max(processor/readers, hash/writers), 1), Target: min(max(target/readers, write/writers), 1),
	}
}
