// Package targets defines the interface of a target, and the values that pass between targets and runs.
// Package dir implements a target that is a folder. Package platform implements targets that
// take whole VMs from a staging folder.
package targets

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/efi"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/manifest"
)

// Format is the file format of an image.
type Format = image.Format

const (
	Raw   = image.Raw   // a sparse file with the bytes of the disk
	QCOW2 = image.QCOW2 // QEMU's copy-on-write format, version 3
)

// Image is the image of one disk at the target.
type Image struct {
	Key      int32  `json:"key"`            // device key of the source disk
	Path     string `json:"path"`           // current path; a temporary name until the VM is published
	Final    string `json:"final"`          // path after the VM is published
	Manifest string `json:"manifest"`       // path of the manifest, in the same folder as Path
	Format   Format `json:"format"`         // raw or qcow2
	Size     int64  `json:"size"`           // capacity of the disk in bytes
	Root     string `json:"root,omitempty"` // root hash of the sealed manifest in hex; empty while the image is not verified

	// Copied is the root hash of the image before the convert step changed it: the content of the source
	// disk. It is empty if the image was not changed; then Root has that meaning.
	Copied string `json:"copied,omitempty"`
}

// Hardware selects the disk controllers and network cards of the VM.
type Hardware string

const (
	// Compat is hardware that QEMU has in common with VMware, so that the guest keeps its drivers.
	// An empty Hardware has the same meaning.
	Compat Hardware = "compat"

	// Virtio is virtio-scsi and virtio-net. The guest must have the drivers.
	Virtio Hardware = "virtio"

	// VirtioBlk is virtio-blk and virtio-net, for a guest that has no driver for virtio-scsi, or
	// refers to its disks as /dev/vda.
	VirtioBlk Hardware = "virtio-blk"
)

// OnVirtio reports whether the hardware requires virtio drivers in the guest, for either disk bus.
func (h Hardware) OnVirtio() bool { return h == Virtio || h == VirtioBlk }

// Definition contains everything that a target needs to define a VM.
type Definition struct {
	VM        *inventory.VM       // inventory of the source VM; not modified
	Images    []Image             // one image for each disk of VM
	Guest     []guest.Report      // reports of the detect step, in the order of Images
	Hardware  Hardware            // controllers and cards; Compat if empty
	EFI       *efi.State          // EFI variables to carry over; nil if absent
	Converted *convert.Result     // changes inside the guest; nil if nothing was changed
	Decamp    string              // version of this program, for records
	Warnings  []inventory.Warning // warnings of earlier steps, for records
	Checks    []Check             // comparisons with the source, one per image; empty if not known
	Delivered *Receipt            // receipt of the platform; nil if the images stay in the folder

	// Progress, if not nil, is called with the number of delivered bytes and their total.
	Progress func(done, total int64) `json:"-"`
}

// Check describes the comparisons of one image. The whole image was read back and compared with the
// data
// read from the source.
type Check struct {
	Key    int32           `json:"key"`    // device key of the source disk, as in Image.Key
	Reread manifest.Reread `json:"reread"` // how much of the source was read a second time, and the result
	// hash algorithm, if the host's hash of the whole disk equals the image's; else empty
	SourceHash string `json:"sourceHash,omitempty"`
}

// String returns the check as one phrase for logs and reports.
func (c Check) String() string {
	text := "image = data read from the source (all); source re-read: " + c.Reread.String()
	if c.SourceHash != "" {
		text += "; " + c.SourceHash + " of the whole disk by the host: equal"
	}
	return text
}

// GuestAgent reports whether the guest has QEMU's guest agent, or installs it at its first boot.
func (d Definition) GuestAgent() bool {
	return d.Converted != nil && d.Converted.GuestAgent || slices.ContainsFunc(d.Guest, func(g guest.Report) bool {
		return g.Linux != nil && g.Linux.GuestAgent || g.Windows != nil && g.Windows.GuestAgent
	})
}

// AgentChannel reports whether a target should give the VM the channel of QEMU's guest agent.
// The channel is a virtio device, so the guest must have virtio drivers.
func (d Definition) AgentChannel() bool { return d.GuestAgent() && d.Hardware.OnVirtio() }

// Receipt identifies a delivered VM on its platform.
type Receipt struct {
	Platform string `json:"platform"` // the platform, such as "proxmox pve1"
	ID       string `json:"id"`       // identifier for programs, such as "103"
	Name     string `json:"name"`     // name that the platform displays
	// differences that the platform found during the delivery
	Warnings []inventory.Warning `json:"warnings,omitempty"`

	// EFI is set if the platform has stored the Definition's EFI variables in its own firmware, or
	// explains in
	// Warnings why it has not. The warnings about the variables on this machine then do not apply.
	EFI bool `json:"-"`
}

// NotStarted is the code of a warning in a Receipt that contains the command to start the VM. It is
// used
// if only the platform can name that command.
const NotStarted = "no-server"

// ErrLocked is returned by Hold if another process has the lock on the images.
var ErrLocked = errors.New("another decamp process uses them")

// Target stores VMs. Its methods are idempotent: after a crash, each can be called again. Users of the
// target see nothing before Publish returns.
type Target interface {
	// LockImages locks vm's images against other callers, also in other processes, until release is called or
	// this
	// process ends. If the lock is taken, LockImages fails with ErrLocked and fault.Transient, and the error names
	// the holder. Only vm's reference and UUIDs are used.
	LockImages(ctx context.Context, vm *inventory.VM) (release func() error, err error)

	// Plan chooses names and paths for vm's images and checks that they fit. A name clash is
	// fault.Conflict, missing space is fault.Full. Plan creates nothing.
	Plan(ctx context.Context, vm *inventory.VM) ([]Image, error)

	// Open creates the image under its temporary name, or opens an unfinished one. created reports
	// whether it is new: a new image reads as zeros.
	Open(ctx context.Context, img Image) (t disk.Target, created bool, err error)

	// Grow durably enlarges an unfinished image to img.Size. The image must have at least `least` bytes.
	// The added
	// range reads as zeros. Grow does nothing if there is no image, or if it has that size.
	Grow(ctx context.Context, img Image, least int64) error

	// Read opens a finished image, published or not, for verification. It reads from the medium instead of
	// the page cache if the target supports that. An unfinished image is fault.Corrupt if the format can
	// detect it.
	Read(ctx context.Context, img Image) (disk.Source, error)

	// ReadUnfinished opens an unfinished image, so that its content can be compared with its manifest
	// before
	// the copy resumes.
	ReadUnfinished(ctx context.Context, img Image) (disk.Source, error)

	// Domain returns the libvirt domain of the VM with the current paths of its images, published or not.
	// Trial boots start this domain.
	Domain(def Definition) (string, error)

	// Publish gives finished images their final names and writes the definition. It is the only step that
	// other users can see.
	Publish(ctx context.Context, def Definition) error

	// Discard removes files of vm that Open or a failed Publish left. It never removes a published VM.
	Discard(ctx context.Context, vm *inventory.VM, imgs []Image) error

	// Withdraw removes a published VM that was made from vm. A different VM with that name, or a VM that
	// runs, is fault.Conflict. If there is no such VM, Withdraw returns nil.
	Withdraw(ctx context.Context, vm *inventory.VM) error
}

// Sender is a Target that transfers images when a VM is published. The transfer is part of the outage.
type Sender interface {
	// Sends estimates the bytes that Publish transfers, if the images hold `held` bytes and `changed`
	// bytes
	// of them changed since Prepare.
	Sends(held, changed int64) int64
}

// Preparer is a Target that can transfer images while the VM still runs.
type Preparer interface {
	// Prepare transfers the chunks that the manifests of the unfinished images list. No other process
	// writes
	// to the images during the call, and root hashes are not known yet. Publish then transfers later
	// changes.
	// Prepare can be called any number of times. A failure costs time only.
	Prepare(ctx context.Context, def Definition) error
}

// Starter is a Target that may be able to power on VMs.
type Starter interface {
	// CanStart returns nil if the target can start VMs, else fault.Unsupported with the alternative.
	CanStart() error

	// Start powers on the published VM of def and returns when it runs. A running VM is left unchanged.
	// If there is no such VM, the error is fault.NotFound; a different VM with its name is fault.Conflict.
	// The VM stays published in any case.
	Start(ctx context.Context, def Definition) (Started, error)
}

// ErrStartsNone is the error of CanStart for a target that only stores VMs.
var ErrStartsNone error = fault.New(fault.Unsupported, "the target does not support --start").
	WithHint("omit --start and start the VM manually; or migrate it to libvirt, Proxmox VE, OpenStack or a cluster with KubeVirt")

// StarterOf returns t as a Starter. The error is fault.Unsupported if t cannot start VMs.
func StarterOf(t Target) (Starter, error) {
	s, ok := t.(Starter)
	if !ok {
		return nil, ErrStartsNone
	}
	return s, s.CanStart()
}

// Consoler is a Target that may give access to the serial consoles of its VMs.
type Consoler interface {
	// Console attaches to the serial console of the published VM of def. If there is no such VM, the error
	// is
	// fault.NotFound. If the VM is off, or its console is in use, it is fault.Conflict. If the target has
	// no
	// serial consoles, it is fault.Unsupported. ctx limits the attaching only.
	//
	// Reads return the output of the guest unchanged, and io.EOF when the VM is off. Writes are input to
	// the
	// guest. One goroutine can read while another writes. Any goroutine can call Close; it leaves the VM
	// unchanged.
	Console(ctx context.Context, def Definition) (io.ReadWriteCloser, error)
}

// ErrNoConsole is the error of a target that gives no access to serial consoles.
var ErrNoConsole error = fault.New(fault.Unsupported, "the target does not provide serial consoles").
	WithHint("open the console at the target: virsh console on its host, qm terminal on a Proxmox node, virtctl console, or openstack console url show")

// Started describes a VM that was powered on.
type Started struct {
	Console string `json:"console,omitempty"` // command that opens the VM's console; empty if there is no console
}
