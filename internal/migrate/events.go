package migrate

import (
	"errors"
	"sync"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/journal"
)

// events writes the journals of all runs, and notifies the subscriber. Runs do not wait for each
// other's journals. It is safe for concurrent use.
type events struct {
	opts  *Options       // options of the Migrator
	store *journal.Store // journals of the runs
	runs  *localRuns     // runs of this process, with their open journals

	notifying sync.Mutex // held while the subscriber is called, which gets one event at a time
}

// reportEvent journals an event and passes it to the subscriber. An error of the journal is logged and
// does not stop the run, because the record of package workflow decides.
func (e *events) reportEvent(id journal.ID, ev journal.Event) {
	if err := e.appendAndNotify(id, ev); err != nil {
		e.opts.Log.Error("event is not journaled", "run", id, "err", err)
	}
}

// appendAndNotify is reportEvent for events whose loss is an error. Events of a run that this process
// does not execute are not journaled.
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

// notifySubscriber logs ev and calls the subscriber with it.
func (e *events) notifySubscriber(ev journal.Event) {
	e.logEvent(ev)
	e.notifying.Lock()
	defer e.notifying.Unlock()
	e.opts.Notify(ev)
}

// appendEvent appends an event to the journal of a run that this process does not execute.
func (e *events) appendEvent(id journal.ID, ev journal.Event) error {
	j, err := e.store.Journal(id)
	if err != nil {
		return err
	}
	ev.Time, ev.Run = e.opts.Now(), id
	return errors.Join(j.Append(ev), j.Close())
}

// recordDone journals the end of a completed run, unless it is journaled: the process that executed the
// run may have been killed before, or its disk was full.
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

// logEvent logs an event, unless it is one of many about progress.
func (e *events) logEvent(ev journal.Event) {
	if ev.Kind == journal.Progressed || ev.Kind == journal.OutageEstimated {
		return
	}
	attrs := []any{"run", ev.Run, "event", ev.Kind}
	add := func(key string, value any, is bool) {
		if is {
			attrs = append(attrs, key, value)
		}
	}
	add("step", ev.Step, ev.Step != "")
	add("disk", ev.Disk, ev.Disk != 0)
	add("message", ev.Message, ev.Message != "")
	if ev.Warning != nil {
		attrs = append(attrs, "code", ev.Warning.Code, "message", ev.Warning.Text)
	}
	if ev.Failure != nil {
		attrs = append(attrs, "kind", ev.Failure.Kind, "err", ev.Failure.Text)
	}
	e.opts.Log.Info("run", attrs...)
}
