package migrate

import (
	"context"
	"time"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/convert/virtv2v"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/testboot"
	"github.com/decamp/decamp/internal/transport"
)

// Source is the part of a host or vCenter that a run needs.
type Source interface {
	// VM reads a VM's current description by its reference.
	VM(ctx context.Context, ref string) (*inventory.VM, error)

	// BareVM is VM without what people put on it in a vCenter (inventory.VM.CopyTags), which may take
	// more calls.
	BareVM(ctx context.Context, ref string) (*inventory.VM, error)

	// PowerOff requests a shutdown of the guest and waits; with force it then switches the power off. A
	// VM that stays on is fault.Conflict.
	PowerOff(ctx context.Context, vm inventory.MoRef, wait time.Duration, force bool) error
}

// PowerOner is a Source that starts VMs, for undoing a run that shut its VM down.
type PowerOner interface {
	// PowerOn starts a VM. One that runs is no error.
	PowerOn(ctx context.Context, vm inventory.MoRef) error
}

// Environment contains the connections and tools of one run. The caller opens and closes them.
type Environment struct {
	Source    Source              // host or vCenter of the VM
	Transport transport.Transport // way to read the disks
	Target    targets.Target      // destination of the VM

	// Seen is the VM as the caller has just read it by Source: a cold run does not read it again
	// to begin with. Nil: it does.
	Seen *inventory.VM

	// Open opens a disk of the source to compare a sample with it when a copy is resumed. Nil leaves
	// that out.
	Open func(ctx context.Context, d transport.Disk) (disk.Source, error)

	// Reread opens a disk of the source over another connection than Transport's, and returns how it
	// is read: https or nfc. A disk that cannot be read a second time is fault.Unsupported. Nil: none can.
	Reread func(ctx context.Context, d transport.Disk) (src disk.Source, by string, err error)

	// Sum has the host itself hash a disk, and returns the hash. A disk that no file there
	// holds byte for byte is fault.Unsupported. Nil: hosts are not asked.
	Sum func(ctx context.Context, d transport.Disk) (SourceSum, error)

	// NVRAM reads the file VM.NVRAM of a VM that is off. It may be nil.
	NVRAM func(ctx context.Context, vm *inventory.VM) ([]byte, error)

	// Boot starts the VM that a libvirt domain defines, observes its boot, and changes nothing
	// in its images. static are the addresses that its guest should have. Nil: there are no trial boots.
	Boot func(ctx context.Context, domain string, static []testboot.Static) (testboot.Report, error)

	// Rehearse boots the VM of a warm run from its current images while the run continues. nil permits
	// no rehearsals.
	Rehearse func(ctx context.Context, what Rehearsing) (testboot.Report, error)

	// Trials returns when the VM may boot here, with a function to call after the trial; waits is
	// called with the reason before a wait. nil permits trials at once.
	Trials func(ctx context.Context, waits func(why string)) (leave func(), err error)

	// Convert changes a guest on overlays so that it boots from virtio: convert.LinuxAppend. Nil:
	// no guest is converted.
	Convert func(ctx context.Context, disks []convert.Disk, o convert.Options) (convert.Result, error)

	// Prepare changes on overlays what virt-v2v leaves out: convert.Prepare. Nil: nothing.
	Prepare func(ctx context.Context, disks []convert.Disk, o convert.Options) (convert.Result, error)

	// V2V has virt-v2v change a guest on disks that are thrown away if it fails: virtv2v.Engine. Nil:
	// it is not there, or not to be used.
	V2V func(ctx context.Context, j virtv2v.Job) (virtv2v.Report, error)

	// Keys open encrypted volumes of guests for virt-v2v.
	Keys []virtv2v.Key

	// Settled is called with a disk's key when the run needs no transfer of that disk, or no other
	// transfer. It may be called several times, and a disk may need a transfer later after all. It may
	// be nil.
	Settled func(disk int32)

	// Pace returns when so many bytes may be requested from the source (transport.Job). Nil: at once.
	Pace func(ctx context.Context, bytes int64) error

	// Free reports whether Pace need not be called now (transport.Job). nil means unknown.
	Free func() bool

	// Epoch increases with each takeover of the run by another process. It is part of the names of its
	// snapshots. 0 means that takeovers are not counted.
	Epoch int64

	// RequestSlot returns when the run may transfer, and a function that returns the slot. It is called by one
	// step at a time, and waits as long as ctx. Nil: at once.
	RequestSlot func(ctx context.Context, s TransferKind) (giveBack func(), err error)
}

// Rehearsing describes the VM to boot.
type Rehearsing struct {
	journal.Rehearsal
	Domain  string                 // libvirt domain XML
	Static  []testboot.Static      // addresses that the guest should have
	Disks   map[string]disk.Source // disks by the files in the domain; the callee does not close them
	Keep    string                 // folder for screens and logs
	Scratch string                 // folder for what the guest writes; it is removed afterwards
}
