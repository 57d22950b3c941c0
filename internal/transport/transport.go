// Package transport defines the interface of the ways to move a disk from the source, and
// contains the loop that all pulling transports share.
//
// A pull transport opens a disk as a disk.Source; Pull copies it. A push transport (the
// landing) makes ESXi write to decamp and implements Transfer itself. For the pipeline both
// are the same: they fill the same Target and the same manifest.
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

// Disk identifies the source of a transfer: one disk of one VM, as it is now or at a snapshot.
type Disk struct {
	VM       *inventory.VM   // VM that the disk belongs to
	Disk     *inventory.Disk // disk in the VM's current configuration
	Snapshot inventory.MoRef // snapshot to read; empty for the disk of a powered-off VM
}

// Offer describes how a transport can move a disk.
type Offer struct {
	Usable  bool   // the transport can move the disk
	Reason  string // obstacle with its remedy; or a description, if usable
	Running bool   // works while the VM runs, from a snapshot
	Delta   bool   // can send changes since a change ID
	Map     bool   // has the allocated areas before reading
	Streams int    // useful number of parallel streams
}

// Refusal returns an unusable Offer for errors that describe an obstacle of the disk. It returns other
// errors, such as an unreachable host, unchanged.
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
		offer.Reason += "; its free areas are unknown, so the whole disk is read"
	}
	return offer, ctx.Err()
}

// SnapshotReader looks up the disk of a snapshot by its key.
type SnapshotReader interface {
	// DiskAtSnapshot returns a disk as it was at a snapshot. key is its key in the VM.
	DiskAtSnapshot(ctx context.Context, snapshot inventory.MoRef, key int32) (*inventory.Disk, error)
}

// DiskToRead returns the disk of the VM, or the disk that the snapshot froze.
func (d Disk) DiskToRead(ctx context.Context, host SnapshotReader) (*inventory.Disk, error) {
	if d.Snapshot == "" {
		return d.Disk, nil
	}
	return host.DiskAtSnapshot(ctx, d.Snapshot, d.Disk.Key)
}

// EncryptedError returns the fault of an encrypted disk.
func EncryptedError() error {
	return fault.New(fault.Unsupported, "the disk is encrypted").
		WithHint("decrypt it first: VM Policies > Edit VM Storage Policies > Datastore Default")
}

// Job is the transfer of one disk into one image.
type Job struct {
	Disk     Disk                     // source
	Target   disk.Target              // image; the caller finishes and closes it
	Manifest manifest.Ledger          // chunks in it are not copied again; nil stores no hashes
	Progress func(blockcopy.Progress) // receives the totals during the transfer; nil for no reports

	// Pace waits until the bandwidth budget allows so many bytes to be requested from the source, or
	// accepted from it. Areas that are known to be zero, and chunks in Manifest, cost nothing. It is
	// called concurrently. Nil means no budget.
	Pace func(ctx context.Context, bytes int64) error

	// Free reports whether Pace would return at once, and need not be called: its budgets have no rates
	// now, but may get some later. Nil means unknown.
	Free func() bool

	// Changed contains the grains of the disk (of blockcopy.PatchGrain bytes) that may differ from the
	// image, for chunks in Manifest. Other grains are not read. Nil means that no listed chunk changed.
	Changed *bitmap.Bitmap

	// Compare is set if the disk changed at unknown places. Then all of it is read, and chunks that differ
	// from Manifest are written.
	Compare bool

	// Partial reports that Manifest is from a Transfer that failed, of an earlier state of the disk.
	Partial bool

	// ReadBack opens the content of Target so far, for transports that cannot choose the order of their
	// data. A read returns all bytes whose write to Target has returned. Nil if the image cannot be read.
	ReadBack func(ctx context.Context) (disk.Source, error)
}

// Paced reports whether Pace must be called now.
func (j *Job) Paced() bool { return j.Pace != nil && (j.Free == nil || !j.Free()) }

// Transport moves disks. Its methods may be called concurrently for different disks.
type Transport interface {
	// Name returns the transport's name on the command line: https, landing or nfc.
	Name() string

	// Probe reports whether and how the disk can be moved, without moving it.
	Probe(ctx context.Context, d Disk) (Offer, error)

	// Transfer copies the chunks that job's manifest lacks. If it returns nil, the manifest covers the
	// whole disk and the image is synced, but not finished. After an error a later Transfer can continue.
	Transfer(ctx context.Context, job Job) (blockcopy.Result, error)

	Close() error // Close releases the resources of all disks. No other method may be running.
}

// DiskSupporter is a Transport that moves disks which others cannot. A warning of the inventory with a lifted
// code ("rdm", "vsan") is then no obstacle.
type DiskSupporter interface {
	Supports(code string) bool // Supports reports whether the transport moves disks with that warning.
}

// Supports reports whether t is a DiskSupporter that lifts the code.
func Supports(t Transport, code string) bool {
	l, ok := t.(DiskSupporter)
	return ok && l.Supports(code)
}

// Deltas moves whole disks with one transport, and later changes of them with another. It is for a
// transport that can only push a whole disk.
type Deltas struct {
	Transport           // transport of whole disks
	Changes   Transport // transport of changes
}

// Probe is part of Transport. Both must be able to move the disk.
func (t Deltas) Probe(ctx context.Context, d Disk) (Offer, error) {
	whole, err := t.Transport.Probe(ctx, d)
	if err != nil || !whole.Usable {
		return whole, err
	}
	changes, err := t.Changes.Probe(ctx, d)
	if err == nil && !changes.Usable {
		changes.Reason = fmt.Sprintf("changes are read by %s: %s", t.Changes.Name(), changes.Reason)
		return changes, nil
	}
	whole.Delta = true
	return whole, err
}

// Transfer is part of Transport. A chunk that a failed push listed may be incomplete, because the rest
// of it had not arrived. Therefore all of a partial image is compared.
func (t Deltas) Transfer(ctx context.Context, job Job) (blockcopy.Result, error) {
	if job.Partial {
		job.Changed, job.Compare = nil, true
	}
	if job.Changed != nil || job.Compare {
		return t.Changes.Transfer(ctx, job)
	}
	return t.Transport.Transfer(ctx, job)
}

// Close is part of Transport. It closes both transports.
func (t Deltas) Close() error { return errors.Join(t.Transport.Close(), t.Changes.Close()) }

// Pull is Transport.Transfer for transports that open a disk as a Source. It closes the source.
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

// patch copies the grains in job.Changed. It compares them with the image, which it opens and closes.
func patch(ctx context.Context, src disk.Source, job Job, o blockcopy.Options) (res blockcopy.Result, err error) {
	image, err := job.ReadBack(ctx)
	if err != nil {
		return res, fmt.Errorf("open the image for the changes: %w", err)
	}
	defer func() { err = errors.Join(err, image.Close()) }()
	return blockcopy.Patch(ctx, src, job.Target, image, job.Changed, o)
}
