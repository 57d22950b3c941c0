// Package platform implements targets that take whole VMs: libvirt, Proxmox VE, OpenStack, KubeVirt.
// Their APIs want each image in one piece with a known size, and have no operation for single chunks.
// So images are copied, tested and verified in a local staging folder, and delivered at commit.
//
//	source -> staging folder (dir.Target: copy, resume, verify, trial boot) -> Platform.Deliver -> the VM
//
// The VM's folder in the staging folder keeps the record of the delivery: vm.json names the platform, and
// the manifests contain the hashes of the delivered chunks.
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

// Platform is a platform that takes whole VMs.
type Platform interface {
	// Check reports before the copy whether vm can be delivered: the platform is reachable, the account
	// has the
	// required rights, there is enough space, and vm's name is free. It creates nothing. Remains of an
	// unfinished Deliver of the same VM are no error.
	Check(ctx context.Context, vm *inventory.VM) error

	// Deliver creates the VM, powered off. After a crash it can be called again and resumes, or finds the
	// VM complete. After an error it has removed everything that it created. It may move image files
	// out of the staging folder.
	Deliver(ctx context.Context, d Delivery) (Receipt, error)

	// Withdraw removes what Deliver created for vm, and nothing else. If there is nothing, it returns nil.
	// A running VM is fault.Conflict.
	Withdraw(ctx context.Context, vm *inventory.VM) error
}

// Carrier is a Platform that may store the VM's EFI variables. VMs on other platforms, and trial boots
// of those VMs, start with default variables.
type Carrier interface {
	CarriesEFI() bool // CarriesEFI reports whether Deliver uses Definition.EFI.
}

// Outliner is a Platform that can describe the VM that it would create, before there are images.
type Outliner interface {
	// Outline returns the outline for this platform. stage is the outline of the staging folder, as a
	// start.
	Outline(def targets.Definition, stage targets.Outline) (targets.Outline, error)
}

// Preparer is a Platform that can receive images while the VM still runs, and later the changed chunks.
// This shortens the outage.
type Preparer interface {
	Platform

	// Prepare transfers the chunks that the manifests list. The images are unfinished and have no root
	// hash.
	// No other process writes to them during the call. The result is marked as unfinished on the platform.
	// After an error or a crash, Prepare can be called again and resumes.
	//
	// Deliver verifies these chunks as if it had transferred them. After a failed Deliver they may remain;
	// Withdraw removes them.
	Prepare(ctx context.Context, d Delivery) error
}

// Sender is a Platform whose Deliver does not transfer the whole content of the images. Other
// platforms transfer all of it.
type Sender interface {
	Sends(held, changed int64) int64 // Sends has the meaning of targets.Sender.Sends.
}

// Starter is a Platform that can power on delivered VMs.
type Starter interface {
	// Start has the meaning of targets.Starter.Start.
	Start(ctx context.Context, def targets.Definition) (targets.Started, error)
}

// Consoler is a Platform that gives access to the serial consoles of delivered VMs.
type Consoler interface {
	// Console has the meaning of targets.Consoler.Console.
	Console(ctx context.Context, def targets.Definition) (io.ReadWriteCloser, error)
}

// Receipt identifies a delivered VM on its platform.
type Receipt = targets.Receipt

// Delivery is the argument of Deliver and Prepare: one VM with access to its images.
type Delivery struct {
	targets.Definition
	Domain string // libvirt domain of the VM with the current paths of its images; empty for Prepare

	// Open opens an image as a disk with its extents. The caller closes it.
	Open func(ctx context.Context, img targets.Image) (disk.Source, error)
}

// Options configure the staging folder.
type Options struct {
	Keep bool // keep the images in the staging folder after the delivery
}

// Target implements targets.Target. It stages VMs with package dir and delivers them to a platform.
type Target struct {
	*dir.Target
	platform Platform // the platform
	opts     Options  // fixed after New
}

var (
	_ targets.Target   = (*Target)(nil)
	_ targets.Preparer = (*Target)(nil)
	_ targets.Sender   = (*Target)(nil)
	_ targets.Starter  = (*Target)(nil)
	_ targets.Consoler = (*Target)(nil)
)

// New returns a target that uses stage as the staging folder of place.
func New(stage *dir.Target, place Platform, o Options) *Target {
	return &Target{Target: stage, platform: place, opts: o}
}

// Plan plans the staging folder and runs the platform's Check, so that a VM that the platform
// rejects is not copied.
func (t *Target) Plan(ctx context.Context, vm *inventory.VM) ([]targets.Image, error) {
	images, err := t.Target.Plan(ctx, vm)
	if err != nil { // also if vm was delivered already
		return nil, err
	}
	return images, t.platform.Check(ctx, vm)
}

// withSupportedEFI returns def, without EFI variables if the platform cannot store them.
func (t *Target) withSupportedEFI(def targets.Definition) targets.Definition {
	if c, ok := t.platform.(Carrier); !ok || !c.CarriesEFI() {
		def.EFI = nil
	}
	return def
}

// Domain returns the domain in the staging folder that corresponds to the VM on the platform.
func (t *Target) Domain(def targets.Definition) (string, error) {
	return t.Target.Domain(t.withSupportedEFI(def))
}

// Outline returns the outline of the VM on the platform. The error is fault.Unsupported if the platform
// is no Outliner.
func (t *Target) Outline(def targets.Definition) (targets.Outline, error) {
	place, ok := t.platform.(Outliner)
	if !ok {
		return targets.Outline{}, fault.New(fault.Unsupported, "this target cannot preview a VM").
			WithHint("run the command without --dry-run: it checks the VM before it copies anything")
	}
	def = t.withSupportedEFI(def)
	o, err := t.Target.Outline(def)
	if err != nil {
		return o, err
	}
	return place.Outline(def, o)
}

// Publish delivers the VM, records the delivery in the staging folder and removes the delivered images.
// Each of these steps can be repeated after a crash.
func (t *Target) Publish(ctx context.Context, def targets.Definition) error {
	def = t.withSupportedEFI(def)
	done, err := t.Published(def)
	if err != nil {
		return err
	}
	if !done {
		if err := t.deliverAndRecord(ctx, def); err != nil {
			return err
		}
	}
	return t.removeImages(def.Images)
}

// Prepare transfers unfinished images to the platform. It does nothing if the platform is no Preparer.
func (t *Target) Prepare(ctx context.Context, def targets.Definition) error {
	early, ok := t.platform.(Preparer)
	if !ok {
		return nil
	}
	if err := early.Prepare(ctx, Delivery{Definition: def, Open: t.ReadUnfinished}); err != nil {
		return fmt.Errorf("deliver VM %s early: %w", def.VM.Name, err)
	}
	return nil
}

// Sends implements targets.Sender. It returns 0 if the images stay in the staging folder.
func (t *Target) Sends(held, changed int64) int64 {
	if t.opts.Keep {
		return 0
	}
	if s, ok := t.platform.(Sender); ok {
		return s.Sends(held, changed)
	}
	return held
}

// CanStart implements targets.Starter.
func (t *Target) CanStart() error {
	_, err := t.starter()
	return err
}

// Start powers on the delivered VM, and marks its folder as started for decamp verify.
func (t *Target) Start(ctx context.Context, def targets.Definition) (targets.Started, error) {
	place, err := t.starter()
	if err != nil {
		return targets.Started{}, err
	}
	started, err := place.Start(ctx, t.withSupportedEFI(def))
	if err != nil {
		return started, fmt.Errorf("start VM %s: %w", def.VM.Name, err)
	}
	_ = dir.MarkStarted(t.Folder(def.VM), time.Now()) // only decamp verify reads the mark, so a failure is harmless
	return started, nil
}

// starter returns the platform as a Starter, or targets.ErrStartsNone.
func (t *Target) starter() (Starter, error) {
	s, ok := t.platform.(Starter)
	if !ok {
		return nil, targets.ErrStartsNone
	}
	return s, nil
}

// Console attaches to the console of the delivered VM. The error is targets.ErrNoConsole if the
// platform
// is no Consoler.
func (t *Target) Console(ctx context.Context, def targets.Definition) (io.ReadWriteCloser, error) {
	place, ok := t.platform.(Consoler)
	if !ok {
		return nil, targets.ErrNoConsole
	}
	console, err := place.Console(ctx, t.withSupportedEFI(def))
	if err != nil {
		return nil, fmt.Errorf("console of VM %s: %w", def.VM.Name, err)
	}
	return console, nil
}

// deliverAndRecord delivers the VM and writes the receipt to the VM's folder. If it fails between the
// two, the
// next call to Deliver finds the VM complete.
func (t *Target) deliverAndRecord(ctx context.Context, def targets.Definition) error {
	domain, err := t.Domain(def)
	if err != nil {
		return err
	}
	receipt, err := t.platform.Deliver(ctx, Delivery{Definition: def, Domain: domain, Open: t.Read})
	if err != nil {
		return fmt.Errorf("deliver VM %s: %w", def.VM.Name, err)
	}
	def.Delivered = &receipt
	return t.Target.Publish(ctx, def)
}

// removeImages removes the published images from the staging folder. The manifests stay. It tries all
// images, also after an error.
func (t *Target) removeImages(images []targets.Image) error {
	if t.opts.Keep {
		return nil
	}
	var errs []error
	for _, img := range images {
		if err := os.Remove(img.Final); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("clear the staging folder of %s: %w", filepath.Base(img.Final), err))
		}
	}
	return errors.Join(errs...)
}

// Discard removes the remains of an unfinished delivery from the platform, and then the images.
func (t *Target) Discard(ctx context.Context, vm *inventory.VM, images []targets.Image) error {
	if err := t.platform.Withdraw(ctx, vm); err != nil {
		return fmt.Errorf("withdraw VM %s: %w", vm.Name, err)
	}
	return t.Target.Discard(ctx, vm, images)
}

// Withdraw removes the VM from the platform, and then its record from the staging folder.
func (t *Target) Withdraw(ctx context.Context, vm *inventory.VM) error {
	if err := t.platform.Withdraw(ctx, vm); err != nil {
		return fmt.Errorf("withdraw VM %s: %w", vm.Name, err)
	}
	return t.Target.Withdraw(ctx, vm)
}
