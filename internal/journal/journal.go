package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/decamp/decamp/internal/fault"
)

// A Journal appends events to a file, one JSON object per line. It is safe for concurrent use.
type Journal struct {
	mu   sync.Mutex // guards the fields below
	f    *os.File   // file of the journal
	dir  string     // folder of the state, for the remedy of a full file system
	size int64      // length of the complete lines in bytes
	torn bool       // the file may be longer than size after a failed write
}

// OpenJournal opens the journal at path for appending, and creates it if necessary. It truncates the
// rest of an interrupted write.
func OpenJournal(path string) (*Journal, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	whole, err := cutTornLine(f)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open journal %s: %w", path, err), f.Close())
	}
	return &Journal{f: f, dir: filepath.Dir(path), size: whole}, nil
}

// cutTornLine truncates f after its last event, and returns its length. After a crash the end may
// contain a part of a line, or anything else.
func cutTornLine(f *os.File) (whole int64, err error) {
	text, err := io.ReadAll(f)
	if err != nil {
		return 0, err
	}
	off := int64(0)
	for line := range bytes.Lines(text) {
		off += int64(len(line))
		if _, err := parseEvent(line); err == nil {
			whole = off
		}
	}
	return whole, f.Truncate(whole)
}

// recordedByEngine lists the kinds of events that the workflow engine records in its steps as well. The
// other events show whether a step continued, and the facts of a step contain findings, warnings and
// copies. A power loss may remove the last events of these kinds from a journal.
var recordedByEngine = map[EventKind]bool{
	RunStarted: true, StepStarted: true, StepDone: true, DiskStarted: true, DiskDone: true, Warned: true, Summarized: true,
}

// Append writes e. The write is durable, with all events before, unless the workflow engine records
// events of this kind as well: a small VM has about fifteen of these, and each would wait for the disk.
// Progress and outage estimates are not journaled.
func (j *Journal) Append(e Event) error {
	if e.Kind == Progressed || e.Kind == OutageEstimated {
		return nil
	}
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("append to journal: %w", err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.writeLine(append(line, '\n'), !recordedByEngine[e.Kind]); err != nil {
		return fmt.Errorf("append to journal: %w", fault.Room(j.dir, err))
	}
	return nil
}

// writeLine writes a line after the others. It first removes the rest of a failed write. mu must be
// held.
func (j *Journal) writeLine(line []byte, durable bool) error {
	if j.torn {
		if err := j.f.Truncate(j.size); err != nil {
			return err
		}
		j.torn = false
	}
	_, err := j.f.WriteAt(line, j.size)
	if err == nil && durable {
		err = j.f.Sync()
	}
	if err != nil {
		j.torn = true
		return err
	}
	j.size += int64(len(line))
	return nil
}

// Close releases the file.
func (j *Journal) Close() error { return j.f.Close() }

// ReadJournal returns the events at path, oldest first. It returns none if there is no journal. It
// ignores an incomplete last line and garbage after the last event. Anything else that is no event is
// fault.Corrupt.
func ReadJournal(path string) ([]Event, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	events, err := parseJournal(text)
	if err != nil {
		return nil, fmt.Errorf("read journal %s: %w", path, err)
	}
	return events, nil
}

// parseJournal parses the text of a journal.
func parseJournal(text []byte) ([]Event, error) {
	var events []Event
	var bad error
	off := 0
	for line := range bytes.Lines(text) {
		e, err := parseEvent(line)
		switch {
		case err == nil && bad != nil:
			return nil, bad
		case err == nil:
			events = append(events, e)
		case bad == nil:
			bad = fault.New(fault.Corrupt, "line at byte %d is no event: %w", off, err)
		}
		off += len(line)
	}
	return events, nil
}

// parseEvent parses one line. A line without a line break is incomplete.
func parseEvent(line []byte) (e Event, err error) {
	if !bytes.HasSuffix(line, []byte{'\n'}) {
		return e, io.ErrUnexpectedEOF
	}
	return e, json.Unmarshal(line, &e)
}
