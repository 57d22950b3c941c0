package fleet

import (
	"context"
	"net"
	"net/url"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/sched"
)

// A Mover executes plans and VMs. It uses sources, transports and targets; a Node decides when and where. Its
// methods may be called concurrently.
type Mover interface {
	// Admit returns an error if the plan may not be carried out, or its hooks may not be run here. Nothing of the
	// plan has begun in this process.
	Admit(ctx context.Context, p fleetdb.Plan) error

	// List finds the plan's VMs and passes them to found in batches, as it finds them. VMs that it found before an
	// error stay; it may be called again.
	List(ctx context.Context, p fleetdb.Plan, found func([]fleetdb.VM) error) error

	// Capacities returns the limits of the plan, or their defaults, by resource of package sched. "host:*/vms" is the
	// limit of every host that is not named. Of several plans the lowest limit counts. Other resources are unlimited.
	Capacities(ctx context.Context, p fleetdb.Plan) (map[string]int64, error)

	// Needs returns the resources that a transfer of the VM holds, and how long it is likely to take; 0 is unknown.
	// The VM has no Spec. The worker that drives it is not among the resources.
	Needs(vm fleetdb.VM, stage fleetdb.TransferKind) ([]sched.Need, time.Duration)

	// Move drives the VM until it is published, until it fails, or until ctx ends. Its Command is the one that counts
	// for it, its own or that of its plan. A login.Limiter admits all logins, also those of List and Undo: a
	// fault.ErrLogin is on record, and an operator lifts it.
	Move(ctx context.Context, vm fleetdb.VM, d Driver) error

	// SendCommand passes a new command to a Move that is under way.
	SendCommand(vm fleetdb.VM, o fleetdb.Command) error

	// Rehearse has a Move of a warm VM that is under way boot the VM from its images. The result goes to the Driver.
	// The same request again changes nothing; another one during a rehearsal is fault.Conflict.
	Rehearse(vm fleetdb.VM, ask fleetdb.Rehearsal) error

	// TakeBack ends a rehearsal that is not requested any more, if it has not ended.
	TakeBack(vm fleetdb.VM, rehearsal string) error

	// Undo removes unpublished results: images, snapshots, change tracking. It powers the source on
	// again if it was on. No Move of the VM runs meanwhile.
	Undo(ctx context.Context, vm fleetdb.VM) error

	// Hook runs the plan's hook, "pre" or "post", if it has one.
	Hook(ctx context.Context, p fleetdb.Plan, when string) error
}

// A Driver is what a Move calls. All methods but RequestSlot and Storage return at once.
type Driver interface {
	// RequestSlot returns when the VM may transfer; giveBack ends that. The first call after a grant returns at once.
	RequestSlot(ctx context.Context, stage fleetdb.TransferKind, expected time.Duration) (giveBack func(), err error)

	// Step reports the step of the VM, and why it waits there, for users.
	Step(name, waits string)

	// Progress reports the progress of the disks. The Key need not be set.
	Progress(p fleetdb.Progress)

	// Published reports the result of a published VM, for statistics. Of several destinations the last report counts.
	Published(s fleetdb.Summary)

	// Rehearsed reports the result of a rehearsal: its ID, and Report and Tail, or Failure.
	Rehearsed(done fleetdb.Rehearsed)

	// Storage records the storages of the VM's images. It must be called before anything is written.
	Storage(ids []string) error

	// Epoch returns the epoch of the claim, for names of snapshots.
	Epoch() int64
}

// Endpoint returns host:port of a source, as in fleetdb.VM.Source.
func Endpoint(u *url.URL) string {
	if u.Port() != "" {
		return u.Host
	}
	return net.JoinHostPort(u.Hostname(), "443")
}
