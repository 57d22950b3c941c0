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

// A memoryImage is a Target in memory, and the Reader of it, that misbehaves as targets do: calls
// overtake each other, stop half-way, and what was not synced may be gone after a crash.
// It fails the test if two calls for the same bytes meet, which no Target allows.
type memoryImage struct {
	t     *testing.T
	hints disk.Hints

	// before is called before each call, without mu; its error is the call's.
	before func(op string, r disk.Range) error

	mu     sync.Mutex
	now    []byte // what reads see
	safe   []byte // what surely survives
	active map[disk.Range]bool
	writes []disk.Range
	zeroed []disk.Range
	reads  int
	syncs  int
}

func newImage(t *testing.T, size int64) *memoryImage {
	return &memoryImage{t: t, now: make([]byte, size), safe: make([]byte, size), active: map[disk.Range]bool{}}
}

// dirty fills the image with bytes that nobody may see.
func (m *memoryImage) dirty() {
	copy(m.now, fill(len(m.now), 0xee))
	copy(m.safe, m.now)
}

func (m *memoryImage) Size() int64                  { return int64(len(m.now)) }
func (m *memoryImage) Hints() disk.Hints            { return m.hints }
func (m *memoryImage) Finish(context.Context) error { return nil }
func (m *memoryImage) Close() error                 { return nil }

func (m *memoryImage) begin(ctx context.Context, op string, r disk.Range) error {
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

func (m *memoryImage) end(r disk.Range) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.active, r)
}

func (m *memoryImage) WriteAt(ctx context.Context, p []byte, off int64) error {
	r := disk.Range{Off: off, Len: int64(len(p))}
	defer m.end(r)
	if err := m.begin(ctx, "write", r); err != nil {
		return err
	}
	half := len(p) / 2
	m.store(p[:half], off)
	runtime.Gosched()
	m.store(p[half:], off+int64(half))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes = append(m.writes, r)
	return nil
}

func (m *memoryImage) store(p []byte, off int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	copy(m.now[off:], p)
}

func (m *memoryImage) Zero(ctx context.Context, r disk.Range) error {
	defer m.end(r)
	if err := m.begin(ctx, "zero", r); err != nil {
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
	copy(m.safe, m.now)
	m.syncs++
	return ctx.Err()
}

// ReadAt reads in two halves, so that a write that comes between them would show.
func (m *memoryImage) ReadAt(ctx context.Context, p []byte, off int64) error {
	half := len(p) / 2
	m.load(p[:half], off)
	runtime.Gosched()
	m.load(p[half:], off+int64(half))
	return ctx.Err()
}

func (m *memoryImage) load(p []byte, off int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	copy(p, m.now[off:])
}

// survivor returns what a crash now might leave: what was synced, and some of the rest. It
// needs mu.
func (m *memoryImage) survivor(rnd *rand.Rand) []byte {
	const sector = 4096
	out := append([]byte(nil), m.safe...)
	for off := 0; off < len(out); off += sector {
		if end := min(off+sector, len(out)); rnd.IntN(2) == 0 {
			copy(out[off:end], m.now[off:end])
		}
	}
	return out
}

// picture returns what a crash now might leave of the image and the manifest at path.
func picture(t *testing.T, m *memoryImage, path string, rnd *rand.Rand) crashed {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	}
	return crashed{image: m.survivor(rnd), manifest: b}
}

// openCopy opens a manifest of these bytes.
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

// A rig is a file that lands on an image.
type rig struct {
	*File
	t    *testing.T
	img  *memoryImage
	log  *manifest.Log
	pool *Pool
	path string
}

const never = 1 << 62 // nanoseconds, or bytes: no checkpoint but those that are asked for

// roomy is a budget that nothing in a test but the tests of small ones comes near to.
const roomy = 512 << 20

// newRig lands a fresh disk. o may say more.
func newRig(t *testing.T, size int64, o Options) *rig {
	t.Helper()
	img := newImage(t, size)
	log, path := newLog(t, size)
	o.Fresh = true
	return openRig(t, img, log, path, NewPool(roomy), o)
}

func openRig(t *testing.T, img *memoryImage, log *manifest.Log, path string, pool *Pool, o Options) *rig {
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
	r := &rig{File: f, t: t, img: img, log: log, pool: pool, path: path}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		pool.mu.Lock()
		defer pool.mu.Unlock()
		if a := f.account; a.lentBytes != 0 || a.windows != 0 {
			t.Errorf("closed, the file holds %d bytes and %d windows", a.lentBytes, a.windows)
		}
	})
	return r
}

// write writes p, cut to buffers.
func (r *rig) write(p []byte, off int64) error {
	for len(p) > 0 {
		n := min(len(p), MaxBuffer)
		if err := deliver(r.t.Context(), r.File, r.pool, p[:n], off); err != nil {
			return err
		}
		p, off = p[n:], off+int64(n)
	}
	return nil
}

// deliver writes p by one of the ways there are, at random: in place or anywhere, without
// waiting where that goes or with.
func deliver(ctx context.Context, f *File, pool *Pool, p []byte, off int64) error {
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

func (r *rig) mustWrite(p []byte, off int64) {
	r.t.Helper()
	if err := r.write(p, off); err != nil {
		r.t.Fatalf("write at %d: %v", off, err)
	}
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// wantRead fails unless the file holds want at off.
func (r *rig) wantRead(want []byte, off int64) {
	r.t.Helper()
	got := make([]byte, len(want))
	n, err := r.ReadAt(r.t.Context(), got, off)
	if n != len(want) || err != nil {
		r.t.Fatalf("read %d bytes at %d: %d, %v", len(want), off, n, err)
	}
	wantBytes(r.t, "file", got, want, off)
}

// wantImage fails unless the finished image holds want and the manifest is its.
func (r *rig) wantImage(want []byte) {
	r.t.Helper()
	wantBytes(r.t, "image", r.img.now, want, 0)
	if !r.log.Complete() {
		r.t.Fatalf("the manifest lacks %d chunks", r.log.Missing())
	}
	wantListed(r.t, r.log, want)
}

func wantBytes(t *testing.T, what string, got, want []byte, off int64) {
	t.Helper()
	if bytes.Equal(got[:len(want)], want) {
		return
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("byte %d of the %s is %#02x, want %#02x", off+int64(i), what, got[i], want[i])
		}
	}
}

// wantListed fails unless every chunk that the log lists is in the image.
func wantListed(t *testing.T, log *manifest.Log, image []byte) {
	t.Helper()
	for n := range log.Chunks() {
		h, ok, err := log.Hash(n)
		if err != nil {
			t.Fatal(err)
		}
		r := log.Info().Chunk(n)
		if ok && h != manifest.HashOf(image[r.Off:r.End()]) {
			t.Fatalf("chunk %d is listed and not in the image", n)
		}
	}
}

// fill returns n bytes that say who wrote them.
func fill(n int, id byte) []byte {
	return bytes.Repeat([]byte{id}, n)
}

// gate lets calls of an image wait.
type gate struct {
	open    chan struct{} // closed by the test
	reached chan struct{} // one for each call that waits
}

func newGate() *gate {
	return &gate{open: make(chan struct{}), reached: make(chan struct{}, 1<<10)}
}

func (g *gate) wait() {
	g.reached <- struct{}{}
	<-g.open
}

var errBroken = errors.New("broken")
