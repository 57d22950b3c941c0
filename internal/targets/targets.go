// Package targets has the word for where a VM will live, and what every such place must
// be able to do. dir is a folder; staged is any place that takes whole VMs out of one.
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

// Format is how an image is written.
type Format = image.Format

const (
	Raw   = image.Raw
	QCOW2 = image.QCOW2
)

// Image is one disk's place on the target.
type Image struct {
	Key      int32  `json:"key"`      // the source disk's device key
	Path     string `json:"path"`     // where the image is now: temporary until published
	Final    string `json:"final"`    // where it will be once published
	Manifest string `json:"manifest"` // the manifest beside Path
	Format   Format `json:"format"`
	Size     int64  `json:"size"`
	Root     string `json:"root,omitempty"` // the sealed manifest's root hash, hex

	// Copied is the root of what was copied, the disk as it was at the source, where the image was
	// changed after that. Else it is empty, and Root is that.
	Copied string `json:"copied,omitempty"`
}

// Hardware is the kind of disk controllers and network cards the VM gets.
type Hardware string

const (
	// Compat is the hardware that QEMU has in common with VMware: the guest keeps its drivers.
	// An empty Hardware means the same.
	Compat Hardware = "compat"

	// Virtio is virtio-scsi and virtio-net, for a guest that has the drivers.
	Virtio Hardware = "virtio"

	// VirtioBlk is virtio-blk and virtio-net, for a guest that has no driver for virtio-scsi, or
	// calls its disks vda.
	VirtioBlk Hardware = "virtio-blk"
)

// OnVirtio reports whether the guest has drivers for virtio, on whichever bus its disks are.
func (h Hardware) OnVirtio() bool { return h == Virtio || h == VirtioBlk }

// Definition is all that is needed to define the VM on the target.
type Definition struct {
	VM        *inventory.VM
	Images    []Image
	Guest     []guest.Report // what detect found, in the order of Images
	Hardware  Hardware
	EFI       *efi.State      // what of its firmware goes with it; nil: nothing
	Converted *convert.Result // what is changed in the guest; nil: nothing
	Decamp    string          // our version
	Warnings  []inventory.Warning
	Checks    []Check  // what was compared with the source, by image; empty if it is not known
	Delivered *Receipt // by whom the images were taken; nil: they stay where they are

	// Progress is told how many bytes of how many are delivered. Nil: nobody asks.
	Progress func(done, total int64) `json:"-"`
}

// A Check is what was compared of one image. All of the image was read back and compared with what
// was read of the source.
type Check struct {
	Key        int32           `json:"key"` // as Image.Key
	Reread     manifest.Reread `json:"reread"`
	SourceHash string          `json:"sourceHash,omitempty"` // the algorithm, if the host's hash of the whole disk is that of the image
}

// String returns the check as one phrase.
func (c Check) String() string {
	text := "image = what was read (all); source re-read: " + c.Reread.String()
	if c.SourceHash != "" {
		text += "; " + c.SourceHash + " of the whole disk by the host: equal"
	}
	return text
}

// GuestAgent reports whether the guest has QEMU's guest agent, or will install it at its first boot.
func (d Definition) GuestAgent() bool {
	return d.Converted != nil && d.Converted.GuestAgent || slices.ContainsFunc(d.Guest, func(g guest.Report) bool {
		return g.Linux != nil && g.Linux.GuestAgent || g.Windows != nil && g.Windows.GuestAgent
	})
}

// AgentChannel reports whether the VM gets the channel of QEMU's guest agent where it is the target that
// gives it: it is a virtio device.
func (d Definition) AgentChannel() bool { return d.GuestAgent() && d.Hardware.OnVirtio() }

// A Receipt is what a place says of a VM that it took.
type Receipt struct {
	Place    string              `json:"place"` // such as "proxmox pve1"
	ID       string              `json:"id"`    // what the VM is called there by programs, such as "103"
	Name     string              `json:"name"`  // and by people
	Warnings []inventory.Warning `json:"warnings,omitempty"`

	// EFI says that the place has taken the Definition's EFI into a firmware of its own, or says in Warnings why not.
	// What became of it on this machine is of no interest then.
	EFI bool `json:"-"`
}

// NotStarted is the code of a Receipt's warning that says how the VM is started, where that is a command which
// only the place knows.
const NotStarted = "no-server"

// ErrHeld is for those who want images that somebody else works on.
var ErrHeld = errors.New("another decamp has them")

// Target is a place for VMs. Its methods are idempotent: each may run again after a
// crash. Nothing is visible to the target's users before Publish returned.
type Target interface {
	// Hold keeps all others, other processes too, from writing, publishing or discarding vm's
	// images until release, or until this process is dead. While somebody else has them it is
	// ErrHeld, fault.Transient, and says who. Of vm its reference and UUIDs count.
	Hold(ctx context.Context, vm *inventory.VM) (release func() error, err error)

	// Plan decides names and places for vm's images and checks that they fit: name
	// clashes are fault.Conflict, missing space is fault.Full. It creates nothing.
	Plan(ctx context.Context, vm *inventory.VM) ([]Image, error)

	// Open creates the image under its temporary name, or opens the unfinished one a
	// crash left. created says which: a created image reads as zeros everywhere.
	Open(ctx context.Context, img Image) (t disk.Target, created bool, err error)

	// Grow makes an image that Open returned for a disk which was smaller, but had at least
	// so many bytes, one of img.Size, durably. What is added reads as zeros. No image, or one
	// that has the size, is no error.
	Grow(ctx context.Context, img Image, least int64) error

	// Read opens a finished image, published or not, for verification: from the medium,
	// not from the page cache, where the place allows it. An image that Finish has not
	// completed is fault.Corrupt, where the format can tell.
	Read(ctx context.Context, img Image) (disk.Source, error)

	// ReadUnfinished opens the image that Open returned and that is not finished, to
	// compare what it holds with its manifest before it is resumed.
	ReadUnfinished(ctx context.Context, img Image) (disk.Source, error)

	// Domain is the VM as a libvirt domain, with its images where they are now, published or not:
	// what a trial boot starts.
	Domain(def Definition) (string, error)

	// Publish makes the VM real: finished images get their final names, the definition
	// is written. It is the only step that cannot be undone silently.
	Publish(ctx context.Context, def Definition) error

	// Discard removes what Open and a failed Publish of vm left, never a published VM.
	Discard(ctx context.Context, vm *inventory.VM, imgs []Image) error

	// Withdraw removes a published VM, and only one that was made of vm: another one in its place is
	// fault.Conflict, and so is one that runs. That there is none is no error.
	Withdraw(ctx context.Context, vm *inventory.VM) error
}

// A Sender is a Target that sends images on when a VM is published: an outage lasts until they are there.
type Sender interface {
	// Sends returns how many bytes of a VM are sent then, if its images hold so many, and so many of them
	// changed since Prepare. It is what is known before, and no promise.
	Sends(held, changed int64) int64
}

// A Preparer is a Target that has more to do with images than to keep them, and can begin with it
// while the VM runs.
type Preparer interface {
	// Prepare takes in what the images hold that Open returned and nobody writes to now, as far as
	// their manifests list it; Publish then takes what changed after that. Roots are not known yet. It may
	// run any number of times, and fail: nothing but time is lost.
	Prepare(ctx context.Context, def Definition) error
}

// A Starter is a Target that may be one that powers VMs on.
type Starter interface {
	// CanStart is why no VM is started there: fault.Unsupported, with what to do in its place. Nil: they are.
	CanStart() error

	// Start powers on the published VM of def and returns once it runs there. One that runs is left as it is.
	// No such VM is fault.NotFound, another one in its place fault.Conflict. Whatever happens, it stays
	// published.
	Start(ctx context.Context, def Definition) (Started, error)
}

// ErrStartsNone is what CanStart says of a place that only keeps VMs.
var ErrStartsNone error = fault.New(fault.Unsupported, "that target starts no VMs").
	WithHint("leave --start out, and start the VM by hand; or move it to a libvirt, a Proxmox node, an OpenStack or a cluster with KubeVirt")

// StarterOf is t as one that starts VMs. What starts none is fault.Unsupported.
func StarterOf(t Target) (Starter, error) {
	s, ok := t.(Starter)
	if !ok {
		return nil, ErrStartsNone
	}
	return s, s.CanStart()
}

// A Consoler is a Target that may be one whose VMs' serial consoles can be had.
type Consoler interface {
	// Console attaches to that of the published VM of def. No such VM is fault.NotFound; one that is off, or whose
	// console somebody else has, is fault.Conflict; where VMs have none that could be passed on, it is
	// fault.Unsupported. ctx bounds the attaching only.
	//
	// What is read is what the guest says, as it is; it is io.EOF once the VM is off. What is written is typed.
	// One may read and another write, and anybody close it, which leaves the VM as it is.
	Console(ctx context.Context, def Definition) (io.ReadWriteCloser, error)
}

// ErrNoConsole is what a place says that passes no consoles on.
var ErrNoConsole error = fault.New(fault.Unsupported, "that target passes no consoles on").
	WithHint("look at the VM there: virsh console on its host, qm terminal on a Proxmox node, virtctl console, or openstack console url show")

// Started is what is to be known of a VM that was powered on.
type Started struct {
	Console string `json:"console,omitempty"` // the command by which a person sees its console; empty: there is none
}
