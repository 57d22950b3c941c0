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

// send writes want to f as ESXi does: 64 KiB at a time, 8 in flight, mildly reordered,
// holes left out.
func send(t *testing.T, f *File, pool *Pool, want *disk.Pattern) {
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
				if err := sendOne(t.Context(), f, pool, want, r); err != nil {
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

func sendOne(ctx context.Context, f *File, pool *Pool, want *disk.Pattern, r disk.Range) error {
	extents, err := want.Extents(ctx, r)
	if err != nil || len(extents) == 1 && extents[0].Kind == disk.Zero {
		return err
	}
	p := make([]byte, r.Len)
	if err := want.ReadAt(ctx, p, r.Off); err != nil {
		return err
	}
	return deliver(ctx, f, pool, p, r.Off)
}

func TestDiskLandsWholeWithACompleteManifest(t *testing.T) {
	for _, size := range []int64{512, 1 << 20, 5<<20 + 512, 70<<20 + 3*512} {
		want := disk.NewSparsePattern(size, 0.5, uint64(size))
		log, _ := newLog(t, size)
		pool := NewPool(roomy)
		check := disk.NewCheck(want)
		f, err := New(check, log, pool, Options{Fresh: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Truncate(t.Context(), size); err != nil {
			t.Fatal(err)
		}
		send(t, f, pool, want)
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
	r := newRig(t, size, Options{})
	want := disk.NewPattern(size)
	send(t, r.File, r.pool, want)
	r.must(r.Finish(t.Context()))
	for _, w := range r.img.writes {
		if w.Len < chunkLen || w.Off%chunkLen != 0 {
			t.Errorf("a write of %v: want whole chunks", w)
		}
	}
	if r.img.reads > 0 {
		t.Errorf("the image was read %d times", r.img.reads)
	}
	if s := r.Stats(); s.Held != size || s.Written != size {
		t.Errorf("held %d, written %d: want %d", s.Held, s.Written, size)
	}
}

// What arrives in any order is written from where it arrived: not gathered again.
func TestPlacedWritesAreNotGathered(t *testing.T) {
	const size, piece = chunkLen, 64 << 10
	r := newRig(t, size, Options{})
	var from []byte
	r.img.before = func(op string, _ disk.Range) error {
		if op == "write" {
			r.File.mu.Lock()
			defer r.File.mu.Unlock()
			from = r.File.table.chunks[0].contiguousBytes(size)
		}
		return nil
	}
	want := fill(size, 9)
	var home *block
	for _, n := range rand.Perm(size / piece) {
		off := int64(n) * piece
		b, err := r.pool.GetAt(t.Context(), piece, DiskOffset{Disk: 7, Off: off})
		r.must(err)
		home = b.block
		copy(b.Bytes(), want[off:])
		r.must(r.Write(t.Context(), b, off))
	}
	r.must(r.Commit(t.Context()))
	if from == nil || &from[0] != &home.memory[0] || len(from) != size {
		t.Errorf("the chunk was gathered into %d bytes", len(from))
	}
	r.wantImage(want)
}

// Pieces that do not fit together are gathered, wherever they lie.
func TestMisplacedWritesAreGathered(t *testing.T) {
	const size, piece = chunkLen, 64 << 10
	r := newRig(t, size, Options{})
	want := fill(size, 3)
	for n := size/piece - 1; n >= 0; n-- {
		off, place := int64(n*piece), int64(n^1)*piece // neighbours have each other's place
		b, err := r.pool.GetAt(t.Context(), piece, DiskOffset{Disk: 7, Off: place})
		r.must(err)
		copy(b.Bytes(), want[off:])
		r.must(r.Write(t.Context(), b, off))
	}
	r.must(r.Commit(t.Context()))
	r.wantImage(want)
}

// TryWrite takes what there is room for, and leaves the rest to its caller.
func TestTryWriteDoesNotWait(t *testing.T) {
	const size = 64 << 20
	r, g := stuck(t, NewPool(MinBudget), size)
	var left int
	for off := int64(0); off < size; off += MaxBuffer {
		b := mustGet(t, r.pool, MaxBuffer)
		taken, err := r.TryWrite(b, off)
		r.must(err)
		if !taken {
			left++
			b.Release()
			break
		}
	}
	if left == 0 {
		t.Error("a file whose target is stuck took everything")
	}
	b := mustGet(t, r.pool, 512)
	if taken, err := r.TryWrite(b, size-1); taken || err != nil {
		t.Errorf("a write beyond the target: taken %v, %v", taken, err)
	}
	b.Release()
	close(g.open)
	r.must(r.Commit(t.Context()))
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
	pool := NewPool(roomy) // with windows of 4 MiB
	r := openRig(t, img, log, path, pool, Options{Fresh: true, Writers: 1})
	for off := int64(0); off < size; off += chunkLen {
		r.mustWrite(fill(chunkLen, byte(off/chunkLen+1)), off)
	}
	<-g.reached
	close(g.open)
	r.must(r.Commit(t.Context()))
	const window = 4 << 20 // the last chunks do not lag and are written from where they are
	if n := len(img.writes); n > 1+size/window+lagging {
		t.Errorf("%d writes for %d MiB that were held", n, size>>20)
	}
}

func TestZerosAreNeverWritten(t *testing.T) {
	const size = 8 << 20
	r := newRig(t, size, Options{})
	r.mustWrite(make([]byte, 4<<20), 0)
	r.mustWrite(fill(64<<10, 1), 5<<20)
	r.must(r.Finish(t.Context()))
	if len(r.img.writes) != 1 || r.img.writes[0] != (disk.Range{Off: 5 << 20, Len: 64 << 10}) {
		t.Errorf("written %v: want the 64 KiB that are not zeros", r.img.writes)
	}
	want := make([]byte, size)
	copy(want[5<<20:], fill(64<<10, 1))
	r.wantImage(want)
}

func TestZerosOverDataAreMadeReal(t *testing.T) {
	const size = 4 << 20
	r := newRig(t, size, Options{})
	r.mustWrite(fill(size, 7), 0)
	r.must(r.Commit(t.Context()))
	r.mustWrite(make([]byte, 2<<20), 1<<20)
	r.must(r.Finish(t.Context()))
	want := fill(size, 7)
	clear(want[1<<20 : 3<<20])
	r.wantImage(want)
}

// What an earlier run left on a target that is not fresh must not show through.
func TestNothingOfWhatIsNotListedShows(t *testing.T) {
	const size = 3<<20 + 512
	img := newImage(t, size)
	img.dirty()
	log, path := newLog(t, size)
	r := openRig(t, img, log, path, NewPool(MinBudget), Options{Size: size})
	r.wantRead(make([]byte, size), 0)
	r.mustWrite(fill(1000, 3), 2<<20+77)
	want := make([]byte, size)
	copy(want[2<<20+77:], fill(1000, 3))
	r.wantRead(want, 0)
	r.must(r.Finish(t.Context()))
	r.wantRead(want, 0)
	r.wantImage(want)
}

func TestWhatIsListedIsTrustedAndNotWrittenAgain(t *testing.T) {
	const size = 4 << 20
	r := newRig(t, size, Options{})
	r.mustWrite(fill(size, 5), 0)
	r.must(r.Commit(t.Context()))
	r.must(r.Close())
	r.img.writes = nil

	again := openRig(t, r.img, r.log, r.path, r.pool, Options{Size: size})
	again.wantRead(fill(size, 5), 0)
	again.mustWrite(fill(3<<20, 5), 0)
	again.mustWrite(fill(100, 6), 3<<20+50)
	again.must(again.Finish(t.Context()))
	if len(r.img.writes) != 1 || r.img.writes[0] != (disk.Range{Off: 3 << 20, Len: 64 << 10}) {
		t.Errorf("written %v: want the grain that changed", r.img.writes)
	}
	want := fill(size, 5)
	copy(want[3<<20+50:], fill(100, 6))
	again.wantImage(want)
}

func TestWriteOverWhatIsJustBeingWritten(t *testing.T) {
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
	r := openRig(t, img, log, path, NewPool(MinBudget), Options{Fresh: true})
	r.mustWrite(fill(chunkLen, 1), 0)
	<-g.reached // a writer has it
	r.mustWrite(fill(chunkLen, 2), 0)
	r.mustWrite(fill(10, 3), 100)
	want := append(fill(chunkLen, 2), make([]byte, chunkLen)...)
	copy(want[100:], fill(10, 3))
	r.wantRead(want[:chunkLen], 0)
	select {
	case <-g.reached:
		t.Fatal("a second writer began with the chunk")
	default:
	}
	close(g.open)
	r.must(r.Finish(t.Context()))
	r.wantImage(want)
}

func TestTruncate(t *testing.T) {
	const size = 4<<20 + 512
	for _, dirty := range []bool{false, true} {
		for _, to := range []int64{0, 1 << 20, 2<<20 + 300, size - 1} {
			img := newImage(t, size)
			if dirty {
				img.dirty()
			}
			log, path := newLog(t, size)
			r := openRig(t, img, log, path, NewPool(MinBudget), Options{Fresh: !dirty})
			r.must(r.Truncate(t.Context(), size))
			r.mustWrite(fill(size, 9), 0)
			r.must(r.Commit(t.Context()))
			r.mustWrite(fill(2<<20, 8), 1<<20) // held, or being written
			r.must(r.Truncate(t.Context(), to))
			if r.Size() != to {
				t.Fatalf("%d bytes after cutting to %d", r.Size(), to)
			}
			wantListed(t, log, img.safe)
			r.must(r.Truncate(t.Context(), size))
			want := fill(size, 9)
			copy(want[1<<20:3<<20], fill(2<<20, 8))
			clear(want[to:])
			r.wantRead(want, 0)
			r.mustWrite(fill(700, 4), 3<<20-100)
			copy(want[3<<20-100:], fill(700, 4))
			r.wantRead(want, 0)
			r.must(r.Finish(t.Context()))
			r.wantImage(want)
		}
	}
}

func TestReadEndsWithTheDisk(t *testing.T) {
	r := newRig(t, 4<<20, Options{})
	p := make([]byte, 100)
	if n, err := r.ReadAt(t.Context(), p, 0); n != 0 || err != io.EOF {
		t.Errorf("an empty disk: %d, %v", n, err)
	}
	r.must(r.Truncate(t.Context(), 2<<20+10))
	if n, err := r.ReadAt(t.Context(), p, 2<<20); n != 10 || err != io.EOF {
		t.Errorf("at the end: %d, %v", n, err)
	}
	r.mustWrite([]byte{1}, 3<<20)
	if r.Size() != 3<<20+1 {
		t.Errorf("%d bytes after a write behind the end", r.Size())
	}
	if n, err := r.ReadAt(t.Context(), p, 2<<20); n != 100 || err != nil {
		t.Errorf("before the new end: %d, %v", n, err)
	}
}

func TestRefusals(t *testing.T) {
	r := newRig(t, 1<<20, Options{})
	if err := r.write(fill(2, 1), 1<<20-1); !fault.Is(err, fault.Invalid) || fault.HintOf(err) == "" {
		t.Errorf("a write across the end: %v", err)
	}
	if err := r.write(fill(2, 1), -1); !fault.Is(err, fault.Invalid) {
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
	r.must(r.Finish(t.Context()))
	if err := r.write(fill(2, 1), 0); !fault.Is(err, fault.Conflict) {
		t.Errorf("a write after Finish: %v", err)
	}
	r.must(r.Finish(t.Context()))
	r.must(r.Close())
	r.must(r.Close())
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

func TestErrorOfTheTargetSticks(t *testing.T) {
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
		r := openRig(t, img, log, path, NewPool(MinBudget), Options{Fresh: true})
		r.mustWrite(fill(64<<10, 1), 3<<20)
		err := r.Commit(t.Context())
		if !fault.Is(err, fault.Full) {
			t.Fatalf("%s: commit says %v", op, err)
		}
		for what, got := range map[string]error{
			"err": r.Err(), "write": r.write(fill(1, 1), 0), "commit": r.Commit(t.Context()),
			"truncate": r.Truncate(t.Context(), 0), "finish": r.Finish(t.Context()),
		} {
			if got != r.Err() {
				t.Errorf("%s: %s says %v, want the first error", op, what, got)
			}
		}
		if _, got := r.ReadAt(t.Context(), make([]byte, 1), 0); got != r.Err() {
			t.Errorf("%s: a read says %v, want the first error", op, got)
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
	r := &rig{File: f, t: t, pool: pool}
	r.mustWrite(fill(10, 1), 0)
	r.must(r.Commit(t.Context()))
	if _, err := r.ReadAt(t.Context(), make([]byte, 1), 0); !fault.Is(err, fault.Unsupported) {
		t.Errorf("a read of what is not held: %v", err)
	}
	r.mustWrite(fill(10, 1), 20)
	if err := r.Commit(t.Context()); !fault.Is(err, fault.Unsupported) || fault.HintOf(err) == "" {
		t.Errorf("a chunk that is written to again in part: %v", err)
	}
	r.must(f.Close())
}

// manual is a timer that the test rings.
type manual struct {
	mu   sync.Mutex
	ring func()
	set  chan struct{}
}

func newManual() *manual { return &manual{set: make(chan struct{}, 1<<10)} }

func (m *manual) AfterFunc(_ time.Duration, f func()) func() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ring = f
	m.set <- struct{}{}
	return func() bool { return true }
}

// tryNext rings if the timer is set.
func (m *manual) tryNext() {
	select {
	case <-m.set:
	default:
		return
	}
	m.mu.Lock()
	ring := m.ring
	m.mu.Unlock()
	ring()
}

func TestTimerMakesSafeWhatWasHeld(t *testing.T) {
	timer := newManual()
	r := newRig(t, 4<<20, Options{AfterFunc: timer.AfterFunc})
	r.mustWrite(fill(chunkLen, 1), 0)
	r.mustWrite(fill(10, 2), 2<<20) // a chunk that is never complete
	waitFor(t, r.File, func() bool {
		go timer.tryNext() // it is set as long as there is something to do
		return r.log.Missing() == 2
	})
	if !r.log.Has(0) || !r.log.Has(2) {
		t.Error("the manifest lists other chunks than those that were written")
	}
	wantListed(t, r.log, r.img.safe)
}

func TestCheckpointsComeByBytes(t *testing.T) {
	const size = 16 << 20
	r := newRig(t, size, Options{CheckpointBytes: 4 << 20})
	for off := int64(0); off < size; off += chunkLen {
		r.mustWrite(fill(chunkLen, 1), off)
	}
	r.must(r.Commit(t.Context()))
	if n := r.Stats().Checkpoints; n < 2 {
		t.Errorf("%d checkpoints", n)
	}
	if !r.log.Complete() {
		t.Errorf("the manifest lacks %d chunks", r.log.Missing())
	}
}

// A chunk that is written to while it is being listed must not be listed as it was.
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
	r := openRig(t, img, log, path, NewPool(MinBudget), Options{Fresh: true})
	r.mustWrite(fill(size, 1), 0)
	committed := make(chan error, 1)
	go func() { committed <- r.Commit(t.Context()) }()
	<-g.reached // all is written and in the ledger
	r.mustWrite(fill(chunkLen, 2), 0)
	waitFor(t, r.File, func() bool { return r.writers.busy == 0 && r.table.ripe.first == nil })
	close(g.open)
	r.must(<-committed)
	if log.Has(0) {
		t.Error("a chunk is listed that changed after the sync began")
	}
	r.must(r.Finish(t.Context()))
	r.wantImage(append(fill(chunkLen, 2), fill(chunkLen, 1)...))
}

// waitFor waits for something the file will do by itself.
func waitFor(t *testing.T, f *File, is func() bool) {
	t.Helper()
	waitUntil(t, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return is()
	})
}

func waitUntil(t *testing.T, is func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("waited for two minutes")
		}
	}
}

func TestCloseKeepsWhatIsWritten(t *testing.T) {
	r := newRig(t, 4<<20, Options{})
	r.mustWrite(fill(2<<20, 1), 0)
	r.mustWrite(fill(10, 1), 3<<20)
	waitFor(t, r.File, func() bool { return r.writers.busy == 0 && r.table.ripe.first == nil })
	r.must(r.Close())
	if !r.log.Has(0) || !r.log.Has(1) || r.log.Has(3) {
		t.Error("want the two chunks that were written in the manifest, and no other")
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
	r := openRig(t, img, log, path, NewPool(MinBudget), Options{Fresh: true})
	r.mustWrite(fill(10, 1), 0)
	ctx, cancel := context.WithCancel(t.Context())
	committed := make(chan error, 1)
	go func() { committed <- r.Commit(ctx) }()
	<-g.reached
	cancel()
	if err := <-committed; !errors.Is(err, context.Canceled) {
		t.Errorf("commit says %v", err)
	}
	close(g.open)
	r.must(r.Commit(t.Context()))
}
