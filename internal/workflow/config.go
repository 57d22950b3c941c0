package workflow

import (
	"log/slog"
	"regexp"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetkey"
)

// Config has the location of the state and the options of the engine.
type Config struct {
	Dir      string                // state directory; made if missing, private to the user
	URL      string                // "postgres://…" of the record that several executors share; "": SQLite in Dir
	Insecure bool                  // permits a database on another machine that is not verified; used with URL
	Keys     *fleetkey.Keys        // keys that sign and verify the records; nil signs nothing. Used with URL
	Executor string                // name of this executor, the same after a restart; used with URL
	Log      *slog.Logger          // log of the engine; nil discards it
	Resume   func(run string) bool // reports whether a pending run continues at Launch; with nil, all wait for Start
	Grace    time.Duration         // how long Close waits for running steps; 0: 30 s
}

// withDefaults returns c with defaults for Log, Resume and Grace.
func (c Config) withDefaults() Config {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Resume == nil {
		c.Resume = func(string) bool { return false }
	}
	if c.Grace == 0 {
		c.Grace = 30 * time.Second
	}
	return c
}

// check returns fault.Invalid if Executor cannot be part of a queue's name.
func (c Config) check() error {
	if c.URL != "" && !runID.MatchString(c.Executor) {
		return fault.New(fault.Invalid, "executor %q: want lower-case letters, digits, dot and dash", c.Executor)
	}
	return nil
}

const (
	// version is the application version that recorded runs are bound to. The engine's default is a hash
	// of the binary, which would strand every pending run at an upgrade. It changes only when the order of
	// steps changes in a way that old records cannot follow. The state directories in testdata, one for
	// each release, must load.
	version = "decamp-1"

	// localExecutor is the executor of all runs if one process owns the record. The state directory is
	// locked, so one name is enough.
	localExecutor = "decamp"

	appName = "decamp" // appName identifies decamp to the engine and in PostgreSQL's list of connections.

	localName = "state.db" // localName is the name of the state file in the state directory.
)

// runID is the syntax of run ids: readable, valid as file names, and without the slash that numbers
// attempts.
var runID = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,127}$`)
