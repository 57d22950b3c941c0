package fleet

import (
	"context"
	"net"
	"net/url"
	"time"

	"github.com/decamp/decamp/internal/roster"
	"github.com/decamp/decamp/internal/sched"
)

// A Mover does what a plan says. It knows sources, transports and targets; a Node knows when
// and where. Its methods are called concurrently.
type Mover interface {
	// Admit returns an error if the plan may not be carried out, or its hooks may not be run
	// here. Nothing of the plan has begun in this process.
	Admit(ctx context.Context, p roster.Plan) error

	// List finds the plan's VMs and tells them in batches, as it finds them. What it told
	// before an error stays; it may be called again.
	List(ctx context.Context, p roster.Plan, tell func([]roster.VM) error) error

	// Capacities returns the units of sched's resources that the plan's limits name, or
	// their defaults. "host:*/vms" is that of every host that is not named. Of several
	// plans the least counts. What nobody names has no limit.
	Capacities(ctx context.Context, p roster.Plan) (map[string]int64, error)

	// Needs returns what a transfer of the VM holds, and how long it is likely to; 0 is
	// unknown. The VM is without its Spec. The worker that drives it is not to be named.
	Needs(vm roster.VM, stage roster.Stage) ([]sched.Need, time.Duration)

	// Move drives the VM until it is published, until it fails, or until ctx ends. Its Order
	// is the one that holds for it, its own or that of its plan. All logins, also those of
	// List and Undo, are admitted by Logins: a fault.ErrLogin is on record, and waited for.
	Move(ctx context.Context, vm roster.VM, d Driver) error

	// Order tells a Move that is under way that the order changed.
	Order(vm roster.VM, o roster.Order) error

	// Rehearse has a Move of a warm VM that is under way boot it from its images. How that
	// ended its Driver is told. The same again changes nothing; another one that stands is
	// fault.Conflict.
	Rehearse(vm roster.VM, ask roster.Rehearsal) error

	// TakeBack ends a rehearsal that nobody wants any more, if it has not ended.
	TakeBack(vm roster.VM, rehearsal string) error

	// Undo gives up what is not published: images, snapshots, change tracking. The source
	// is on again if it was. No Move of the VM is under way.
	Undo(ctx context.Context, vm roster.VM) error

	// Hook runs the plan's hook, "pre" or "post", if it has one.
	Hook(ctx context.Context, p roster.Plan, when string) error
}

// A Driver is what a Move calls. All methods but Turn and Storage return at once.
type Driver interface {
	// Turn returns when the VM may transfer; giveBack says that it does not any more. The
	// first Turn after a grant returns at once.
	Turn(ctx context.Context, stage roster.Stage, expected time.Duration) (giveBack func(), err error)

	// Step tells where the VM is, and why it waits, for people.
	Step(name, waits string)

	// Progress tells how far the disks are. The Key need not be set.
	Progress(p roster.Progress)

	// Rehearsed tells how a rehearsal ended: its ID, and Report and Tail, or Failure.
	Rehearsed(done roster.Rehearsed)

	// Storage records which storages the VM's images are on. To be called before anything
	// is written.
	Storage(ids []string) error

	// Epoch is that of the claim, for names of snapshots.
	Epoch() int64
}

// Endpoint names what is logged in to, host:port: it is what roster.VM.Source has.
func Endpoint(u *url.URL) string {
	if u.Port() != "" {
		return u.Host
	}
	return net.JoinHostPort(u.Hostname(), "443")
}
