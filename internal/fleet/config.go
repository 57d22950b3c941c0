package fleet

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/sleep"
)

// DefaultTTL is the default length of leases. A dead worker is noticed that long after its last
// renewal, and a database that does not respond for that long stops all transfers.
const DefaultTTL = 5 * time.Second

// Config configures a Node.
type Config struct {
	Database *fleetdb.Database // fleet database
	Mover    Mover             // carries out plans and VMs
	Worker   fleetdb.Worker    // Name, Version, Offers and VMs of this process

	Schedule bool // be a candidate for scheduler
	Drive    bool // be a worker

	TTL time.Duration    // length of leases; DefaultTTL if zero
	Log *slog.Logger     // receives the log; nil discards it
	Now func() time.Time // clock of this process; default time.Now
	// waits for a duration, or returns ctx's error; default sleep.For
	Sleep func(context.Context, time.Duration) error
}

// withDefaults returns c with defaults for TTL, Log, Now and Sleep.
func (c Config) withDefaults() Config {
	if c.TTL <= 0 {
		c.TTL = DefaultTTL
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Sleep == nil {
		c.Sleep = sleep.For
	}
	return c
}

// lastWrites bounds the writes after a node has been stopped.
const lastWrites = 10 * time.Second

// vmLog returns the log for a VM. Its lines have the names that API and journals use: the run, or the runs of several
// destinations, separated by commas; the plan; the reference of the VM; and the worker.
func (c Config) vmLog(vm fleetdb.VM) *slog.Logger {
	return c.Log.With("run", strings.Join(vm.Runs, ","), "plan", vm.Plan, "vm", vm.VM, "name", vm.Name, "worker", c.Worker.Name)
}

// lastWritesContext returns a context for writes that are required after ctx has ended. It ends after
// lastWrites.
func lastWritesContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), lastWrites)
}

// withDeadline returns a context that ends at t by the node's clock, and a function that releases it.
func (c Config) withDeadline(ctx context.Context, t time.Time) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	done, left := make(chan struct{}), t.Sub(c.Now())
	go func() {
		defer close(done)
		if c.Sleep(ctx, left) == nil {
			cancel()
		}
	}()
	return ctx, func() { cancel(); <-done }
}

// retryWhileAway calls f until it returns nil or an error that does not mean that the fleet database is
// away. It returns an error if ctx ends.
func (c Config) retryWhileAway(ctx context.Context, f func() error) error {
	for tries := 1; ; tries++ {
		err := f()
		if err == nil || !isAway(err) || ctx.Err() != nil {
			return err
		}
		c.Log.Debug("the fleet database does not answer", "err", err)
		if err := c.Sleep(ctx, min(c.TTL/10<<min(tries, 4), c.TTL/2)); err != nil {
			return err
		}
	}
}

// isAway reports whether the fleet database cannot be used for now, or its disk is full.
func isAway(err error) bool { return isTransient(err) || fault.Is(err, fault.Full) }

// isTransient reports whether err can pass without a change by an operator.
func isTransient(err error) bool {
	return fault.Is(err, fault.Unreachable) || fault.Is(err, fault.Transient)
}
