package mover

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"strings"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/testboot"
)

// The worker that migrates a VM also rehearses it: the request is in the VM's row, and the result in a
// separate record.

// Rehearse requests a rehearsal of a warm VM. If an earlier process has answered this request, the
// answer is reported again. It implements fleet.Mover.
func (m *Mover) Rehearse(row fleetdb.VM, ask fleetdb.Rehearsal) error {
	id := warmRun(row)
	m.mu.Lock()
	dr := m.events[id]
	m.mu.Unlock()
	if done, err := m.store.Rehearsed(id); dr != nil && err == nil && done != nil && done.ID == ask.ID {
		m.reportRehearsal(dr, id)
		return nil
	}
	return m.store.AskRehearsal(id, journal.Rehearsal{ID: ask.ID, Expect: ask.Expect, Deadline: ask.Deadline, Fleet: true})
}

// forgetRehearsal drops a request of the fleet that an earlier process received. The fleet may have
// withdrawn it since, and otherwise requests it again. Requests of local users stay.
func (m *Mover) forgetRehearsal(id journal.ID) error {
	had, err := m.store.Rehearsal(id)
	if err != nil || had == nil || !had.Fleet {
		return nil // an unreadable request is ignored; the next request reports an error
	}
	return m.store.TakeBack(id, had.ID)
}

// TakeBack withdraws a request. It implements fleet.Mover.
func (m *Mover) TakeBack(row fleetdb.VM, rehearsal string) error {
	return m.store.TakeBack(warmRun(row), rehearsal)
}

// warmRun returns the run of a warm VM, which has a single destination.
func warmRun(row fleetdb.VM) journal.ID { return journal.ID(row.Runs[0]) }

// reportRehearsal reports the result of the last rehearsal of a run to the fleet.
func (m *Mover) reportRehearsal(dr *runEvents, id journal.ID) {
	done, err := m.store.Rehearsed(id)
	if err != nil || done == nil {
		m.a.Log.Warn("result of a rehearsal is unknown", "run", id, "err", err)
		return
	}
	told := fleetdb.Rehearsed{Rehearsal: fleetdb.Rehearsal{ID: done.ID}, Report: done.Report}
	if f := done.Failure; f != nil {
		told.Failure = &fleetdb.Failure{Kind: f.Kind, Text: f.Text, Hint: f.Hint}
	}
	var report testboot.Report
	if len(done.Report) > 0 && json.Unmarshal(done.Report, &report) == nil {
		told.Tail = tailOf(report.Serial)
	}
	dr.to.Rehearsed(told)
}

// tailBytes is the size of the end of a serial log that is stored in the database.
const tailBytes = 4 << 10

// tailOf returns the end of a file as valid UTF-8, from the beginning of a line if possible; empty if
// the file cannot be read.
func tailOf(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return ""
	}
	// a tail that does not start at 0 begins with a part of a line, which is dropped
	from := max(0, size-tailBytes)
	text, _ := io.ReadAll(io.NewSectionReader(f, from, tailBytes)) // reads as much as possible
	if _, rest, found := bytes.Cut(text, []byte("\n")); found && from > 0 {
		text = rest
	}
	return strings.ToValidUTF8(string(text), "?")
}
