package workflow

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/decamp/decamp/internal/fault"
)

// Result codes of SQLite, https://sqlite.org/rescode.html.
const (
	sqlitePrimary   = 0xff // bits of the primary result code in an extended one
	sqliteCorrupt   = 11   // the content of the file is damaged
	sqliteFull      = 13   // the file cannot grow
	sqliteNoFile    = 26   // the file is no database
	sqliteShortRead = 522  // the file ends early
	sqliteShmSize   = 4874 // the index of its log could not grow
)

// toFault returns SQLite's error as a fault with a remedy for the state directory dir; other errors
// unchanged. Errors of PostgreSQL are handled in postgres.go.
func toFault(dir string, err error) error {
	var of interface {
		error
		Code() int
	}
	if !errors.As(err, &of) {
		return fault.Room(dir, err) // the file is synced outside of SQLite
	}
	switch code := of.Code(); {
	case code&sqlitePrimary == sqliteFull, code == sqliteShmSize:
		return fault.NoRoom(dir, err)
	case code&sqlitePrimary == sqliteCorrupt, code&sqlitePrimary == sqliteNoFile, code == sqliteShortRead:
		return newCorruptError(dir, err)
	}
	return err
}

// newCorruptError returns fault.Corrupt with the remedy for a damaged state file.
func newCorruptError(dir string, err error) error {
	return fault.New(fault.Corrupt, "%w", err).
		WithHint("stop all decamp processes, and restore a copy of %s; or move it away with its -wal and start again: images continue from their manifests", filepath.Join(dir, localName))
}

// newUnrecordedError returns the error of an attempt that ended because the engine could not record it.
// what describes the record.
func newUnrecordedError(dir, what string, err error) error {
	if known := toFault(dir, err); known != err {
		return fmt.Errorf("%s: %w", what, known)
	}
	return fault.New(fault.Transient, "%s: %w", what, err).
		WithHint("earlier records are valid: make the database writable, and start the run again")
}

// errClosed is the error of a call that the end of the engine interrupted.
func errClosed() error { return fault.New(fault.Canceled, "engine was closed") }
