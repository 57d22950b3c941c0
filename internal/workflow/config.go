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
	Insecure bool                  // with URL: a server on another machine need not be verified
	Keys     *fleetkey.Keys        // with URL: keys that sign and verify the records; nil signs nothing
	Executor string                // with URL: name of this executor, the same after a restart
	Log      *slog.Logger          // log of the engine; nil discards it
	Resume   func(run string) bool // reports whether a pending run continues at Launch; nil lets all wait for Start
	Grace    time.Duration         // how long Close waits for running steps; 0: 30 s
}

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

// check returns an error if the name cannot be part of a queue's name.
func (c Config) check() error {
	if c.URL != "" && !runID.MatchString(c.Executor) {
		return fault.New(fault.Invalid, "executor %q: want lower-case letters, digits, dot and dash", c.Executor)
	}
	return nil
}

const (
	// version is what recorded runs are bound to. The engine's default is a hash of the
	// binary, which would strand every pending run at an upgrade. It changes only when
	// the order of steps changes in a way that old records cannot follow; the state
	// directories in testdata, one per release, must load.
	version = "decamp-1"

	// localExecutor is whose pending runs are continued after a crash where one process owns
	// the record: the state directory's, so one name is enough.
	localExecutor = "decamp"

	appName = "decamp"

	localName = "state.db" // file in the state directory
)

// runID is what a run may be called: readable, a file name, and free of the slash that
// numbers attempts.
var runID = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,127}$`)
