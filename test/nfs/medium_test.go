package nfs

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/image"
)

// sector is the unit that a medium writes atomically.
const sector = 4096

// medium is an image on a disk with a volatile cache, and its image.Opener. After a power cut, each sector
// that was not synced may be there or not, in any order.
type medium struct {
	path    string // path of the manifest, which is on the same disk
	created bool   // set by the first Open
	cutAt   int    // number of the step at which the power is cut, from 1; 0: never
	rnd     *rand.Rand

	mu       sync.Mutex
	current  []byte // content that reads return
	durable  []byte // content that survives a power cut
	volatile []change
	steps    int
	remains  *cutRemains // set once the power is cut
}

// change is a write that was not synced. Its bytes are immutable.
type change struct {
	off   int64
	bytes []byte
}

// cutRemains is the content that survives a power cut.
type cutRemains struct {
	image    []byte
	manifest []byte
}

// errNoPower is the error of every operation after the power cut.
var errNoPower = errors.New("the power is gone")

func newMedium(size int64, path string, rnd *rand.Rand) *medium {
	return &medium{path: path, rnd: rnd, current: make([]byte, size), durable: make([]byte, size)}
}

// Open is part of image.Opener.
func (m *medium) Open(context.Context) (disk.Target, bool, error) {
	created := !m.created
	m.created = true
	return m, created, nil
}

// Read is part of image.Opener.
func (m *medium) Read(context.Context) (disk.Source, error) { return mediumReader{m}, nil }

// ReadUnfinished is part of image.Opener.
func (m *medium) ReadUnfinished(ctx context.Context) (disk.Source, error) { return m.Read(ctx) }

var _ image.Opener = (*medium)(nil)

func (m *medium) Size() int64       { return int64(len(m.current)) }
func (m *medium) Hints() disk.Hints { return disk.Hints{} }
func (m *medium) Close() error      { return nil }

// nextStep counts a step, at which the power may be cut. It records the remains with mu held, so that the
// manifest and the image in them belong together.
func (m *medium) nextStep() error {
	runtime.Gosched()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.steps++; m.steps == m.cutAt {
		m.recordRemains()
	}
	if m.remains != nil {
		return errNoPower
	}
	return nil
}

// cutPower cuts the power at once.
func (m *medium) cutPower() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.recordRemains()
}

// recordRemains sets remains. The caller holds mu.
func (m *medium) recordRemains() {
	b, err := os.ReadFile(m.path)
	if err != nil {
		panic(err) // the test wrote the manifest, so the read cannot fail
	}
	m.remains = &cutRemains{image: m.survivingImage(), manifest: b}
}

// survivingImage returns the durable content and a random part of the unsynced sectors. The caller holds mu.
func (m *medium) survivingImage() []byte {
	out := slices.Clone(m.durable)
	for _, c := range m.volatile {
		for off := c.off; off < c.off+int64(len(c.bytes)); {
			end := min((off/sector+1)*sector, c.off+int64(len(c.bytes)))
			if m.rnd.IntN(2) == 0 {
				copy(out[off:end], c.bytes[off-c.off:end-c.off])
			}
			off = end
		}
	}
	return out
}

func (m *medium) writeVolatile(p []byte, off int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := change{off, slices.Clone(p)}
	copy(m.current[off:], p)
	m.volatile = append(m.volatile, c)
}

func (m *medium) WriteAt(_ context.Context, p []byte, off int64) error {
	for _, half := range [][]byte{p[:len(p)/2], p[len(p)/2:]} {
		if err := m.nextStep(); err != nil {
			return err
		}
		m.writeVolatile(half, off)
		off += int64(len(half))
	}
	return m.nextStep()
}

func (m *medium) Zero(_ context.Context, r disk.Range) error {
	if err := m.nextStep(); err != nil {
		return err
	}
	m.writeVolatile(make([]byte, r.Len), r.Off)
	return m.nextStep()
}

// Sync makes the changes durable that were complete when it began.
func (m *medium) Sync(context.Context) error {
	m.mu.Lock()
	n := len(m.volatile)
	m.mu.Unlock()
	if err := m.nextStep(); err != nil {
		return err
	}
	m.mu.Lock()
	for _, c := range m.volatile[:n] {
		copy(m.durable[c.off:], c.bytes)
	}
	m.volatile = m.volatile[n:]
	m.mu.Unlock()
	return m.nextStep()
}

func (m *medium) Finish(ctx context.Context) error { return m.Sync(ctx) }

// mediumReader is the Source of a medium.
type mediumReader struct{ *medium }

func (r mediumReader) ReadAt(_ context.Context, p []byte, off int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	copy(p, r.current[off:])
	return nil
}

func (r mediumReader) Extents(_ context.Context, in disk.Range) ([]disk.Extent, error) {
	return []disk.Extent{{Range: in}}, nil
}

// reboot returns a medium with the content that survived a power cut.
func (m *medium) reboot(t *testing.T, left *cutRemains) *medium {
	t.Helper()
	must(t, os.WriteFile(m.path, left.manifest, 0o600))
	return &medium{path: m.path, rnd: m.rnd, created: true, current: left.image, durable: slices.Clone(left.image)}
}
