package writebehind

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/manifest"
)

const chunkLen = manifest.ChunkSize

// sendDisk writes want to f like ESXi: 64 KiB at a time, 8 in flight, slightly reordered,
// without holes.
func sendDisk(t *testing.T, f *File, pool *Pool, want *disk.Pattern) {
	t.Helper()
	const size, flight = 64 << 10, 8
	rnd := rand.New(rand.NewPCG(1, 2))
	var todo []disk.Range
	for off := int64(0); off < want.Size(); off += size {
		todo = append(todo, disk.Range{Off: off, Len: min(size, want.Size()-off)})
	}
	for near := range slices.Chunk(todo, flight) {
		rnd.Shuffle(len(near), func(i, j int) { near[i], near[j] = near[j], near[i] })
	}
	work := make(chan disk.Range)
	var senders sync.WaitGroup
	for range flight {
		senders.Go(func() {
			for r := range work {
				if err := sendRange(t.Context(), f, pool, want, r); err != nil {
					t.Errorf("send %v: %v", r, err)
				}
			}
		})
	}
	for _, r := range todo {
		work <- r
	}
	close(work)
	senders.Wait()
}

func sendRange(ctx context.Context, f *File, pool *Pool, want *disk.Pattern, r disk.Range) error {
	extents, err := want.Extents(ctx, r)
	if err != nil || len(extents) == 1 && extents[0].Kind == disk.Zero {
		return err
	}
	p := make([]byte, r.Len)
	if err := want.ReadAt(ctx, p, r.Off); err != nil {
		return err
	}
	return writeBuffer(ctx, f, pool, p, r.Off)
}

func TestLandedDiskAndManifestAreComplete(t *testing.T) {
	for _, size := range []int64{512, 1 << 20, 5<<20 + 512, 70<<20 + 3*512} {
		want := disk.NewSparsePattern(size, 0.5, uint64(size))
		log, _ := newLog(t, size)
		pool := NewPool(largeBudget)
		check := disk.NewCheck(want)
		f, err := New(check, log, pool, Options{Fresh: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Truncate(t.Context(), size); err != nil {
			t.Fatal(err)
		}
		sendDisk(t, f, pool, want)
		if err := f.Finish(t.Context()); err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		if err := errors.Join(check.Finish(t.Context()), f.Close()); err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		if _, err := log.Seal(t.Context()); err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
		if n := pool.Lent(); n != 0 {
			t.Errorf("%d bytes: %d are still lent", size, n)
		}
	}
}

func TestStreamIsWrittenInLargeRuns(t *testing.T) {
	const size = 16 << 20
	r := newTestFile(t, size, Options{})
	want := disk.NewPattern(size)
	sendDisk(t, r.File, r.pool, want)
	r.noError(r.Finish(t.Context()))
	for _, w := range r.img.writes {
		if w.Len < chunkLen || w.Off%chunkLen != 0 {
			t.Errorf("write of %v, want whole chunks", w)
		}
	}
	if r.img.reads > 0 {
		t.Errorf("the image was read %d times", r.img.reads)
	}
	if s := r.Stats(); s.Held != size || s.Written != size {
		t.Errorf("held %d, written %d, want %d", s.Held, s.Written, size)
	}
}

// Pieces with buffers for their offsets, in any order, are written from these buffers and not gathered.
func TestPlacedWritesAreNotGathered(t *testing.T) {
	const size, piece = chunkLen, 64 << 10
	r := newTestFile(t, size, Options{})
	var from []byte
	r.img.before = func(op string, _ disk.Range) error {
		if op == "write" {
			r.File.mu.Lock()
			defer r.File.mu.Unlock()
			from = r.File.table.chunks[0].contiguousBytes(size)
		}
		return nil
	}
	want := repeatByte(size, 9)
	var home *block
	for _, n := range rand.Perm(size / piece) {
		off := int64(n) * piece
		b, err := r.pool.GetAt(t.Context(), piece, DiskOffset{Disk: 7, Off: off})
		r.noError(err)
		home = b.block
		copy(b.Bytes(), want[off:])
		r.noError(r.Write(t.Context(), b, off))
	}
	r.noError(r.Commit(t.Context()))
	if from == nil || &from[0] != &home.memory[0] || len(from) != size {
		t.Errorf("the chunk was gathered into %d bytes", len(from))
	}
	r.wantImage(want)
}

// Pieces in buffers for other offsets are gathered.
func TestMisplacedWritesAreGathered(t *testing.T) {
	const size, piece = chunkLen, 64 << 10
	r := newTestFile(t, size, Options{})
	want := repeatByte(size, 3)
	for n := size/piece - 1; n >= 0; n-- {
		off, place := int64(n*piece), int64(n^1)*piece // neighbours have exchanged offsets
		b, err := r.pool.GetAt(t.Context(), piece, DiskOffset{Disk: 7, Off: place})
		r.noError(err)
		copy(b.Bytes(), want[off:])
		r.noError(r.Write(t.Context(), b, off))
	}
	r.noError(r.Commit(t.Context()))
	r.wantImage(want)
}

// TryWrite accepts a write if the pool has room, and otherwise returns false at once.
func TestTryWriteDoesNotWait(t *testing.T) {
	const size = 64 << 20
	r, g := newStuckFile(t, NewPool(MinBudget), size)
	var refused int
	for off := int64(0); off < size; off += MaxBuffer {
		b := mustGet(t, r.pool, MaxBuffer)
		taken, err := r.TryWrite(b, off)
		r.noError(err)
		if !taken {
			refused++
			b.Release()
			break
		}
	}
	if refused == 0 {
		t.Error("a file with a stuck target accepted all writes")
	}
	b := mustGet(t, r.pool, 512)
	if taken, err := r.TryWrite(b, size-1); taken || err != nil {
		t.Errorf("a write beyond the target: taken %v, %v", taken, err)
	}
	b.Release()
	close(g.open)
	r.noError(r.Commit(t.Context()))
}

func TestSlowTargetGetsLongerRuns(t *testing.T) {
	const size = 2 * lagging * chunkLen
	img := newImage(t, size)
	g := newGate()
	img.before = func(op string, _ disk.Range) error {
		if op == "write" {
			g.wait()
		}
		return nil
	}
	log, path := newLog(t, size)
	pool := NewPool(largeBudget) // has windows of 4 MiB
	r := openTestFile(t, img, log, path, pool, Options{Fresh: true, Writers: 1})
	for off := int64(0); off < size; off += chunkLen {
		r.mustWrite(repeatByte(chunkLen, byte(off/chunkLen+1)), off)
	}
	<-g.reached
	close(g.open)
	r.noError(r.Commit(t.Context()))
	const window = 4 << 20 // the last chunks do not lag, and are not gathered
	if n := len(img.writes); n > 1+size/window+lagging {
		t.Errorf("%d writes for %d MiB in memory, want at most %d", n, size>>20, 1+size/window+lagging)
	}
}

func TestZerosAreNeverWritten(t *testing.T) {
	const size = 8 << 20
	r := newTestFile(t, size, Options{})
	r.mustWrite(make([]byte, 4<<20), 0)
	r.mustWrite(repeatByte(64<<10, 1), 5<<20)
	r.noError(r.Finish(t.Context()))
	if len(r.img.writes) != 1 || r.img.writes[0] != (disk.Range{Off: 5 << 20, Len: 64 << 10}) {
		t.Errorf("written %v, want the 64 KiB that are not zeros", r.img.writes)
	}
	want := make([]byte, size)
	copy(want[5<<20:], repeatByte(64<<10, 1))
	r.wantImage(want)
}

func TestZerosOverDataAreZeroed(t *testing.T) {
	const size = 4 << 20
	r := newTestFile(t, size, Options{})
	r.mustWrite(repeatByte(size, 7), 0)
	r.noError(r.Commit(t.Context()))
	r.mustWrite(make([]byte, 2<<20), 1<<20)
	r.noError(r.Finish(t.Context()))
	want := repeatByte(size, 7)
	clear(want[1<<20 : 3<<20])
	r.wantImage(want)
}

// Reads do not return the data of an earlier run on a target that is not fresh.
func TestUnlistedDataIsNotRead(t *testing.T) {
	const size = 3<<20 + 512
	img := newImage(t, size)
	img.fillWithGarbage()
	log, path := newLog(t, size)
	r := openTestFile(t, img, log, path, NewPool(MinBudget), Options{Size: size})
	r.wantRead(make([]byte, size), 0)
	r.mustWrite(repeatByte(1000, 3), 2<<20+77)
	want := make([]byte, size)
	copy(want[2<<20+77:], repeatByte(1000, 3))
	r.wantRead(want, 0)
	r.noError(r.Finish(t.Context()))
	r.wantRead(want, 0)
	r.wantImage(want)
}

func TestListedChunksAreNotWrittenAgain(t *testing.T) {
	const size = 4 << 20
	r := newTestFile(t, size, Options{})
	r.mustWrite(repeatByte(size, 5), 0)
	r.noError(r.Commit(t.Context()))
	r.noError(r.Close())
	r.img.writes = nil

	again := openTestFile(t, r.img, r.log, r.path, r.pool, Options{Size: size})
	again.wantRead(repeatByte(size, 5), 0)
	again.mustWrite(repeatByte(3<<20, 5), 0)
	again.mustWrite(repeatByte(100, 6), 3<<20+50)
	again.noError(again.Finish(t.Context()))
	if len(r.img.writes) != 1 || r.img.writes[0] != (disk.Range{Off: 3 << 20, Len: 64 << 10}) {
		t.Errorf("written %v, want the changed grain", r.img.writes)
	}
	want := repeatByte(size, 5)
	copy(want[3<<20+50:], repeatByte(100, 6))
	again.wantImage(want)
}

func TestWriteDuringAWriteOfTheChunk(t *testing.T) {
	const size = 2 << 20
	img := newImage(t, size)
	g := newGate()
	img.before = func(op string, _ disk.Range) error {
		if op == "write" {
			g.wait()
		}
		return nil
	}
	log, path := newLog(t, size)
	r := openTestFile(t, img, log, path, NewPool(MinBudget), Options{Fresh: true})
	r.mustWrite(repeatByte(chunkLen, 1), 0)
	<-g.reached // a writer has the chunk
	r.mustWrite(repeatByte(chunkLen, 2), 0)
	r.mustWrite(repeatByte(10, 3), 100)
	want := append(repeatByte(chunkLen, 2), make([]byte, chunkLen)...)
	copy(want[100:], repeatByte(10, 3))
	r.wantRead(want[:chunkLen], 0)
	select {
	case <-g.reached:
		t.Fatal("a second writer took the chunk")
	default:
	}
	close(g.open)
	r.noError(r.Finish(t.Context()))
	r.wantImage(want)
}

func TestTruncate(t *testing.T) {
	const size = 4<<20 + 512
	for _, dirty := range []bool{false, true} {
		for _, to := range []int64{0, 1 << 20, 2<<20 + 300, size - 1} {
			img := newImage(t, size)
			if dirty {
				img.fillWithGarbage()
			}
			log, path := newLog(t, size)
			r := openTestFile(t, img, log, path, NewPool(MinBudget), Options{Fresh: !dirty})
			r.noError(r.Truncate(t.Context(), size))
			r.mustWrite(repeatByte(size, 9), 0)
			r.noError(r.Commit(t.Context()))
			r.mustWrite(repeatByte(2<<20, 8), 1<<20) // pieces in memory, or being written
			r.noError(r.Truncate(t.Context(), to))
			if r.Size() != to {
				t.Fatalf("size %d after Truncate to %d", r.Size(), to)
			}
			wantListed(t, log, img.durable)
			r.noError(r.Truncate(t.Context(), size))
			want := repeatByte(size, 9)
			copy(want[1<<20:3<<20], repeatByte(2<<20, 8))
			clear(want[to:])
			r.wantRead(want, 0)
			r.mustWrite(repeatByte(700, 4), 3<<20-100)
			copy(want[3<<20-100:], repeatByte(700, 4))
			r.wantRead(want, 0)
			r.noError(r.Finish(t.Context()))
			r.wantImage(want)
		}
	}
}

func TestReadEndsAtDiskSize(t *testing.T) {
	r := newTestFile(t, 4<<20, Options{})
	p := make([]byte, 100)
	if n, err := r.ReadAt(t.Context(), p, 0); n != 0 || err != io.EOF {
		t.Errorf("read of an empty disk: %d, %v", n, err)
	}
	r.noError(r.Truncate(t.Context(), 2<<20+10))
	if n, err := r.ReadAt(t.Context(), p, 2<<20); n != 10 || err != io.EOF {
		t.Errorf("at the end: %d, %v", n, err)
	}
	r.mustWrite([]byte{1}, 3<<20)
	if r.Size() != 3<<20+1 {
		t.Errorf("size %d after a write behind the end, want %d", r.Size(), 3<<20+1)
	}
	if n, err := r.ReadAt(t.Context(), p, 2<<20); n != 100 || err != nil {
		t.Errorf("before the new end: %d, %v", n, err)
	}
}

func TestRefusals(t *testing.T) {
	r := newTestFile(t, 1<<20, Options{})
	if err := r.writeBytes(repeatByte(2, 1), 1<<20-1); !fault.Is(err, fault.Invalid) || fault.HintOf(err) == "" {
		t.Errorf("a write across the end: %v", err)
	}
	if err := r.writeBytes(repeatByte(2, 1), -1); !fault.Is(err, fault.Invalid) {
		t.Errorf("a write before the start: %v", err)
	}
	if err := r.Truncate(t.Context(), 1<<20+1); !fault.Is(err, fault.Invalid) {
		t.Errorf("truncate behind the end: %v", err)
	}
	if _, err := r.ReadAt(t.Context(), nil, -1); !fault.Is(err, fault.Invalid) {
		t.Errorf("a read before the start: %v", err)
	}
	if _, err := r.pool.Get(t.Context(), MaxBuffer+1); !fault.Is(err, fault.Unsupported) {
		t.Errorf("a buffer that is too large: %v", err)
	}
	r.noError(r.Finish(t.Context()))
	if err := r.writeBytes(repeatByte(2, 1), 0); !fault.Is(err, fault.Conflict) {
		t.Errorf("a write after Finish: %v", err)
	}
	r.noError(r.Finish(t.Context()))
	r.noError(r.Close())
	r.noError(r.Close())
	if err := r.Commit(t.Context()); !fault.Is(err, fault.Conflict) {
		t.Errorf("Commit after Close: %v", err)
	}
	if _, err := New(newImage(t, 2<<20), r.log, r.pool, Options{}); !fault.Is(err, fault.Conflict) {
		t.Errorf("a manifest of another size: %v", err)
	}
	if _, err := New(r.img, r.log, r.pool, Options{Fresh: true}); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "lists 1 chunks") {
		t.Errorf("a fresh target with a manifest that lists chunks: %v", err)
	}
}

func TestErrorOfTheTargetIsPermanent(t *testing.T) {
	for _, op := range []string{"write", "zero", "sync"} {
		const size = 8 << 20
		img := newImage(t, size)
		img.before = func(did string, r disk.Range) error {
			if did == op {
				return fault.New(fault.Full, "no space left at %v", r)
			}
			return nil
		}
		log, path := newLog(t, size)
		r := openTestFile(t, img, log, path, NewPool(MinBudget), Options{Fresh: true})
		r.mustWrite(repeatByte(64<<10, 1), 3<<20)
		err := r.Commit(t.Context())
		if !fault.Is(err, fault.Full) {
			t.Fatalf("%s: commit returns %v", op, err)
		}
		for name, got := range map[string]error{
			"err": r.Err(), "write": r.writeBytes(repeatByte(1, 1), 0), "commit": r.Commit(t.Context()),
			"truncate": r.Truncate(t.Context(), 0), "finish": r.Finish(t.Context()),
		} {
			if got != r.Err() {
				t.Errorf("%s: %s returns %v, want the first error", op, name, got)
			}
		}
		if _, got := r.ReadAt(t.Context(), make([]byte, 1), 0); got != r.Err() {
			t.Errorf("%s: a read returns %v, want the first error", op, got)
		}
		if log.Missing() != log.Chunks() {
			t.Errorf("%s: the manifest lists %d chunks", op, log.Chunks()-log.Missing())
		}
	}
}

func TestReadBackWithoutASourceIsAnError(t *testing.T) {
	log, _ := newLog(t, 2<<20)
	pool := NewPool(MinBudget)
	f, err := New(newImage(t, 2<<20), log, pool, Options{Fresh: true})
	if err != nil {
		t.Fatal(err)
	}
	r := &testFile{File: f, t: t, pool: pool}
	r.mustWrite(repeatByte(10, 1), 0)
	r.noError(r.Commit(t.Context()))
	if _, err := r.ReadAt(t.Context(), make([]byte, 1), 0); !fault.Is(err, fault.Unsupported) {
		t.Errorf("read of data that is not in memory: %v", err)
	}
	r.mustWrite(repeatByte(10, 1), 20)
	if err := r.Commit(t.Context()); !fault.Is(err, fault.Unsupported) || fault.HintOf(err) == "" {
		t.Errorf("second write to a part of a chunk: %v", err)
	}
	r.noError(f.Close())
}

// manualTimer is a timer that the test fires.
type manualTimer struct {
	mu   sync.Mutex
	fire func()        // function of the last AfterFunc
	set  chan struct{} // one value per AfterFunc
}

func newManualTimer() *manualTimer { return &manualTimer{set: make(chan struct{}, 1<<10)} }

func (m *manualTimer) AfterFunc(_ time.Duration, f func()) func() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fire = f
	m.set <- struct{}{}
	return func() bool { return true }
}

// fireIfSet fires the timer if it is set.
func (m *manualTimer) fireIfSet() {
	select {
	case <-m.set:
	default:
		return
	}
	m.mu.Lock()
	ring := m.fire
	m.mu.Unlock()
	ring()
}

func TestTimerMakesDataDurable(t *testing.T) {
	timer := newManualTimer()
	r := newTestFile(t, 4<<20, Options{AfterFunc: timer.AfterFunc})
	r.mustWrite(repeatByte(chunkLen, 1), 0)
	r.mustWrite(repeatByte(10, 2), 2<<20) // a chunk that is never complete
	waitForFile(t, r.File, func() bool {
		go timer.fireIfSet() // the timer is set while data is in memory
		return r.log.Missing() == 2
	})
	if !r.log.Has(0) || !r.log.Has(2) {
		t.Error("the manifest does not list the written chunks")
	}
	wantListed(t, r.log, r.img.durable)
}

func TestCheckpointsByBytes(t *testing.T) {
	const size = 16 << 20
	r := newTestFile(t, size, Options{CheckpointBytes: 4 << 20})
	for off := int64(0); off < size; off += chunkLen {
		r.mustWrite(repeatByte(chunkLen, 1), off)
	}
	r.noError(r.Commit(t.Context()))
	if n := r.Stats().Checkpoints; n < 2 {
		t.Errorf("%d checkpoints, want at least 2", n)
	}
	if !r.log.Complete() {
		t.Errorf("%d chunks are missing in the manifest", r.log.Missing())
	}
}

// A chunk that changes during a checkpoint is not listed with its old hash.
func TestWriteDuringACheckpoint(t *testing.T) {
	const size = 2 << 20
	img := newImage(t, size)
	g := newGate()
	img.before = func(op string, _ disk.Range) error {
		if op == "sync" {
			g.wait()
		}
		return nil
	}
	log, path := newLog(t, size)
	r := openTestFile(t, img, log, path, NewPool(MinBudget), Options{Fresh: true})
	r.mustWrite(repeatByte(size, 1), 0)
	committed := make(chan error, 1)
	go func() { committed <- r.Commit(t.Context()) }()
	<-g.reached // all chunks are written, and their hashes are pending
	r.mustWrite(repeatByte(chunkLen, 2), 0)
	waitForFile(t, r.File, func() bool { return r.writers.busy == 0 && r.table.ripe.first == nil })
	close(g.open)
	r.noError(<-committed)
	if log.Has(0) {
		t.Error("a chunk that changed after the start of the sync is listed")
	}
	r.noError(r.Finish(t.Context()))
	r.wantImage(append(repeatByte(chunkLen, 2), repeatByte(chunkLen, 1)...))
}

// waitForFile waits until a condition of the file is true. It calls the condition with f.mu held.
func waitForFile(t *testing.T, f *File, condition func() bool) {
	t.Helper()
	waitUntil(t, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return condition()
	})
}

func waitUntil(t *testing.T, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the condition is false after two minutes")
		}
	}
}

func TestCloseListsWrittenChunks(t *testing.T) {
	r := newTestFile(t, 4<<20, Options{})
	r.mustWrite(repeatByte(2<<20, 1), 0)
	r.mustWrite(repeatByte(10, 1), 3<<20)
	waitForFile(t, r.File, func() bool { return r.writers.busy == 0 && r.table.ripe.first == nil })
	r.noError(r.Close())
	if !r.log.Has(0) || !r.log.Has(1) || r.log.Has(3) {
		t.Error("the manifest does not list exactly the two written chunks")
	}
}

func TestCommitEndsWithItsContext(t *testing.T) {
	img := newImage(t, 1<<20)
	g := newGate()
	img.before = func(op string, _ disk.Range) error {
		if op == "write" {
			g.wait()
		}
		return nil
	}
	log, path := newLog(t, 1<<20)
	r := openTestFile(t, img, log, path, NewPool(MinBudget), Options{Fresh: true})
	r.mustWrite(repeatByte(10, 1), 0)
	ctx, cancel := context.WithCancel(t.Context())
	committed := make(chan error, 1)
	go func() { committed <- r.Commit(ctx) }()
	<-g.reached
	cancel()
	if err := <-committed; !errors.Is(err, context.Canceled) {
		t.Errorf("commit returns %v", err)
	}
	close(g.open)
	r.noError(r.Commit(t.Context()))
}
