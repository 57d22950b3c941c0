// Package transport has the word for a way to move one disk off the source, and the
// loop that all pulling transports share.
//
// A pull transport only knows how to open a disk as a disk.Source; Pull does the rest.
// A push transport (the landing) makes ESXi write to us and implements Transfer itself.
// The pipeline cannot tell them apart: both fill the same Target and the same manifest.
package transport

import (
	"context"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/disk"
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

// Job is one disk to be moved into one image.
type Job struct {
	Disk     Disk
	Target   disk.Target
	Manifest manifest.Ledger // chunks it already has are not copied again
	Progress func(blockcopy.Progress)

	// ReadBack opens what Target holds so far, for transports that cannot choose what they
	// are sent when. It sees what was written to Target when that has returned. Nil: there
	// is no way.
	ReadBack func(ctx context.Context) (disk.Source, error)
}

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

// Pull is Transfer for transports that can open a disk as a Source.
func Pull(ctx context.Context, open func(context.Context, Disk) (disk.Source, error), job Job) (blockcopy.Result, error) {
	src, err := open(ctx, job.Disk)
	if err != nil {
		return blockcopy.Result{}, err
	}
	defer src.Close()
	return blockcopy.Copy(ctx, src, job.Target, blockcopy.Options{
		Manifest: job.Manifest,
		Progress: job.Progress,
	})
}
