package fleet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/fault"
)

// A Node is the part of a process in the fleet: a candidate for scheduler, a worker, or both.
type Node struct {
	Config
	id string // name of this process, different in each process
}

// New returns a node that is not running.
func New(c Config) *Node {
	return &Node{Config: c.withDefaults(), id: fmt.Sprintf("%s/%d/%08x", c.Worker.Name, os.Getpid(), rand.Uint32())}
}

// Run takes part in the fleet until ctx ends. Then the VMs that it executes stop and are queued, the
// leases are freed, and Run returns nil. It returns fault.Conflict if another process joined with this
// worker's name.
func (n *Node) Run(ctx context.Context) error {
	if n.Drive && (n.Worker.Name == "" || n.Worker.VMs <= 0) {
		return fault.New(fault.Invalid, "invalid worker: name %q, %d VMs at a time", n.Worker.Name, n.Worker.VMs).WithHint("it needs a name, and a number above 0")
	}
	g, ctx := errgroup.WithContext(ctx)
	if n.Drive {
		g.Go(func() error { return runWorker(ctx, n.Config) })
	}
	if n.Schedule {
		g.Go(func() error { return n.runForScheduler(ctx) })
	}
	err := g.Wait()
	if errors.Is(err, context.Canceled) || fault.Is(err, fault.Canceled) {
		return nil
	}
	return err
}
