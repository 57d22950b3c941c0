package writebehind

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/bitmap"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/manifest"
)

// Options configure the landing of a disk. The zero value of each field means its default.
type Options struct {
	// Fresh means that the target reads as zeros, and that the log lists nothing. Otherwise the target
	// has the chunks that the log lists, and all others count as zeros that must still be written,
	// regardless of the target's content.
	Fresh bool

	// Size is the initial size of the disk in bytes, for one that is resumed.
	Size int64

	// Source reads the target. It is required for partial writes to written chunks, and for reads of
	// data that is not in memory; without one these fail. It must see the effect of the target's
	// WriteAt and Zero as soon as they returned.
	Source Reader

	// Writers bounds the runs that are written at once. Default: the target's hint, but 2 to 4. More than
	// four did not help in any measurement.
	Writers int

	// CheckpointBytes and CheckpointEvery bound the data that a crash can lose: after so many written
	// bytes, or so much time, the target is synced and the manifest written. Incomplete chunks that did
	// not change for that time are written too. Defaults 1 GiB and 5 s.
	CheckpointBytes int64
	CheckpointEvery time.Duration

	// AfterFunc calls f in a separate goroutine after d, unless stop is called before. It must return
	// without waiting for f. Default time.AfterFunc.
	AfterFunc func(d time.Duration, f func()) (stop func() bool)
}

// A Reader reads the content of a target. It is the part of disk.Source that File needs.
type Reader interface {
	// ReadAt fills p from off.
	ReadAt(ctx context.Context, p []byte, off int64) error
}

const (
	minWriters             = 2               // lowest default of Writers
	maxWriters             = 4               // highest default of Writers
	defaultCheckpointBytes = 1 << 30         // default of CheckpointBytes
	defaultCheckpointEvery = 5 * time.Second // default of CheckpointEvery

	// lastSync is the time limit of Close for running writes and the last checkpoint.
	lastSync = 2 * time.Minute
)

// Stats count bytes of a disk since New, and the work of its writers.
type Stats struct {
	Held        int64 // accepted by Write
	Written     int64 // passed to Target.WriteAt
	Zeroed      int64 // passed to Target.Zero
	Left        int64 // skipped, because the target has the same bytes
	Runs        int   // runs in which they were written
	Checkpoints int   // completed checkpoints

	Writers   int           // maximum of concurrent writers
	HashTime  time.Duration // time of all writers for gathering runs, checking for zeros, and hashing
	WriteTime time.Duration // time of all writers in the target, and in dropping changed chunks from the log
}

// A File is one disk of a landing. Its methods may be called concurrently. The caller owns the target,
// the log and the pool: Finish and Close do not close them.
//
// Its parts are an image (the target and the log), a chunkTable (chunks in memory), writers (from
// memory to the image), a checkpointer (makes the image durable) and a lifecycle (whether it is open).
// One mutex, mu, guards their state. The lock order is: the checkpointer's syncing, mu, the pool's
// mutex. The pool calls freeMemory without its mutex. No lock but syncing is held during I/O.
type File struct {
	pool    *Pool              // memory of the buffers and windows
	account *account           // the file's share of the pool
	o       Options            // options with defaults
	cancel  context.CancelFunc // ends all calls of the target

	mu            sync.Mutex    // guards the fields below, and the state of the parts
	size          int64         // current size of the disk in bytes
	acceptedBytes int64         // bytes accepted by Write since New
	hashes        pendingHashes // chunks that are written and not listed yet

	table       chunkTable   // chunks in memory
	writers     writers      // goroutines that write chunks to the image
	checkpoints checkpointer // makes written chunks durable
	life        lifecycle    // whether the file may be read and written
	image       image        // target and log
}

// New begins a landing of a disk on target. It lists durable chunks in log, and uses memory of pool. A
// nil log stores no hashes: for files without verification, and benchmarks. It fails if log, target and
// options do not match.
func New(target disk.Target, log manifest.Ledger, pool *Pool, o Options) (*File, error) {
	if err := o.check(target, log); err != nil {
		return nil, err
	}
	o = o.withDefaults(target)
	f := &File{pool: pool, o: o, size: o.Size, hashes: newPendingHashes()}
	f.image = image{target: target, log: log, source: o.Source}
	f.image.ctx, f.cancel = context.WithCancel(context.Background())
	f.table = chunkTable{
		image: &f.image, taken: sync.Cond{L: &f.mu}, chunks: map[int64]*chunk{},
		blank: bitmap.New(target.Size(), manifest.ChunkSize),
	}
	f.table.blank.Set(disk.Range{Len: target.Size()})
	f.life = lifecycle{table: &f.table, pool: pool, failed: make(chan struct{})}
	f.writers = writers{
		mu: &f.mu, image: &f.image, table: &f.table, hashes: &f.hashes, life: &f.life, pool: pool, most: o.Writers,
	}
	f.mu.Lock() // the pool may call freeMemory as soon as the account is open
	defer f.mu.Unlock()
	f.account = pool.openAccount(f.writers.freeMemory)
	f.life.account, f.writers.account = f.account, f.account
	f.checkpoints = newCheckpointer(&f.writers, o)
	f.writers.checkpointIfDue = f.checkpoints.runIfDue
	f.trustListedChunks()
	return f, nil
}

// check fails if the options, the target and the log contradict each other.
func (o Options) check(target disk.Target, log manifest.Ledger) error {
	size := target.Size()
	switch {
	case log != nil && log.Info().Size != size:
		return fault.New(fault.Conflict, "the manifest is of a disk of %d bytes, the target has %d", log.Info().Size, size).
			WithHint("delete the manifest to copy the disk again")
	case o.Size < 0 || o.Size > size:
		return fault.New(fault.Invalid, "%d bytes on a target of %d", o.Size, size).
			WithHint("make the target as large as the disk")
	case o.Fresh && log != nil && log.Missing() != log.Chunks():
		return fault.New(fault.Conflict, "the manifest of a fresh target lists %d chunks", log.Chunks()-log.Missing()).
			WithHint("delete the manifest to copy the disk again")
	}
	return nil
}

// withDefaults returns o with defaults in place of zero fields.
func (o Options) withDefaults(target disk.Target) Options {
	o.Writers = cmp.Or(o.Writers, min(max(target.Hints().Streams, minWriters), maxWriters))
	o.CheckpointBytes = cmp.Or(o.CheckpointBytes, defaultCheckpointBytes)
	o.CheckpointEvery = cmp.Or(o.CheckpointEvery, defaultCheckpointEvery)
	if o.AfterFunc == nil {
		o.AfterFunc = func(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }
	}
	return o
}

// trustListedChunks marks the chunks whose content in the target is valid as not blank: those that the
// log lists, or all without a log. Data after the disk's size reads as zeros. mu must be held.
func (f *File) trustListedChunks() {
	if f.o.Fresh {
		return
	}
	for n := int64(0); n*manifest.ChunkSize < f.size; n++ {
		if f.image.isTrusted(n) {
			f.table.blank.Clear(f.image.rangeOf(n))
		}
	}
	f.cutChunk(f.size)
}

// Size returns the size of the disk in bytes: that of Truncate, or more after further writes. The
// target has its full size from the beginning.
func (f *File) Size() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.size
}

// Err returns the first error of the target or the log. It discards the data in memory, and later calls
// fail with it.
func (f *File) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.life.err
}

// Stats returns the counts so far.
func (f *File) Stats() Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.writers.stats
	s.Held, s.Checkpoints, s.Writers = f.acceptedBytes, f.checkpoints.made, f.o.Writers
	return s
}

// Write owns b, also if it fails. It returns when the bytes are in memory: all later reads return them.
// It waits while the file has more than its share of the pool.
func (f *File) Write(ctx context.Context, b *Buffer, off int64) error {
	r := disk.Range{Off: off, Len: int64(b.n)}
	if err := f.image.checkRange(r); err != nil {
		b.Release()
		return err
	}
	admitted, err := f.pool.admitBuffer(ctx, f.account, b)
	if err != nil {
		b.Release()
		return err
	}
	return f.acceptBuffer(b, r, admitted)
}

// TryWrite is Write if that need not wait. Otherwise it returns false and no error, and the caller
// keeps b.
func (f *File) TryWrite(b *Buffer, off int64) (taken bool, err error) {
	r := disk.Range{Off: off, Len: int64(b.n)}
	if f.image.checkRange(r) != nil || !f.pool.tryAdmit(f.account, b) {
		return false, nil
	}
	return true, f.acceptBuffer(b, r, true)
}

// acceptBuffer adds the bytes of b to the chunks. It releases the caller's reference in any case.
// admitted is false if the account was shut.
func (f *File) acceptBuffer(b *Buffer, r disk.Range, admitted bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer b.Release() // the pieces have separate references
	if err := f.life.checkWritable(); err != nil {
		return err
	}
	if !admitted {
		return fault.New(fault.Internal, "write %v: the account is shut and the file is not", r)
	}
	f.addToChunks(b, r)
	return nil
}

// addToChunks adds b, which is range r of the disk, to the chunks. mu must be held.
func (f *File) addToChunks(b *Buffer, r disk.Range) {
	if r.Empty() {
		return
	}
	f.size = max(f.size, r.End())
	f.acceptedBytes += r.Len
	for off := r.Off; off < r.End(); {
		c := f.table.getOrCreate(off / manifest.ChunkSize)
		p := piece{Range: r.Intersect(f.image.rangeOf(c.number)), from: b, at: off - r.Off}
		p.retain()
		f.table.addPiece(c, p)
		f.table.requeue(c)
		off = p.End()
	}
	f.checkpoints.startTimer()
	f.writers.startWriter()
}

// Close stops writing. Data in memory is lost; written data becomes durable if the target can still
// sync. After Commit or Finish nothing is lost.
func (f *File) Close() error {
	f.mu.Lock()
	if f.life.closed {
		f.mu.Unlock()
		return nil
	}
	f.life.closed = true
	f.life.stopWriting()
	f.checkpoints.stopTimer()
	f.mu.Unlock()
	end := time.AfterFunc(lastSync, f.cancel)
	defer end.Stop()
	defer f.cancel()
	f.life.group.Wait()
	failed := f.Err()
	err := f.checkpoints.runCheckpoint(f.image.ctx)
	f.pool.closeAccount(f.account)
	if failed != nil {
		return nil // the checkpoint was only an attempt; Err returns the cause
	}
	return err
}
