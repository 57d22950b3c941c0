package migrate

import (
	"context"
	"sync"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/journal"
)

// A localRun is the state of a run in the process that executes it, besides its record.
type localRun struct {
	rig     Environment      // open connections
	permit  Permit           // permissions of this call
	journal *journal.Journal // open journal of the run
	eventMu sync.Mutex       // held while one event is journaled and reported, so that events keep their order
	turn    *TransferSlot    // transfer slot, shared by the steps
	seen    seenVM           // last description of the VM
	warm    WarmRun          // warm part of the run; nil for a cold run

	mu         sync.Mutex // guards committing
	committing bool       // commit has begun: the run cannot be canceled any more
}

// beginStep records that a step begins.
func (a *localRun) beginStep(step string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.committing = a.committing || step == StepCommit
}

// unlessLate calls stop unless commit has begun. Commit does not begin before stop returns.
func (a *localRun) unlessLate(stop func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.committing {
		stop()
	}
}

// localRuns are the runs that this process executes. They are safe for concurrent use.
type localRuns struct {
	mu   sync.Mutex               // guards runs
	runs map[journal.ID]*localRun // runs by id
}

// runOf returns the state of a run; nil if this process does not execute it.
func (s *localRuns) runOf(id journal.ID) *localRun {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs[id]
}

// addRun adds a run. A run that this process executes already is fault.Conflict.
func (s *localRuns) addRun(id journal.ID, a *localRun) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs[id] != nil {
		return fault.New(fault.Conflict, "this process already executes run %s", id)
	}
	s.runs[id] = a
	return nil
}

// removeRun removes a run that has stopped.
func (s *localRuns) removeRun(id journal.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.runs, id)
}

// A WarmRun is the part of a warm run in the process that executes it.
type WarmRun interface {
	// Drive calls drive, which carries out the steps until they are done or its context ends. It ends
	// that context when a command cancels the run.
	Drive(ctx context.Context, drive func(context.Context) error) error

	// Guard is called for an image that is opened for writing. Writes go through the returned target.
	Guard(key int32, t disk.Target) disk.Target
}
