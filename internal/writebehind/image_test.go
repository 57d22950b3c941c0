package writebehind

import (
	"bytes"
	"context"

	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/manifest"
)

// A memoryImage is a Target in memory and its Reader. As on a real target, calls overtake each other and are not atomic.
// A crash may drop data that was not synced.
// It fails the test if two concurrent calls overlap, which no Target permits.
type memoryImage struct {
	t     *testing.T
	hints disk.Hints

	// before is called before each call, without mu. The call fails with its error.
	before func(op string, r disk.Range) error

	mu      sync.Mutex
	now     []byte              // current content
	durable []byte              // synced content
	active  map[disk.Range]bool // ranges of the current calls
	writes  []disk.Range
	zeroed  []disk.Range
	reads   int // number of reads
	syncs   int // number of syncs
}

func newImage(t *testing.T, size int64) *memoryImage {
	return &memoryImage{t: t, now: make([]byte, size), durable: make([]byte, size), active: map[disk.Range]bool{}}
}

// fillWithGarbage fills the image with bytes that no read may return.
func (m *memoryImage) fillWithGarbage() {
	copy(m.now, repeatByte(len(m.now), 0xee))
	copy(m.durable, m.now)
}

func (m *memoryImage) Size() int64                  { return int64(len(m.now)) }
func (m *memoryImage) Hints() disk.Hints            { return m.hints }
func (m *memoryImage) Finish(context.Context) error { return nil }
func (m *memoryImage) Close() error                 { return nil }

func (m *memoryImage) beginCall(ctx context.Context, op string, r disk.Range) error {
	if m.before != nil {
		if err := m.before(op, r); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for other := range m.active {
		if !other.Intersect(r).Empty() {
			m.t.Errorf("%s %v while %v is under way", op, r, other)
		}
	}
	m.active[r] = true
	return ctx.Err()
}

func (m *memoryImage) endCall(r disk.Range) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.active, r)
}

func (m *memoryImage) WriteAt(ctx context.Context, p []byte, off int64) error {
	r := disk.Range{Off: off, Len: int64(len(p))}
	defer m.endCall(r)
	if err := m.beginCall(ctx, "write", r); err != nil {
		return err
	}
	half := len(p) / 2
	m.storeBytes(p[:half], off)
	runtime.Gosched()
	m.storeBytes(p[half:], off+int64(half))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes = append(m.writes, r)
	return nil
}

func (m *memoryImage) storeBytes(p []byte, off int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	copy(m.now[off:], p)
}

func (m *memoryImage) Zero(ctx context.Context, r disk.Range) error {
	defer m.endCall(r)
	if err := m.beginCall(ctx, "zero", r); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.now[r.Off:r.End()])
	m.zeroed = append(m.zeroed, r)
	return nil
}

func (m *memoryImage) Sync(ctx context.Context) error {
	if m.before != nil {
		if err := m.before("sync", disk.Range{}); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	copy(m.durable, m.now)
	m.syncs++
	return ctx.Err()
}

// ReadAt reads in two halves, so that a write between them is visible.
func (m *memoryImage) ReadAt(ctx context.Context, p []byte, off int64) error {
	half := len(p) / 2
	m.loadBytes(p[:half], off)
	runtime.Gosched()
	m.loadBytes(p[half:], off+int64(half))
	return ctx.Err()
}

func (m *memoryImage) loadBytes(p []byte, off int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	copy(p, m.now[off:])
}

// contentAfterCrash returns a possible content after a crash: the synced data, and some random sectors of the rest.
// The caller holds mu.
func (m *memoryImage) contentAfterCrash(rnd *rand.Rand) []byte {
	const sector = 4096
	out := append([]byte(nil), m.durable...)
	for off := 0; off < len(out); off += sector {
		if end := min(off+sector, len(out)); rnd.IntN(2) == 0 {
			copy(out[off:end], m.now[off:end])
		}
	}
	return out
}

// takeCrashState returns a possible state of the image and the manifest at path after a crash.
func takeCrashState(t *testing.T, m *memoryImage, path string, rnd *rand.Rand) crashState {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	}
	return crashState{image: m.contentAfterCrash(rnd), manifest: b}
}

// openCopy opens a new manifest file with the given content.
func openCopy(t *testing.T, b []byte) (*manifest.Log, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk.manifest")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := manifest.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return log, path
}

func newLog(t *testing.T, size int64) (*manifest.Log, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk.manifest")
	log, err := manifest.Create(path, manifest.Info{Disk: "2000", Size: size})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	return log, path
}

// testFile is a file with a memoryImage as its target.
type testFile struct {
	*File
	t    *testing.T
	img  *memoryImage
	log  *manifest.Log
	pool *Pool
	path string
}

const never = 1 << 62 // nanoseconds or bytes; prevents automatic checkpoints

// largeBudget is a budget that is never used up.
const largeBudget = 512 << 20

// newTestFile returns a testFile with a fresh target and the options o.
func newTestFile(t *testing.T, size int64, o Options) *testFile {
	t.Helper()
	img := newImage(t, size)
	log, path := newLog(t, size)
	o.Fresh = true
	return openTestFile(t, img, log, path, NewPool(largeBudget), o)
}

func openTestFile(t *testing.T, img *memoryImage, log *manifest.Log, path string, pool *Pool, o Options) *testFile {
	t.Helper()
	if o.CheckpointEvery == 0 {
		o.CheckpointEvery = never
	}
	if o.Source == nil {
		o.Source = img
	}
	f, err := New(img, log, pool, o)
	if err != nil {
		t.Fatal(err)
	}
	r := &testFile{File: f, t: t, img: img, log: log, pool: pool, path: path}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		pool.mu.Lock()
		defer pool.mu.Unlock()
		if a := f.account; a.lentBytes != 0 || a.windows != 0 {
			t.Errorf("the closed file has %d bytes and %d windows", a.lentBytes, a.windows)
		}
	})
	return r
}

// writeBytes writes p in buffers.
func (r *testFile) writeBytes(p []byte, off int64) error {
	for len(p) > 0 {
		n := min(len(p), MaxBuffer)
		if err := writeBuffer(r.t.Context(), r.File, r.pool, p[:n], off); err != nil {
			return err
		}
		p, off = p[n:], off+int64(n)
	}
	return nil
}

// writeBuffer writes p in a random way: with or without a buffer for its offset, with Write or first with
// TryWrite.
func writeBuffer(ctx context.Context, f *File, pool *Pool, p []byte, off int64) error {
	b, err := pool.GetAt(ctx, len(p), DiskOffset{Disk: rand.Uint64N(2), Off: off})
	if err != nil {
		return err
	}
	copy(b.Bytes(), p)
	if rand.IntN(2) == 0 {
		if taken, err := f.TryWrite(b, off); taken || err != nil {
			return err
		}
	}
	return f.Write(ctx, b, off)
}

func (r *testFile) mustWrite(p []byte, off int64) {
	r.t.Helper()
	if err := r.writeBytes(p, off); err != nil {
		r.t.Fatalf("write at %d: %v", off, err)
	}
}

func (r *testFile) noError(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// wantRead fails the test if a read at off does not return want.
func (r *testFile) wantRead(want []byte, off int64) {
	r.t.Helper()
	got := make([]byte, len(want))
	n, err := r.ReadAt(r.t.Context(), got, off)
	if n != len(want) || err != nil {
		r.t.Fatalf("read %d bytes at %d: %d, %v", len(want), off, n, err)
	}
	wantBytes(r.t, "file", got, want, off)
}

// wantImage fails the test if the finished image differs from want, or the manifest from the image.
func (r *testFile) wantImage(want []byte) {
	r.t.Helper()
	wantBytes(r.t, "image", r.img.now, want, 0)
	if !r.log.Complete() {
		r.t.Fatalf("%d chunks are missing in the manifest", r.log.Missing())
	}
	wantListed(r.t, r.log, want)
}

func wantBytes(t *testing.T, name string, got, want []byte, off int64) {
	t.Helper()
	if bytes.Equal(got[:len(want)], want) {
		return
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("byte %d of the %s is %#02x, want %#02x", off+int64(i), name, got[i], want[i])
		}
	}
}

// wantListed fails the test if a chunk that the log lists differs in the image.
func wantListed(t *testing.T, log *manifest.Log, image []byte) {
	t.Helper()
	for n := range log.Chunks() {
		h, ok, err := log.Hash(n)
		if err != nil {
			t.Fatal(err)
		}
		r := log.Info().Chunk(n)
		if ok && h != manifest.HashOf(image[r.Off:r.End()]) {
			t.Fatalf("chunk %d is listed, but differs in the image", n)
		}
	}
}

// repeatByte returns n bytes with the value id.
func repeatByte(n int, id byte) []byte {
	return bytes.Repeat([]byte{id}, n)
}

// gate lets calls of an image wait until the test opens it.
type gate struct {
	open    chan struct{} // closed by the test
	reached chan struct{} // one value for each waiting call
}

func newGate() *gate {
	return &gate{open: make(chan struct{}), reached: make(chan struct{}, 1<<10)}
}

func (g *gate) wait() {
	g.reached <- struct{}{}
	<-g.open
}

var errBroken = errors.New("broken")
