package matrix

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/atomicfile"
	"github.com/decamp/decamp/internal/bench"
	"github.com/decamp/decamp/internal/fault"
)

// A Log is a file of rows, one JSON object per line. A file lock excludes other
// processes.
type Log struct {
	file *os.File    // open and locked file
	rows []bench.Row // rows in the order of the file
}

// OpenLog opens or creates the file at path. It removes an incomplete last line, which
// a crash left; the row will be measured again. A file that another process uses is
// fault.Conflict.
func OpenLog(path string) (*Log, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fault.New(fault.Invalid, "open rows: %w", err).WithHint("name a file in a folder that is there and that you may write to with --rows FILE")
	}
	l := &Log{file: f}
	if err := l.loadRows(path); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return l, nil
}

// loadRows locks the file, reads its rows and positions it for writing.
func (l *Log) loadRows(path string) error {
	if err := unix.Flock(int(l.file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fault.New(fault.Conflict, "rows %s: another process measures into it: %w", path, err).WithHint("wait until it ends, or name another file with --rows FILE")
	}
	text, err := io.ReadAll(l.file)
	if err != nil {
		return fmt.Errorf("read rows: %w", err)
	}
	// A row is complete if its line end was written.
	whole := bytes.LastIndexByte(text, '\n') + 1
	if l.rows, err = bench.ReadRows(bytes.NewReader(text[:whole])); err != nil {
		return fault.New(fault.Invalid, "rows %s: %w", path, err).WithHint("name another file with --rows FILE")
	}
	if err := l.file.Truncate(int64(whole)); err != nil {
		return fmt.Errorf("cut off a broken row: %w", err)
	}
	if _, err := l.file.Seek(int64(whole), io.SeekStart); err != nil {
		return err
	}
	return errors.Join(l.file.Sync(), atomicfile.Sync(filepath.Dir(path)))
}

// Has returns the last row of a cell, and whether there is one.
func (l *Log) Has(c Cell, origin string) (bench.Row, bool) {
	for i := len(l.rows) - 1; i >= 0; i-- {
		if c.isCellOf(l.rows[i], origin) {
			return l.rows[i], true
		}
	}
	return bench.Row{}, false
}

// Append writes a row durably: it is synced when Append returns nil.
func (l *Log) Append(r bench.Row) error {
	if err := r.Check(); err != nil {
		return fault.New(fault.Internal, "a row that could not be read again: %w", err)
	}
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = l.file.Write(append(line, '\n'))
	if err = errors.Join(err, l.file.Sync()); err != nil {
		kind := fault.Internal
		if errors.Is(err, unix.ENOSPC) {
			kind = fault.Full
		}
		return fault.New(kind, "write row: %w", err).WithHint("make room; the same command goes on")
	}
	l.rows = append(l.rows, r)
	return nil
}

// Close unlocks and closes the file.
func (l *Log) Close() error { return l.file.Close() }
