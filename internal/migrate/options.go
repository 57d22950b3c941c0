package migrate

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/sleep"
)

// Options apply to all runs of a Migrator.
type Options struct {
	Version  string             // version of decamp, for the record of a published VM
	Disks    int                // disks that are copied at the same time; default 4
	Log      *slog.Logger       // default discards
	Notify   journal.Subscriber // receives all events; may be nil
	Shared   bool               // other processes share the database: Migrate may take over one of their runs
	Attempts int                // attempts at a disk that fails temporarily without progress; default 6
	Now      func() time.Time   // clock; default time.Now
	// waits for a duration, or returns ctx's error; default sleep.For
	Sleep func(context.Context, time.Duration) error
	Seed  uint64 // seed of samples; random if zero
}

// withDefaults returns o with defaults for the zero fields that have one.
func (o Options) withDefaults() Options {
	if o.Disks <= 0 {
		o.Disks = 4
	}
	if o.Attempts <= 0 {
		o.Attempts = 6
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Notify == nil {
		o.Notify = func(journal.Event) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Sleep == nil {
		o.Sleep = sleep.For
	}
	if o.Seed == 0 {
		o.Seed = rand.Uint64()
	}
	return o
}
