// Package platform has the targets that take whole VMs: a hypervisor's API wants each image in one
// piece, of a size that is known, and knows nothing of chunks that are proven one by one. So images
// are copied, tried and verified in a folder of ours, the stage, and delivered at commit.
//
//	source -> stage (dir.Target: copy, resume, verify, trial) -> Place.Deliver -> the VM
//
// What is delivered is recorded in the VM's folder on the stage: vm.json says where it went, and the
// manifests prove its bytes still.
package platform

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/dir"
)

// A Place takes whole VMs.
type Place interface {
	// Check says before anything is copied whether vm could be delivered: the place is reachable,
	// the account has the rights, there is room, vm's name is free. It creates nothing. What an
	// earlier Deliver of the same VM left unfinished is no obstacle.
	Check(ctx context.Context, vm *inventory.VM) error

	// Deliver makes the VM, powered off. After a crash at any point it may run again, and goes on
	// with what it made, or finds all done; after an error nothing of the VM is left there. It may
	// take image files away from the stage.
	Deliver(ctx context.Context, d Delivery) (Receipt, error)

	// Withdraw removes what Deliver made of vm, and only that. That there is nothing is no error; a
	// VM that runs is fault.Conflict.
	Withdraw(ctx context.Context, vm *inventory.VM) error
}

// A Carrier is a Place that may take what of a VM's firmware goes with it: the variables that its domain
// names. All others begin with fresh ones, and so do trials of what goes to them.
type Carrier interface {
	CarriesEFI() bool
}

// An Outliner is a Place that says what it would make of a VM, before there are images. What its stage
// would make is there to begin with.
type Outliner interface {
	Outline(def targets.Definition, stage targets.Outline) (targets.Outline, error)
}

// A Preparer is a Place that can be given images before the VM is delivered, and again what changed of
// them: the VM still runs, and is not to wait for all of it once it is off.
type Preparer interface {
	Place

	// Prepare brings the place up to what the images hold, as far as their manifests list it. They are
	// not finished, have no root, and nobody writes to them meanwhile. What it makes is seen to be
	// unfinished there; after an error or a crash it may run again, and goes on.
	//
	// What Deliver does after it is proven as if it had brought all by itself. After an error of Deliver
	// what Prepare brought may stay; Withdraw removes it.
	Prepare(ctx context.Context, d Delivery) error
}

// A Sender is a Place that does not send all that images hold when a VM is delivered. Places that are none do.
type Sender interface {
	Sends(held, changed int64) int64 // as targets.Sender
}

// A Starter is a Place that powers on VMs that it took.
type Starter interface {
	// Start is as targets.Starter's.
	Start(ctx context.Context, def targets.Definition) (targets.Started, error)
}

// A Consoler is a Place that passes on the serial consoles of VMs that it took.
type Consoler interface {
	// Console is as targets.Consoler's.
	Console(ctx context.Context, def targets.Definition) (io.ReadWriteCloser, error)
}

// A Receipt is what a place says of a VM that it took.
type Receipt = targets.Receipt

// A Delivery is one VM on its way.
type Delivery struct {
	targets.Definition
	Domain string // the VM as a libvirt domain, with its images where they are now

	// Open returns what an image holds as a disk, with its extents.
	Open func(ctx context.Context, img targets.Image) (disk.Source, error)
}

// Options say how VMs are staged.
type Options struct {
	Keep bool // the images on the stage, once they are delivered
}

// Target stages VMs and delivers them. It satisfies targets.Target: all of it but the end is dir's.
type Target struct {
	*dir.Target
	place Place
	opts  Options
}

var (
	_ targets.Target   = (*Target)(nil)
	_ targets.Preparer = (*Target)(nil)
	_ targets.Sender   = (*Target)(nil)
	_ targets.Starter  = (*Target)(nil)
	_ targets.Consoler = (*Target)(nil)
)

// New returns the target that stages VMs on stage and delivers them to place.
func New(stage *dir.Target, place Place, o Options) *Target {
	return &Target{Target: stage, place: place, opts: o}
}

// Plan asks the place first: what it refuses is not to be copied.
func (t *Target) Plan(ctx context.Context, vm *inventory.VM) ([]targets.Image, error) {
	images, err := t.Target.Plan(ctx, vm)
	if err != nil { // also that vm was delivered already
		return nil, err
	}
	return images, t.place.Check(ctx, vm)
}

// carried is def with as much as the place takes.
func (t *Target) carried(def targets.Definition) targets.Definition {
	if c, ok := t.place.(Carrier); !ok || !c.CarriesEFI() {
		def.EFI = nil
	}
	return def
}

// Domain is what the place would start.
func (t *Target) Domain(def targets.Definition) (string, error) {
	return t.Target.Domain(t.carried(def))
}

// Outline is what the place would make of def.
func (t *Target) Outline(def targets.Definition) (targets.Outline, error) {
	place, ok := t.place.(Outliner)
	if !ok {
		return targets.Outline{}, fault.New(fault.Unsupported, "it is not known here what that target makes of a VM").
			WithHint("leave --dry-run out: what it refuses is told before anything is copied")
	}
	def = t.carried(def)
	o, err := t.Target.Outline(def)
	if err != nil {
		return o, err
	}
	return place.Outline(def, o)
}

// Publish delivers the VM, records where it went, and clears the stage of its images. Each of the
// three may run again.
func (t *Target) Publish(ctx context.Context, def targets.Definition) error {
	def = t.carried(def)
	done, err := t.Published(def)
	if err != nil {
		return err
	}
	if !done {
		if err := t.deliver(ctx, def); err != nil {
			return err
		}
	}
	return t.clear(def.Images)
}

// Prepare has the place take what is there of the images, if it is one that can.
func (t *Target) Prepare(ctx context.Context, def targets.Definition) error {
	early, ok := t.place.(Preparer)
	if !ok {
		return nil
	}
	if err := early.Prepare(ctx, Delivery{Definition: def, Open: t.ReadUnfinished}); err != nil {
		return fmt.Errorf("deliver VM %s early: %w", def.VM.Name, err)
	}
	return nil
}

// Sends is part of targets.Sender. Images that stay on the stage are not sent.
func (t *Target) Sends(held, changed int64) int64 {
	if t.opts.Keep {
		return 0
	}
	if s, ok := t.place.(Sender); ok {
		return s.Sends(held, changed)
	}
	return held
}

// CanStart is part of targets.Starter.
func (t *Target) CanStart() error {
	_, err := t.starter()
	return err
}

// Start powers on the VM where it was delivered to.
func (t *Target) Start(ctx context.Context, def targets.Definition) (targets.Started, error) {
	place, err := t.starter()
	if err != nil {
		return targets.Started{}, err
	}
	started, err := place.Start(ctx, t.carried(def))
	if err != nil {
		return started, fmt.Errorf("start VM %s: %w", def.VM.Name, err)
	}
	_ = dir.MarkStarted(t.Folder(def.VM), time.Now()) // the VM runs, and only decamp verify looks at the mark
	return started, nil
}

func (t *Target) starter() (Starter, error) {
	s, ok := t.place.(Starter)
	if !ok {
		return nil, targets.ErrStartsNone
	}
	return s, nil
}

// Console attaches to the VM's console where it was delivered to.
func (t *Target) Console(ctx context.Context, def targets.Definition) (io.ReadWriteCloser, error) {
	place, ok := t.place.(Consoler)
	if !ok {
		return nil, targets.ErrNoConsole
	}
	console, err := place.Console(ctx, t.carried(def))
	if err != nil {
		return nil, fmt.Errorf("console of VM %s: %w", def.VM.Name, err)
	}
	return console, nil
}

func (t *Target) deliver(ctx context.Context, def targets.Definition) error {
	domain, err := t.Domain(def)
	if err != nil {
		return err
	}
	receipt, err := t.place.Deliver(ctx, Delivery{Definition: def, Domain: domain, Open: t.Read})
	if err != nil {
		return fmt.Errorf("deliver VM %s: %w", def.VM.Name, err)
	}
	def.Delivered = &receipt
	return t.Target.Publish(ctx, def)
}

// clear removes delivered images, which may be terabytes. Their manifests stay.
func (t *Target) clear(images []targets.Image) error {
	if t.opts.Keep {
		return nil
	}
	var errs []error
	for _, img := range images {
		if err := os.Remove(img.Final); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("clear the stage of %s: %w", filepath.Base(img.Final), err))
		}
	}
	return errors.Join(errs...)
}

// Discard removes what a Deliver that was cut off made, too.
func (t *Target) Discard(ctx context.Context, vm *inventory.VM, images []targets.Image) error {
	if err := t.place.Withdraw(ctx, vm); err != nil {
		return fmt.Errorf("withdraw VM %s: %w", vm.Name, err)
	}
	return t.Target.Discard(ctx, vm, images)
}

// Withdraw removes the VM from where it was delivered, and then what is recorded of it.
func (t *Target) Withdraw(ctx context.Context, vm *inventory.VM) error {
	if err := t.place.Withdraw(ctx, vm); err != nil {
		return fmt.Errorf("withdraw VM %s: %w", vm.Name, err)
	}
	return t.Target.Withdraw(ctx, vm)
}
