package qcow2

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/disktest"
	"github.com/decamp/decamp/internal/disk/rawfile"
	"github.com/decamp/decamp/internal/fault"
)

func TestTargetConformance(t *testing.T) {
	for _, m := range []rawfile.Mode{rawfile.Direct, rawfile.Behind} {
		t.Run(m.String(), func(t *testing.T) {
			disktest.TestTarget(t, func(t *testing.T, size int64) disktest.Image {
				path := filepath.Join(t.TempDir(), "disk.qcow2")
				return disktest.Image{
					Create: func() (disk.Target, error) { return Create(path, size, Options{Mode: m}) },
					Resume: func() (disk.Target, error) { return Open(path, Options{Mode: m, Size: size}) },
					Source: func() (disk.Source, error) {
						src, err := OpenSource(path, SourceOptions{Direct: true})
						if err == nil {
							checkWithQEMU(t, path, src)
						}
						return src, err
					},
				}
			})
		})
	}
}

// memory is a disk in memory. It is the model of the content of an image.
type memory []byte

func (m memory) Size() int64       { return int64(len(m)) }
func (m memory) Hints() disk.Hints { return disk.Hints{} }
func (m memory) Close() error      { return nil }
func (m memory) ReadAt(ctx context.Context, p []byte, off int64) error {
	if err := disk.CheckRange(m.Size(), disk.Range{Off: off, Len: int64(len(p))}); err != nil {
		return err
	}
	copy(p, m[off:])
	return ctx.Err()
}
func (m memory) Extents(_ context.Context, r disk.Range) ([]disk.Extent, error) {
	return []disk.Extent{{Range: r}}, disk.CheckRange(m.Size(), r)
}

// TestOverlay writes and zeroes random unaligned pieces in parallel, and resumes the image unfinished and
// finished. It compares the image with the same changes in memory.
func TestOverlay(t *testing.T) {
	const size = 9<<20 + 1536 // ends inside a cluster
	path := filepath.Join(t.TempDir(), "disk.qcow2")
	im, err := Create(path, size, Options{})
	if err != nil {
		t.Fatal(err)
	}
	want, rnd := make(memory, size), rand.New(rand.NewPCG(3, 1))
	for round := range 8 {
		writeRandomPieces(t, rnd, im, want)
		if round%3 == 2 {
			if err := im.Finish(t.Context()); err != nil {
				t.Fatal(err)
			}
			checkWithQEMU(t, path, want)
		}
		if err := im.Close(); err != nil {
			t.Fatal(err)
		}
		if im, err = Open(path, Options{Size: size}); err != nil {
			t.Fatal(err)
		}
	}
	if err := im.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkWithQEMU(t, path, want)
	readBack(t, path, want)
}

// writeRandomPieces splits the disk into random pieces and writes, zeroes or keeps each.
func writeRandomPieces(t *testing.T, rnd *rand.Rand, im *Image, want memory) {
	t.Helper()
	var g errgroup.Group
	g.SetLimit(8)
	for off := 0; off < len(want); {
		n := min(1+rnd.IntN(300<<10), len(want)-off)
		r, piece := disk.Range{Off: int64(off), Len: int64(n)}, want[off:off+n]
		switch rnd.IntN(3) {
		case 0:
			clear(piece)
			g.Go(func() error { return im.Zero(t.Context(), r) })
		case 1:
			for i := range piece {
				piece[i] = byte(rnd.Uint32()) | 1
			}
			g.Go(func() error { return im.WriteAt(t.Context(), piece, r.Off) })
		}
		off += n
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

// readBack reads an image with Source and compares it with want.
func readBack(t *testing.T, path string, want disk.Source) {
	t.Helper()
	src, err := OpenSource(path, SourceOptions{Direct: true})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	got, content := make([]byte, want.Size()), make([]byte, want.Size())
	err = errors.Join(src.ReadAt(t.Context(), got, 0), want.ReadAt(t.Context(), content, 0))
	if err != nil || !bytes.Equal(got, content) {
		t.Fatalf("content differs (%v)", err)
	}
}

func TestUnfinishedImageIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk.qcow2")
	im, err := Create(path, 8<<20, Options{})
	if err != nil {
		t.Fatal(err)
	}
	copyDisk(t, im, disk.NewPattern(8<<20))
	if err := errors.Join(im.Sync(t.Context()), im.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenSource(path, SourceOptions{}); !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), "unfinished") {
		t.Errorf("OpenSource: got %v, want an error about an unfinished image", err)
	}
	if head, err := os.ReadFile(path); err != nil || !strings.HasPrefix(string(head), "decamp: this qcow2 image is not finished") {
		t.Errorf("the file does not start with the note (%v)", err)
	}
	skipWithout(t, "qemu-img")
	if out, err := exec.Command("qemu-img", "info", "-f", "qcow2", path).CombinedOutput(); err == nil {
		t.Errorf("qemu-img accepts it as an image:\n%s", out)
	}
}

func TestImageIsSparse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk.qcow2")
	src := disk.NewSparsePattern(256<<20, 0.3, 5)
	mustWriteImage(t, path, src)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	var data int64
	extents, err := src.Extents(t.Context(), disk.Range{Len: src.Size()})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range extents {
		if e.Kind == disk.Data {
			data += e.Len
		}
	}
	if got := info.Sys().(*syscall.Stat_t).Blocks * 512; got > data+1<<20 {
		t.Errorf("%d bytes allocated for %d bytes of data", got, data)
	}
}

// mustWriteImage writes a finished image of src.
func mustWriteImage(t testing.TB, path string, src disk.Source) {
	t.Helper()
	im, err := Create(path, src.Size(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	copyDisk(t, im, src)
	if err := im.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestSixTiB writes at the start, in the middle and at the end of a disk of 6 TiB.
func TestSixTiB(t *testing.T) {
	skipWithout(t, "qemu-img")
	const size = 6<<40 + 512
	path := filepath.Join(t.TempDir(), "disk.qcow2")
	im, err := Create(path, size, Options{})
	if err != nil {
		t.Fatal(err)
	}
	src := disk.NewPattern(size)
	offsets := []int64{0, 3<<40 - 100, size - 700}
	p, q := make([]byte, 700), make([]byte, 700)
	for _, off := range offsets {
		if err := errors.Join(src.ReadAt(t.Context(), p, off), im.WriteAt(t.Context(), p, off)); err != nil {
			t.Fatal(err)
		}
	}
	if err := im.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	qemuImg(t, "check", "-q", "-f", "qcow2", path)
	s, err := OpenSource(path, SourceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, off := range offsets {
		err := errors.Join(src.ReadAt(t.Context(), p, off), s.ReadAt(t.Context(), q, off))
		if err != nil || !bytes.Equal(p, q) {
			t.Errorf("at %d: content differs (%v)", off, err)
		}
	}
	extents, err := s.Extents(t.Context(), disk.Range{Len: size})
	if err != nil || len(extents) != 5 {
		t.Errorf("got %d extents, want 5, error %v", len(extents), err)
	}
}

func TestWritesAllocateNoMemory(t *testing.T) {
	im, err := Create(filepath.Join(t.TempDir(), "disk.qcow2"), 1<<20, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer im.Close()
	p, ctx := make([]byte, 128<<10), t.Context()
	got := testing.AllocsPerRun(20, func() {
		err = errors.Join(im.WriteAt(ctx, p, 512), im.Zero(ctx, disk.Range{Len: 64 << 10}))
	})
	if err != nil || got > 0 {
		t.Errorf("got %v allocations, want 0, error %v", got, err)
	}
}
