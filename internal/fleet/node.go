package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/roster"
	"github.com/decamp/decamp/internal/sleep"
)

// DefaultTTL is how long leases are: a worker that dies is noticed that long after it last
// renewed, and a database that does not answer for so long stops all transfers.
const DefaultTTL = 5 * time.Second

// Config says what a node is and what it works with.
type Config struct {
	Roster *roster.Roster
	Mover  Mover
	Worker roster.Worker // Name, Version, Offers and VMs of this process

	Schedule bool // be the scheduler when there is no other
	Drive    bool // be a worker

	TTL   time.Duration // default DefaultTTL
	Log   *slog.Logger  // default discards
	Now   func() time.Time
	Sleep func(context.Context, time.Duration) error
}

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

// A Node is a process's part in the fleet.
type Node struct {
	Config
	self string // tells this process from all others
}

// New returns a node that does nothing yet.
func New(c Config) *Node {
	return &Node{Config: c.withDefaults(), self: fmt.Sprintf("%s/%d/%08x", c.Worker.Name, os.Getpid(), rand.Uint32())}
}

// Run takes part until ctx ends: then what is driven stops where it is, goes back to the
// queue, and the leases are given up. It returns nil then, and fault.Conflict when another
// process took this worker's name.
func (n *Node) Run(ctx context.Context) error {
	if n.Drive && (n.Worker.Name == "" || n.Worker.VMs <= 0) {
		return fault.New(fault.Invalid, "worker %q for %d VMs at a time", n.Worker.Name, n.Worker.VMs).WithHint("it needs a name, and a number above 0")
	}
	g, ctx := errgroup.WithContext(ctx)
	if n.Drive {
		g.Go(func() error { return n.work(ctx) })
	}
	if n.Schedule {
		g.Go(func() error { return n.stand(ctx) })
	}
	err := g.Wait()
	if errors.Is(err, context.Canceled) || fault.Is(err, fault.Canceled) {
		return nil
	}
	return err
}

// farewell bounds what is still written when a node ends.
const farewell = 10 * time.Second

// parting returns a context for what must still be written after ctx ended.
func parting(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), farewell)
}

// until returns a context that ends at t by the node's own clock.
func (n *Node) until(ctx context.Context, t time.Time) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	done, left := make(chan struct{}), t.Sub(n.Now())
	go func() {
		defer close(done)
		if n.Sleep(ctx, left) == nil {
			cancel()
		}
	}()
	return ctx, func() { cancel(); <-done }
}

// passes reports whether err is one that goes away by itself.
func passes(err error) bool {
	return fault.Is(err, fault.Unreachable) || fault.Is(err, fault.Transient)
}

// away reports whether the roster could not do its work for now. A full disk under it is
// waited for, too.
func away(err error) bool { return passes(err) || fault.Is(err, fault.Full) }

// insist does f again and again, as long as the roster is away. It returns ctx's error when ctx ends.
func (n *Node) insist(ctx context.Context, f func() error) error {
	for tries := 1; ; tries++ {
		err := f()
		if err == nil || !away(err) || ctx.Err() != nil {
			return err
		}
		n.Log.Debug("the roster does not answer", "err", err)
		if err := n.Sleep(ctx, min(n.TTL/10<<min(tries, 4), n.TTL/2)); err != nil {
			return err
		}
	}
}
