package flow

import (
	"errors"
	"path/filepath"

	"github.com/decamp/decamp/internal/fault"
)

// Result codes of SQLite, https://sqlite.org/rescode.html.
const (
	sqlitePrimary   = 0xff
	sqliteCorrupt   = 11
	sqliteFull      = 13
	sqliteNoFile    = 26   // it is no database
	sqliteShortRead = 522  // the file ends early
	sqliteShmSize   = 4874 // the index of its log could not grow
)

// told makes of SQLite's error what people can act on. PostgreSQL's are waited for (postgres.go).
func (r *record) told(err error) error {
	var of interface {
		error
		Code() int
	}
	if !errors.As(err, &of) {
		return fault.Room(r.dir, err) // what syncs the file is not SQLite
	}
	switch code := of.Code(); {
	case code&sqlitePrimary == sqliteFull, code == sqliteShmSize:
		return fault.NoRoom(r.dir, err)
	case code&sqlitePrimary == sqliteCorrupt, code&sqlitePrimary == sqliteNoFile, code == sqliteShortRead:
		return r.corrupt(err)
	}
	return err
}

// corrupt says what to do about a state file that is damaged.
func (r *record) corrupt(err error) error {
	return fault.New(fault.Corrupt, "%w", err).
		WithHint("stop all decamp, and put back a copy of %s, or move it away with its -wal and begin anew: images are continued from their manifests", filepath.Join(r.dir, localName))
}
