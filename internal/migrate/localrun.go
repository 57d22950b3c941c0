package migrate

import (
	"context"
	"sync"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/journal"
)

// An attendance is what a run needs of the process that drives it, besides its record.
type localRun struct {
	rig     Rig
	permit  Permit
	journal *journal.Journal
	eventMu sync.Mutex // held while one event is journaled and reported, so that events keep their order
	turn    *Turn
	seen    seenVM
	warm    WarmRun // warm part of the run; nil for a cold run

	mu         sync.Mutex
	committing bool // commit has begun: the run cannot be given up any more
}

// beginStep notes that a step begins.
func (a *localRun) beginStep(step string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.committing = a.committing || step == StepCommit
}

// unlessLate calls stop unless commit has begun.
func (a *localRun) unlessLate(stop func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.committing {
		stop()
	}
}

// attendances are those of the runs that this process drives.
type localRuns struct {
	mu   sync.Mutex
	runs map[journal.ID]*localRun
}

// runOf returns the attendance of a run, nil if this process does not drive it.
func (s *localRuns) runOf(id journal.ID) *localRun {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs[id]
}

func (s *localRuns) addRun(id journal.ID, a *localRun) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs[id] != nil {
		return fault.New(fault.Conflict, "run %s is under way in this process", id)
	}
	s.runs[id] = a
	return nil
}

func (s *localRuns) removeRun(id journal.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.runs, id)
}

// A WarmRun is a warm run while this process drives it.
type WarmRun interface {
	// Drive calls drive, which carries out the steps until they are done or its context ends. It ends
	// that context when the run is ordered to be given up.
	Drive(ctx context.Context, drive func(context.Context) error) error

	// Guard is called for an image that is opened for writing. Writes go through the returned target.
	Guard(key int32, t disk.Target) disk.Target
}
