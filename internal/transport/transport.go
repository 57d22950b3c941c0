// Package transport has the word for a way to move one disk off the source, and the
// loop that all pulling transports share.
//
// A pull transport only knows how to open a disk as a disk.Source; Pull does the rest.
// A push transport (the landing) makes ESXi write to us and implements Transfer itself.
// The pipeline cannot tell them apart: both fill the same Target and the same manifest.
package transport

import (
	"context"
	"errors"
	"fmt"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/bitmap"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/manifest"
)

// Disk names what is to be moved: one disk of one VM as it is now, or as it was at a
// snapshot.
type Disk struct {
	VM       *inventory.VM
	Disk     *inventory.Disk
	Snapshot inventory.MoRef // empty: the disk of a powered-off VM
}

// Offer is what a transport can do for a disk.
type Offer struct {
	Usable  bool
	Reason  string // why not, with the remedy; or what was found, when usable
	Running bool   // works while the VM runs (from a snapshot)
	Delta   bool   // can send changes since a ChangeID
	Map     bool   // knows the allocated areas before reading
	Streams int    // parallel streams that are useful
}

// Refusal makes an Offer of errors that are an answer to "can this disk be moved?", and
// passes on those that only say that nobody could be asked.
func Refusal(err error) (Offer, error) {
	switch fault.KindOf(err) {
	case fault.Unsupported, fault.Conflict, fault.NotFound, fault.Corrupt:
	default:
		return Offer{}, err
	}
	if hint := fault.HintOf(err); hint != "" {
		return Offer{Reason: err.Error() + "; " + hint}, nil
	}
	return Offer{Reason: err.Error()}, nil
}

// ProbeSource reads the first sector of an open disk, which proves access, lock and size, and completes the offer.
// The function mapped reports whether the map of free areas is available; it is called after the read.
func ProbeSource(ctx context.Context, src disk.Source, offer Offer, mapped func(context.Context) bool) (Offer, error) {
	if err := src.ReadAt(ctx, make([]byte, min(disk.SectorSize, src.Size())), 0); err != nil {
		return Refusal(err)
	}
	offer.Usable, offer.Map, offer.Streams = true, mapped(ctx), src.Hints().Streams
	if !offer.Map {
		offer.Reason += "; which areas are free is not known, so all of it is read"
	}
	return offer, ctx.Err()
}

// Freezer looks up the disk of a snapshot by its key.
type Freezer interface {
	FrozenDisk(ctx context.Context, snapshot inventory.MoRef, key int32) (*inventory.Disk, error)
}

// DiskToRead returns the disk of the VM, or the disk that the snapshot froze.
func (d Disk) DiskToRead(ctx context.Context, host Freezer) (*inventory.Disk, error) {
	if d.Snapshot == "" {
		return d.Disk, nil
	}
	return host.FrozenDisk(ctx, d.Snapshot, d.Disk.Key)
}

// EncryptedError returns the fault of an encrypted disk.
func EncryptedError() error {
	return fault.New(fault.Unsupported, "the disk is encrypted").
		WithHint("decrypt it first: VM Policies > Edit VM Storage Policies > Datastore Default")
}

// Job is one disk to be moved into one image.
type Job struct {
	Disk     Disk
	Target   disk.Target
	Manifest manifest.Ledger // chunks it already has are not copied again
	Progress func(blockcopy.Progress)

	// Pace returns when so many bytes may be asked of the source, or taken of what it sends: a
	// budget of bandwidth. Areas that are known to be zero and what Manifest has cost nothing.
	// It is called concurrently. Nil: there is no budget.
	Pace func(ctx context.Context, bytes int64) error

	// Free reports whether Pace would let everything through now, and need not be asked: its
	// budgets may have no rates, and be given some later. Nil: nobody knows.
	Free func() bool

	// Changed has the grains of the disk (of blockcopy.PatchGrain bytes) that may differ from
	// the state that Target holds where Manifest proves it; all others are left alone. Nil:
	// nothing that is proven changed.
	Changed *bitmap.Bitmap

	// Compare is for a disk that changed nobody knows where: all of it is read, and chunks
	// that are not what Manifest says are written.
	Compare bool

	// Partial says that what Manifest lists was listed by a Transfer that did not end well, of
	// an earlier moment of the disk.
	Partial bool

	// ReadBack opens what Target holds so far, for transports that cannot choose what they
	// are sent when. It sees what was written to Target when that has returned. Nil: there
	// is no way.
	ReadBack func(ctx context.Context) (disk.Source, error)
}

// Paced reports whether Pace is to be asked now.
func (j *Job) Paced() bool { return j.Pace != nil && (j.Free == nil || !j.Free()) }

// Transport moves disks. Its methods may be called concurrently for different disks.
type Transport interface {
	// Name is the transport's word on the command line: https, landing, nfc …
	Name() string

	// Probe says whether and how the disk can be moved, without moving it.
	Probe(ctx context.Context, d Disk) (Offer, error)

	// Transfer copies what job's manifest lacks. On return without error the manifest
	// covers the whole disk and the image is synced; it is not finished.
	Transfer(ctx context.Context, job Job) (blockcopy.Result, error)

	Close() error
}

// Lifter is a Transport that moves disks which others cannot: what the inventory warns of,
// by the warning's code ("rdm", "vsan"), does not keep it from moving them.
type Lifter interface {
	Lifts(code string) bool
}

// Lifts reports whether t is a Lifter that lifts the code.
func Lifts(t Transport, code string) bool {
	l, ok := t.(Lifter)
	return ok && l.Lifts(code)
}

// Deltas moves whole disks by one transport, and by another what changed of them since, for
// one that can only push a disk as a whole.
type Deltas struct {
	Transport           // of whole disks
	Changes   Transport // of changes
}

// Probe is part of Transport. Both must be able to move the disk.
func (t Deltas) Probe(ctx context.Context, d Disk) (Offer, error) {
	whole, err := t.Transport.Probe(ctx, d)
	if err != nil || !whole.Usable {
		return whole, err
	}
	changes, err := t.Changes.Probe(ctx, d)
	if err == nil && !changes.Usable {
		changes.Reason = fmt.Sprintf("what changes comes by %s: %s", t.Changes.Name(), changes.Reason)
		return changes, nil
	}
	whole.Delta = true
	return whole, err
}

// Transfer is part of Transport. A chunk that a push listed before it broke off need not be
// complete: the rest of it had not come yet. So all of a partial image is compared.
func (t Deltas) Transfer(ctx context.Context, job Job) (blockcopy.Result, error) {
	if job.Partial {
		job.Changed, job.Compare = nil, true
	}
	if job.Changed != nil || job.Compare {
		return t.Changes.Transfer(ctx, job)
	}
	return t.Transport.Transfer(ctx, job)
}

// Close is part of Transport.
func (t Deltas) Close() error { return errors.Join(t.Transport.Close(), t.Changes.Close()) }

// Pull is Transfer for transports that can open a disk as a Source.
func Pull(ctx context.Context, open func(context.Context, Disk) (disk.Source, error), job Job) (blockcopy.Result, error) {
	src, err := open(ctx, job.Disk)
	if err != nil {
		return blockcopy.Result{}, err
	}
	defer src.Close()
	o := blockcopy.Options{Manifest: job.Manifest, Compare: job.Compare, Pace: job.Pace, Progress: job.Progress}
	if job.Changed == nil {
		return blockcopy.Copy(ctx, src, job.Target, o)
	}
	return patch(ctx, src, job, o)
}

// patch is Copy for a disk that changed since it was copied.
func patch(ctx context.Context, src disk.Source, job Job, o blockcopy.Options) (res blockcopy.Result, err error) {
	image, err := job.ReadBack(ctx)
	if err != nil {
		return res, fmt.Errorf("open image to bring it up to date: %w", err)
	}
	defer func() { err = errors.Join(err, image.Close()) }()
	return blockcopy.Patch(ctx, src, job.Target, image, job.Changed, o)
}
