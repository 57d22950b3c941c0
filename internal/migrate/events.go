package migrate

import (
	"errors"
	"sync"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/journal"
)

// events are the journals of all runs, and who is notified of them. Runs do not wait for each other's
// journals.
type events struct {
	opts  *Options
	store *journal.Store
	runs  *localRuns

	notifying sync.Mutex // held while a subscriber is called: one event at a time
}

// reportEvent completes an event and hands it to the journal and to the subscriber. A journal that cannot be
// written is no reason to stop a migration: flow's record decides.
func (e *events) reportEvent(id journal.ID, ev journal.Event) {
	if err := e.appendAndNotify(id, ev); err != nil {
		e.opts.Log.Error("event is not journaled", "run", id, "err", err)
	}
}

// appendAndNotify is tell for an event that must be there in the end.
func (e *events) appendAndNotify(id journal.ID, ev journal.Event) (err error) {
	ev.Run = id
	a := e.runs.runOf(id)
	if a == nil {
		ev.Time = e.opts.Now()
		e.notifySubscriber(ev)
		return nil
	}
	a.eventMu.Lock()
	defer a.eventMu.Unlock()
	ev.Time = e.opts.Now()
	err = a.journal.Append(ev)
	e.notifySubscriber(ev)
	return err
}

func (e *events) notifySubscriber(ev journal.Event) {
	e.notifying.Lock()
	defer e.notifying.Unlock()
	e.opts.Notify(ev)
}

// appendEvent appends an event to the journal of a run that this process does not drive.
func (e *events) appendEvent(id journal.ID, ev journal.Event) error {
	j, err := e.store.Journal(id)
	if err != nil {
		return err
	}
	ev.Time, ev.Run = e.opts.Now(), id
	return errors.Join(j.Append(ev), j.Close())
}

// recordDone journals the end of a run that is done, unless it is there: the process that drove the run
// may have been killed before, or had no room.
func (e *events) recordDone(id journal.ID) error {
	r, err := e.store.Run(id)
	if fault.Is(err, fault.NotFound) || r.State == journal.Done { // the run was done on another machine, which has its journal
		return nil
	}
	if err != nil {
		return err
	}
	return e.appendEvent(id, journal.Event{Kind: journal.RunDone})
}
