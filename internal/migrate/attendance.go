package migrate

import (
	"context"
	"sync"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/journal"
)

// An attendance is what a run needs of the process that drives it, besides its record.
type attendance struct {
	rig     Rig
	permit  Permit
	journal *journal.Journal
	telling sync.Mutex // held while one event is journaled and reported, so that events keep their order
	turn    *Turn
	sight   sight
	warm    WarmRun // warm part of the run; nil for a cold run

	mu   sync.Mutex
	late bool // commit has begun: the run cannot be given up any more
}

// begin notes that a step begins.
func (a *attendance) begin(step string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.late = a.late || step == StepCommit
}

// unlessLate calls stop unless commit has begun.
func (a *attendance) unlessLate(stop func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.late {
		stop()
	}
}

// attendances are those of the runs that this process drives.
type attendances struct {
	mu   sync.Mutex
	runs map[journal.ID]*attendance
}

// of returns the attendance of a run, nil if this process does not drive it.
func (s *attendances) of(id journal.ID) *attendance {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs[id]
}

func (s *attendances) enter(id journal.ID, a *attendance) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs[id] != nil {
		return fault.New(fault.Conflict, "run %s is under way in this process", id)
	}
	s.runs[id] = a
	return nil
}

func (s *attendances) leave(id journal.ID) {
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
