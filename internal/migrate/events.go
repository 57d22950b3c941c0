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
	runs  *attendances

	notifying sync.Mutex // held while a subscriber is called: one event at a time
}

// tell completes an event and hands it to the journal and to the subscriber. A journal that cannot be
// written is no reason to stop a migration: flow's record decides.
func (e *events) tell(id journal.ID, ev journal.Event) {
	if err := e.journal(id, ev); err != nil {
		e.opts.Log.Error("event is not journaled", "run", id, "err", err)
	}
}

// journal is tell for an event that must be there in the end.
func (e *events) journal(id journal.ID, ev journal.Event) (err error) {
	ev.Run = id
	a := e.runs.of(id)
	if a == nil {
		ev.Time = e.opts.Now()
		e.notify(ev)
		return nil
	}
	a.telling.Lock()
	defer a.telling.Unlock()
	ev.Time = e.opts.Now()
	err = a.journal.Append(ev)
	e.notify(ev)
	return err
}

func (e *events) notify(ev journal.Event) {
	e.notifying.Lock()
	defer e.notifying.Unlock()
	e.opts.Notify(ev)
}

// record appends an event to the journal of a run that this process does not drive.
func (e *events) record(id journal.ID, ev journal.Event) error {
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
	return e.record(id, journal.Event{Kind: journal.RunDone})
}
