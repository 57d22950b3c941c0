package qcow2

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/decamp/decamp/internal/disk"
)

// sparseDisk is a disk in memory whose extents are exact to the byte.
type sparseDisk struct {
	bytes []byte
	data  []disk.Range
	bad   error
}

func (d *sparseDisk) Size() int64       { return int64(len(d.bytes)) }
func (d *sparseDisk) Hints() disk.Hints { return disk.Hints{} }
func (d *sparseDisk) Close() error      { return nil }

func (d *sparseDisk) ReadAt(_ context.Context, p []byte, off int64) error {
	copy(p, d.bytes[off:])
	return d.bad
}

func (d *sparseDisk) Extents(_ context.Context, r disk.Range) ([]disk.Extent, error) {
	var within []disk.Range
	for _, each := range d.data {
		from, to := max(each.Off, r.Off), min(each.End(), r.End())
		if from < to {
			within = append(within, disk.Range{Off: from, Len: to - from})
		}
	}
	return disk.Describe(r, within), nil
}

// newSparseDisk returns a disk with random data in the given ranges, and zeros in between.
func newSparseDisk(size int64, data ...disk.Range) *sparseDisk {
	d := &sparseDisk{bytes: make([]byte, size), data: data}
	rnd := rand.NewChaCha8([32]byte{1})
	for _, r := range data {
		_, _ = rnd.Read(d.bytes[r.Off:r.End()]) // cannot fail
	}
	return d
}

// The stream is an image that passes qemu-img check and has the content of the disk.
func TestStreamIsAValidImage(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	const mib = 1 << 20
	for name, d := range map[string]*sparseDisk{
		"empty":     newSparseDisk(3 * mib),
		"small":     newSparseDisk(512, disk.Range{Len: 512}),
		"full":      newSparseDisk(5*mib+512, disk.Range{Len: 5*mib + 512}),
		"ends":      newSparseDisk(700*mib+1024, disk.Range{Len: 1000}, disk.Range{Off: 700*mib + 512, Len: 512}),
		"unaligned": newSparseDisk(4*mib, disk.Range{Off: 65535, Len: 2}, disk.Range{Off: 131073, Len: 10}, disk.Range{Off: 131090, Len: 70000}, disk.Range{Off: 3 * mib, Len: mib}),
		"tables":    newSparseDisk(1200*mib, disk.Range{Off: 511 * mib, Len: 3 * mib}, disk.Range{Off: 1199 * mib, Len: mib}),
	} {
		t.Run(name, func(t *testing.T) { checkStream(t, d) })
	}
}

func checkStream(t *testing.T, d *sparseDisk) {
	s, err := NewStream(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(s)
	if err != nil || int64(len(text)) != s.Size() || s.Done() != d.Size() {
		t.Fatalf("%d bytes of %d, %d of the disk: %v", len(text), s.Size(), s.Done(), err)
	}
	var data int64
	for _, r := range d.data {
		data += r.Len
	}
	if most := data + (int64(len(d.data))*2+10)*clusterSize; s.Size() > most {
		t.Errorf("stream of %d bytes for %d bytes of data, want at most %d", s.Size(), data, most)
	}
	path := filepath.Join(t.TempDir(), "stream.qcow2")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "qemu-img", "check", path).CombinedOutput(); err != nil {
		t.Errorf("qemu-img check: %v\n%s", err, out)
	}
	src, err := OpenSource(path, SourceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if src.Size() != d.Size() {
		t.Fatalf("disk of %d bytes, want %d", src.Size(), d.Size())
	}
	extents, err := src.Extents(t.Context(), disk.Range{Len: d.Size()})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range extents {
		got := make([]byte, e.Len) // zeros
		if e.Kind == disk.Data {
			err = src.ReadAt(t.Context(), got, e.Off)
		} else if !slices.ContainsFunc(d.data, func(r disk.Range) bool { return !r.Intersect(e.Range).Empty() }) {
			continue
		}
		if err != nil || !bytes.Equal(got, d.bytes[e.Off:e.End()]) {
			t.Fatalf("content of %v differs, error %v", e, err)
		}
	}
}

func TestStreamReturnsReadErrors(t *testing.T) {
	d := newSparseDisk(1<<20, disk.Range{Len: 1 << 20})
	d.bad = errors.New("bad sector")
	s, err := NewStream(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, s); !errors.Is(err, d.bad) {
		t.Errorf("read: got %v, want %v", err, d.bad)
	}
	if _, err := NewStream(t.Context(), newSparseDisk(0)); err == nil {
		t.Error("NewStream accepts a disk of 0 bytes")
	}
}
