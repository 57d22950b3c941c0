package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"

	"github.com/decamp/decamp/internal/fault"
)

// A Journal appends events to a file, one JSON object a line. Its methods may be called
// concurrently.
type Journal struct {
	mu sync.Mutex
	f  *os.File
}

// OpenJournal opens the journal at path for appending. A line that a crash tore is cut
// off.
func OpenJournal(path string) (*Journal, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	if err := cutTornLine(f); err != nil {
		return nil, errors.Join(fmt.Errorf("open journal %s: %w", path, err), f.Close())
	}
	return &Journal{f: f}, nil
}

// cutTornLine truncates f behind its last newline and leaves the offset there.
func cutTornLine(f *os.File) error {
	text, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	whole := int64(bytes.LastIndexByte(text, '\n') + 1)
	if err := f.Truncate(whole); err != nil {
		return err
	}
	_, err = f.Seek(whole, io.SeekStart)
	return err
}

// Append writes e durably. Progress and outlooks are not journaled.
func (j *Journal) Append(e Event) error {
	if e.Kind == Progressed || e.Kind == Projected {
		return nil
	}
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("append to journal: %w", err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, err := j.f.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("append to journal: %w", err)
	}
	if err := j.f.Sync(); err != nil {
		return fmt.Errorf("append to journal: %w", err)
	}
	return nil
}

// Close releases the file.
func (j *Journal) Close() error { return j.f.Close() }

// ReadJournal returns the events at path, oldest first; none if there is no journal. A
// torn last line is left out. Anything else that is no event is fault.Corrupt.
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

func parseJournal(text []byte) ([]Event, error) {
	var events []Event
	off := 0
	for line := range bytes.Lines(text) {
		if line[len(line)-1] != '\n' {
			break
		}
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fault.New(fault.Corrupt, "line at byte %d is no event: %w", off, err)
		}
		events = append(events, e)
		off += len(line)
	}
	return events, nil
}
