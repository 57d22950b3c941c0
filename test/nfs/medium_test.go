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

// sector is what a medium writes as a whole or not at all.
const sector = 4096

// medium is an image on a disk with a volatile cache, and the image.Opener of it: what was
// not synced may be there after a power cut or not, sector by sector, in any order.
type medium struct {
	path    string // of the manifest that is on the same disk
	created bool   // by Open, once
	cutAt   int    // the step before which the power goes, from 1; 0 for never
	rnd     *rand.Rand

	mu       sync.Mutex
	now      []byte // what reads see
	durable  []byte // what surely survives
	volatile []change
	steps    int
	left     *remains // once the power is gone
}

// change is bytes that were written, and not synced. They are never changed.
type change struct {
	off   int64
	bytes []byte
}

// remains is what a power cut leaves.
type remains struct {
	image    []byte
	manifest []byte
}

// errNoPower is what everything ends with after the cut.
var errNoPower = errors.New("the power is gone")

func newMedium(size int64, path string, rnd *rand.Rand) *medium {
	return &medium{path: path, rnd: rnd, now: make([]byte, size), durable: make([]byte, size)}
}

// Open is part of image.Opener.
func (m *medium) Open(context.Context) (disk.Target, bool, error) {
	created := !m.created
	m.created = true
	return m, created, nil
}

// Read is part of image.Opener.
func (m *medium) Read(context.Context) (disk.Source, error) { return reading{m}, nil }

// ReadUnfinished is part of image.Opener.
func (m *medium) ReadUnfinished(ctx context.Context) (disk.Source, error) { return m.Read(ctx) }

var _ image.Opener = (*medium)(nil)

func (m *medium) Size() int64       { return int64(len(m.now)) }
func (m *medium) Hints() disk.Hints { return disk.Hints{} }
func (m *medium) Close() error      { return nil }

// step is a moment at which the power may go. While a picture is taken nothing else
// happens to the medium, so that the manifest in it is one that it had with this image.
func (m *medium) step() error {
	runtime.Gosched()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.steps++; m.steps == m.cutAt {
		m.picture()
	}
	if m.left != nil {
		return errNoPower
	}
	return nil
}

// cut cuts the power now.
func (m *medium) cut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.picture()
}

// picture needs mu.
func (m *medium) picture() {
	b, err := os.ReadFile(m.path)
	if err != nil {
		panic(err) // a test of its own would say no more
	}
	m.left = &remains{image: m.survivor(), manifest: b}
}

// survivor needs mu.
func (m *medium) survivor() []byte {
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

func (m *medium) put(p []byte, off int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := change{off, slices.Clone(p)}
	copy(m.now[off:], p)
	m.volatile = append(m.volatile, c)
}

func (m *medium) WriteAt(_ context.Context, p []byte, off int64) error {
	for _, half := range [][]byte{p[:len(p)/2], p[len(p)/2:]} {
		if err := m.step(); err != nil {
			return err
		}
		m.put(half, off)
		off += int64(len(half))
	}
	return m.step()
}

func (m *medium) Zero(_ context.Context, r disk.Range) error {
	if err := m.step(); err != nil {
		return err
	}
	m.put(make([]byte, r.Len), r.Off)
	return m.step()
}

// Sync makes durable what was there when it began.
func (m *medium) Sync(context.Context) error {
	m.mu.Lock()
	n := len(m.volatile)
	m.mu.Unlock()
	if err := m.step(); err != nil {
		return err
	}
	m.mu.Lock()
	for _, c := range m.volatile[:n] {
		copy(m.durable[c.off:], c.bytes)
	}
	m.volatile = m.volatile[n:]
	m.mu.Unlock()
	return m.step()
}

func (m *medium) Finish(ctx context.Context) error { return m.Sync(ctx) }

// reading is a medium's Source.
type reading struct{ *medium }

func (r reading) ReadAt(_ context.Context, p []byte, off int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	copy(p, r.now[off:])
	return nil
}

func (r reading) Extents(_ context.Context, in disk.Range) ([]disk.Extent, error) {
	return []disk.Extent{{Range: in}}, nil
}

// reboot puts what a power cut left on a medium that has power.
func (m *medium) reboot(t *testing.T, left *remains) *medium {
	t.Helper()
	must(t, os.WriteFile(m.path, left.manifest, 0o600))
	return &medium{path: m.path, rnd: m.rnd, created: true, now: left.image, durable: slices.Clone(left.image)}
}
