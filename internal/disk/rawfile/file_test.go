package rawfile

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/disktest"
	"github.com/decamp/decamp/internal/fault"
)

// skipWithout skips the test if a program is not in PATH, or without root privileges if name is "root".
func skipWithout(t testing.TB, name string) {
	t.Helper()
	if name == "root" {
		if os.Geteuid() != 0 {
			t.Skip("needs root, to mount file systems")
		}
		return
	}
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("needs %s in PATH", name)
	}
}

var modes = []Mode{Direct, Uncached, Behind}

func TestTargetConformance(t *testing.T) {
	for _, m := range modes {
		t.Run(m.String(), func(t *testing.T) {
			disktest.TestTarget(t, func(t *testing.T, size int64) disktest.Image {
				path := filepath.Join(t.TempDir(), "disk.raw")
				return disktest.Image{
					Create: func() (disk.Target, error) { return Create(path, size, Options{Mode: m}) },
					Resume: func() (disk.Target, error) { return Open(path, Options{Mode: m, Size: size}) },
					Source: func() (disk.Source, error) { return OpenSource(path, SourceOptions{Direct: true}) },
				}
			})
		})
	}
}

// writeImage writes src to a new sparse image.
func writeImage(t *testing.T, path string, src disk.Source) {
	t.Helper()
	f, err := Create(path, src.Size(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	copyRange(t, f, src, disk.Range{Len: src.Size()})
	if err := f.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkBuffersReturned(t, f.buffers)
}

// copyRange copies the data extents of src in r to dst, in pieces of up to 1 MiB.
func copyRange(t *testing.T, dst disk.Target, src disk.Source, r disk.Range) {
	t.Helper()
	extents, err := src.Extents(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range extents {
		for off := e.Off; off < e.End() && e.Kind == disk.Data; off += 1 << 20 {
			p := make([]byte, min(1<<20, e.End()-off))
			if err := errors.Join(src.ReadAt(t.Context(), p, off), dst.WriteAt(t.Context(), p, off)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func checkBuffersReturned(t *testing.T, b *bufferPool) {
	t.Helper()
	if out := bufferCount - len(b.free); out != 0 {
		t.Errorf("%d buffers were not returned to the pool", out)
	}
}

// TestOverlay writes random unaligned pieces in parallel, from aligned and unaligned memory, and compares the file
// with the same changes in memory.
func TestOverlay(t *testing.T) {
	const size = 6<<20 + 1536 // ends inside a block
	for _, m := range modes {
		t.Run(m.String(), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "disk.raw")
			f, err := Create(path, size, Options{Mode: m})
			if err != nil {
				t.Fatal(err)
			}
			want := make([]byte, size)
			rnd := rand.New(rand.NewPCG(uint64(m), 1))
			for round := range 6 {
				if round == 3 { // the second half writes to the resumed file
					f = reopen(t, f, path, m)
				}
				writeRandomPieces(t, rnd, f, want)
			}
			checkBuffersReturned(t, f.buffers)
			if err := f.Finish(t.Context()); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(path)
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("content differs (%v)", err)
			}
		})
	}
}

func reopen(t *testing.T, f *File, path string, m Mode) *File {
	t.Helper()
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path, Options{Mode: m, Size: f.Size()})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// writeRandomPieces splits the disk into random pieces and writes, zeroes or keeps each.
func writeRandomPieces(t *testing.T, rnd *rand.Rand, f *File, want []byte) {
	t.Helper()
	var g errgroup.Group
	g.SetLimit(8)
	memory := make([]byte, len(want)+Align)
	for off := 0; off < len(want); {
		n := min(1+rnd.IntN(300<<10), len(want)-off)
		r := disk.Range{Off: int64(off), Len: int64(n)}
		piece := want[off : off+n]
		switch rnd.IntN(3) {
		case 0:
			clear(piece)
			g.Go(func() error { return f.Zero(t.Context(), r) })
		case 1:
			fillRandom(rnd, piece)
			shift := rnd.IntN(2) * rnd.IntN(Align) // half of the pieces are not shifted
			p := memory[off+shift : off+shift+n]
			if shift != 0 {
				p = make([]byte, n+shift)[shift:]
			}
			copy(p, piece)
			g.Go(func() error { return f.WriteAt(t.Context(), p, r.Off) })
		}
		off += n
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

func fillRandom(rnd *rand.Rand, p []byte) {
	for i := range p {
		p[i] = byte(rnd.Uint32()) | 1
	}
}

func TestFreshFileStaysSparse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk.raw")
	src := disk.NewSparsePattern(64<<20, 0.3, 7)
	writeImage(t, path, src)
	if got, want := allocatedBytes(t, path), dataBytes(t, src); got > want+64<<10 {
		t.Errorf("%d bytes are allocated for %d bytes of data", got, want)
	}
}

func TestZeroOnResumedFileFreesSpace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk.raw")
	writeImage(t, path, disk.NewPattern(8<<20))
	f, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Zero(t.Context(), disk.Range{Len: 8 << 20}); err != nil {
		t.Fatal(err)
	}
	if got := allocatedBytes(t, path); got > 64<<10 {
		t.Errorf("%d bytes are still allocated, want at most %d", got, 64<<10)
	}
}

func allocatedBytes(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Blocks * 512
}

func dataBytes(t *testing.T, src disk.Source) (n int64) {
	t.Helper()
	extents, err := src.Extents(t.Context(), disk.Range{Len: src.Size()})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range extents {
		if e.Kind == disk.Data {
			n += e.Len
		}
	}
	return n
}

func TestOneWriterAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk.raw")
	f, err := Create(path, 1<<20, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, Options{}); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
		t.Errorf("second writer: got %v, want a conflict with a remedy", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(path, Options{})
	if err != nil {
		t.Fatalf("after close: %v", err)
	}
	defer again.Close()
}

func TestCreateAndOpenErrors(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "disk.raw")
	writeImage(t, path, disk.NewPattern(1<<20))
	create := func(p string) error { _, err := Create(p, 1<<20, Options{}); return err }
	open := func(p string, size int64) error { _, err := Open(p, Options{Size: size}); return err }
	for name, c := range map[string]struct {
		err  error
		want fault.Kind
	}{
		"create over a file":  {create(path), fault.Conflict},
		"create, no folder":   {create(filepath.Join(dir, "none", "x")), fault.NotFound},
		"open a missing file": {open(filepath.Join(dir, "none"), 0), fault.NotFound},
		"open another size":   {open(path, 2<<20), fault.Conflict},
		"open a smaller disk": {open(path, 512), fault.Conflict},
		"open a device file":  {open("/dev/null", 0), fault.Invalid},
	} {
		if !fault.Is(c.err, c.want) || fault.HintOf(c.err) == "" {
			t.Errorf("%s: got %v (%v), want kind %v", name, c.err, fault.KindOf(c.err), c.want)
		}
	}
	if err := create(filepath.Join(dir, "huge")); err != nil {
		t.Fatal(err)
	}
}

func TestOpenCompletesAKilledCreate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk.raw")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path, Options{Size: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if info, err := os.Stat(path); err != nil || info.Size() != 1<<20 || f.Size() != 1<<20 {
		t.Errorf("size %d, file %v, want %d bytes, error %v", f.Size(), info, 1<<20, err)
	}
}

// A file that grows keeps its content. The new part is zeros, has no allocated blocks, and is
// writable.
func TestGrow(t *testing.T) {
	const size, larger = 3<<20 + 512, 9<<20 + 1536
	for _, m := range modes {
		path := filepath.Join(t.TempDir(), "disk.raw")
		writeImage(t, path, disk.NewPattern(size))
		had := allocatedBytes(t, path)
		f, err := Open(path, Options{Mode: m})
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Grow(t.Context(), size-512); !fault.Is(err, fault.Internal) {
			t.Errorf("Grow to a smaller size: got %v, want an internal error", err)
		}
		if err := f.Grow(t.Context(), larger); err != nil || f.Size() != larger {
			t.Fatalf("size %d, want %d, error %v", f.Size(), larger, err)
		}
		if has := allocatedBytes(t, path); has > had {
			t.Errorf("%d bytes are allocated, %d before", has, had)
		}
		want := make([]byte, larger)
		tail := bytes.Repeat([]byte{7}, 700)
		if err := errors.Join(disk.NewPattern(size).ReadAt(t.Context(), want[:size], 0), f.WriteAt(t.Context(), tail, larger-700), f.Finish(t.Context())); err != nil {
			t.Fatal(err)
		}
		copy(want[larger-700:], tail)
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%v: content differs (%v)", m, err)
		}
	}
}

func TestGrowTooLargeForTheFileSystem(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk.raw")
	writeImage(t, path, disk.NewPattern(1<<20))
	f, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Grow(t.Context(), 1<<62); !fault.Is(err, fault.Unsupported) || fault.HintOf(err) == "" {
		t.Errorf("4 EiB: %v", err)
	}
}

func TestTooLargeForTheFileSystem(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk.raw")
	_, err := Create(path, 1<<62, Options{})
	if !fault.Is(err, fault.Unsupported) || fault.HintOf(err) == "" {
		t.Fatalf("4 EiB: %v", err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the file still exists: %v", err)
	}
}

func TestUnsupportedModeFallsBack(t *testing.T) {
	dir := t.TempDir()
	for _, m := range modes {
		f, err := Create(filepath.Join(dir, m.String()), 1<<20, Options{Mode: m})
		if err != nil {
			t.Fatal(err)
		}
		if f.Mode() < m || (f.direct != nil) != (f.Mode() == Direct) {
			t.Errorf("requested mode %v, got %v", m, f.Mode())
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestWritesAllocateNoMemory(t *testing.T) {
	for _, m := range modes {
		f, err := Create(filepath.Join(t.TempDir(), "disk.raw"), 1<<20, Options{Mode: m})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		p := make([]byte, 64<<10+512)
		ctx := t.Context()
		got := testing.AllocsPerRun(20, func() {
			err = errors.Join(f.WriteAt(ctx, p, 512), f.Zero(ctx, disk.Range{Len: 64 << 10}))
		})
		if err != nil || got > 0 {
			t.Errorf("%v: got %v allocations, want 0, error %v", f.Mode(), got, err)
		}
	}
}

func TestSplit(t *testing.T) {
	for _, c := range []struct {
		off        int64
		n          int
		head, body int
	}{
		{0, 4096, 0, 4096}, {0, 5000, 0, 4096}, {512, 100, 100, 0}, {512, 3584, 3584, 0},
		{512, 8192, 3584, 4096}, {4096, 0, 0, 0}, {4095, 4097, 1, 4096},
	} {
		if head, body := splitBlocks(c.off, c.n); head != c.head || body != c.body {
			t.Errorf("split(%d, %d) = %d, %d, want %d, %d", c.off, c.n, head, body, c.head, c.body)
		}
	}
}
