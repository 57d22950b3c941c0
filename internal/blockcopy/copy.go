// Package blockcopy copies one disk from any disk.Source to any disk.Target, and hashes each chunk into a
// manifest. Receive copies from a disk.Feed, which delivers a disk once. Patch updates an image to a later
// state of its disk.
//
//	describe   one goroutine     requests extents from the source, a window at a time; leaves
//	                             out chunks of the manifest; cuts the rest into spans
//	read       Readers in turn   receives a span, reads its data into windows
//	hash       (in the reader)   checks for zeros and hashes each chunk while it is cached
//	write      Writers in turn   writes the data of a window, zeroes the rest
//	checkpoint one writer at a time syncs the image, then lists the chunks as durable
//
// # Terms
//
// A span is a run of whole chunks that one reader reads in one piece (16 MiB, less near the
// end of the disk so that the last readers finish together). A window is the part of a
// span that is in memory: whole chunks, filled by one reader, emptied by one writer.
//
// # Memory
//
// (Readers + Writers) x Window bytes of buffers, plus 40 bytes for each chunk that was
// written since the last checkpoint. With the defaults, 16 readers and 4 writers of 2 MiB: 40 MiB for
// disks of any size. Each reader can always get a window:
// otherwise a source with fewer connections than readers could block for ever.
//
// # Guarantees
//
// Zero runs of at least zeroGrain bytes are passed to Target.Zero, never to WriteAt.
// Chunks of the manifest are neither read nor written. After any end of Copy, all chunks
// that were written and synced are in the manifest, so that a later Copy continues.
package blockcopy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/manifest"
)

// Options determine how a disk is copied. The zero value of each field is its default.
type Options struct {
	// Manifest receives chunk hashes, and lists the chunks of an earlier copy. nil copies everything
	// and keeps no hashes: for benchmarks of one end alone.
	Manifest manifest.Ledger

	// Compare also reads chunks that the manifest lists, and writes them if their hashes differ: for a
	// disk with unknown changes. It requires a Manifest.
	Compare bool

	// Window is the size of one buffer in bytes, a multiple of the chunk size. The default is 2 MiB.
	// O_DIRECT writes of this size cost little, and twenty buffers need only 40 MiB.
	Window int64

	// Readers and Writers are the numbers of windows that are filled and emptied at the same time. The
	// defaults are the hints of source and target, else 4 each.
	Readers, Writers int

	// Span is the number of bytes that a reader reads in one piece. The default is the hint of the source,
	// else 16 MiB.
	Span int64

	// CheckpointBytes and CheckpointEvery limit what a crash costs. After that many bytes or that time,
	// the image is synced and the manifest written. The defaults are 1 GiB and 5 s.
	CheckpointBytes int64
	CheckpointEvery time.Duration

	// Pace returns when so many bytes may be requested from the source, within a bandwidth budget.
	// Readers call it concurrently. nil sets no limit. Receive does not call it, because it does not
	// control the rate of its feed.
	Pace func(ctx context.Context, bytes int64) error

	// Progress receives the totals after each window, one call at a time. It must be quick. It may be
	// nil.
	Progress func(Progress)

	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// Progress counts bytes of the disk. Done + Skipped reaches Size at the end.
type Progress struct {
	Size    int64 `json:"size"`    // size of the disk
	Done    int64 `json:"done"`    // data and zeros that this Copy wrote
	Skipped int64 `json:"skipped"` // durable before this Copy began
	Read    int64 `json:"read"`    // requested from the source
	Written int64 `json:"written"` // passed to Target.WriteAt
	Times
}

// Times are the sums of the times of a copy's workers: they show which end is slow.
type Times struct {
	ReadTime time.Duration `json:"readTime"` // readers waiting for the source
	PaceWait time.Duration `json:"paceWait"` // readers waiting for Options.Pace
	HashTime time.Duration `json:"hashTime"` // readers checking for zeros and hashing
	// readers waiting for an empty window, or for a writer to accept a full one: the target is slow
	WindowWait time.Duration `json:"windowWait"`
	WriteTime  time.Duration `json:"writeTime"` // writers waiting for the target
	Writers    int           `json:"writers"`   // number of concurrent writers

	// WriterHash is the time in which writers check for zeros and hash, instead of the readers: in a
	// landing, whose only reader is the host. WindowWait then includes both tasks.
	WriterHash time.Duration `json:"writerHash,omitempty"`
}

// A Result is the outcome of a copy, also of one that failed.
type Result struct {
	Progress
	Elapsed     time.Duration `json:"elapsed"`              // duration of the copy
	Checkpoints int           `json:"checkpoints"`          // number of syncs of the image
	SyncTime    time.Duration `json:"syncTime"`             // total duration of these syncs
	Mismatched  int64         `json:"mismatched,omitempty"` // chunks of the image that Patch found to differ from the manifest
}

// Then returns the sum of r and next, a later copy into the same image, which skipped what r did.
func (r Result) Then(next Result) Result {
	next.Done += r.Done
	next.Skipped -= r.Done
	next.Read += r.Read
	next.Written += r.Written
	next.ReadTime += r.ReadTime
	next.PaceWait += r.PaceWait
	next.HashTime += r.HashTime
	next.WindowWait += r.WindowWait
	next.WriteTime += r.WriteTime
	next.WriterHash += r.WriterHash
	next.Elapsed += r.Elapsed
	next.Checkpoints += r.Checkpoints
	next.SyncTime += r.SyncTime
	next.Mismatched += r.Mismatched
	return next
}

// Copy copies src into dst, which must have the same size. On success the whole disk is in the manifest
// and dst is synced, but not finished. If ctx is canceled, Copy ends after the running requests and
// leaves an image that a later Copy resumes. The Result is valid also after an error.
func Copy(ctx context.Context, src disk.Source, dst disk.Target, o Options) (Result, error) {
	if src.Size() != dst.Size() {
		return Result{}, fmt.Errorf("source has %d bytes, target %d", src.Size(), dst.Size())
	}
	return newCopy(src, dst, o).runCopy(ctx)
}

// runCopy starts the stages of the package comment and waits for their end.
func (c *copier) runCopy(ctx context.Context) (Result, error) {
	g, gctx := errgroup.WithContext(ctx)
	spans := make(chan span)                // closed by describe
	filled := make(chan *window, c.Writers) // closed when describe and the last reader are done
	var reading sync.WaitGroup
	reading.Add(1)
	g.Go(func() error { defer reading.Done(); defer close(spans); return c.describeDisk(gctx, spans, filled) })
	for range c.Readers {
		reading.Add(1)
		g.Go(func() error { defer reading.Done(); return c.readSpans(gctx, spans, filled) })
	}
	g.Go(func() error { reading.Wait(); close(filled); return nil })
	for range c.Writers {
		g.Go(func() error { return c.writeWindows(gctx, filled) })
	}
	return c.finishCopy(ctx, g.Wait())
}

// A copier is the state of one Copy.
type copier struct {
	Options
	size    int64         // size of the disk in bytes
	src     disk.Source   // source of the disk; nil for a feed
	dst     disk.Target   // image to write
	windows *windowPool   // buffers for reads and writes
	ledger  *checkpointer // written chunks that are not durable yet
	times   times         // times of all workers
	began   time.Time     // start of the copy by Options.Now
}

// newCopy returns a copier from src to dst.
func newCopy(src disk.Source, dst disk.Target, o Options) *copier {
	c := newCopier(src.Size(), src.Hints(), dst, o)
	c.src = src
	return c
}

// newCopier returns a copier for a disk of size bytes, with the defaults of o filled in. from are the
// hints of the source.
func newCopier(size int64, from disk.Hints, dst disk.Target, o Options) *copier {
	to := dst.Hints()
	o.Window = roundUp(min(cmp.Or(o.Window, defaultWindow), max(size, 1)), manifest.ChunkSize)
	o.Readers = max(cmp.Or(o.Readers, from.Streams, defaultWorkers), 1)
	o.Writers = max(cmp.Or(o.Writers, to.Streams, defaultWorkers), 1)
	o.Span = roundUp(cmp.Or(o.Span, from.Span, defaultSpan), manifest.ChunkSize)
	o.CheckpointBytes = cmp.Or(o.CheckpointBytes, defaultCheckpointBytes)
	o.CheckpointEvery = cmp.Or(o.CheckpointEvery, defaultCheckpointEvery)
	if o.Now == nil {
		o.Now = time.Now
	}
	c := &copier{Options: o, size: size, dst: dst, began: o.Now()}
	c.windows = newWindowPool(usefulWindows(size, o), o.Window)
	c.ledger = newCheckpointer(o, dst, size, &c.times)
	return c
}

// usefulWindows returns the number of windows. A disk of few windows never fills more, and memory that
// the collector returned to the system must be cleared again before use.
func usefulWindows(size int64, o Options) int {
	return int(min(int64(o.Readers+o.Writers), max(1, roundUp(size, o.Window)/o.Window)))
}

const (
	defaultWindow          = 2 << 20         // Options.Window by default, in bytes
	defaultWorkers         = 4               // Options.Readers and Writers without a hint
	defaultSpan            = 16 << 20        // Options.Span without a hint, in bytes
	defaultCheckpointBytes = 1 << 30         // Options.CheckpointBytes by default
	defaultCheckpointEvery = 5 * time.Second // Options.CheckpointEvery by default

	// time limit of the final sync of a canceled copy. Chunks that it does not make durable are copied
	// again.
	lastSync = 2 * time.Minute
)

// finishCopy makes the written chunks durable, also after an error, and returns the result. err is the
// error of the stages. A copy that did not cover the whole disk is an error.
func (c *copier) finishCopy(ctx context.Context, err error) (Result, error) {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSync)
	defer cancel()
	err = errors.Join(err, c.ledger.syncAll(last))
	res := c.ledger.result()
	res.Elapsed = c.Now().Sub(c.began)
	if err == nil && res.Done+res.Skipped != res.Size {
		err = fmt.Errorf("copied %d and skipped %d of %d bytes", res.Done, res.Skipped, res.Size)
	}
	return res, err
}

// A times is the sum of the times of a copy's workers. It is safe for concurrent use.
type times struct{ pace, read, hash, wait, write stopwatch }

// snapshot returns the times so far.
func (t *times) snapshot(writers int) Times {
	return Times{
		ReadTime: t.read.Duration(), PaceWait: t.pace.Duration(), HashTime: t.hash.Duration(),
		WindowWait: t.wait.Duration(), WriteTime: t.write.Duration(), Writers: writers,
	}
}

// A stopwatch is a sum of durations. It is safe for concurrent use.
type stopwatch struct{ ns atomic.Int64 }

// addSince adds the time since t.
func (s *stopwatch) addSince(t time.Time) { s.ns.Add(int64(time.Since(t))) }

// Duration returns the sum.
func (s *stopwatch) Duration() time.Duration { return time.Duration(s.ns.Load()) }

// roundUp rounds n up to a multiple of unit.
func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }
