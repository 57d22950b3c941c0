package manifest

import (
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

// newSealed returns a sealed manifest of src, with zero chunks as zero runs.
func newSealed(t testing.TB, src disk.Source) *Sealed {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m")
	l, err := Create(path, Info{Disk: "2001", Size: src.Size(), Source: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	runs := make([]Run, 0, l.Chunks())
	for c := range l.Chunks() {
		runs = append(runs, runOf(t, src, l.Info(), c))
	}
	if err := l.Append(context.Background(), runs); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Seal(context.Background()); err != nil {
		t.Fatal(err)
	}
	s, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func runOf(t testing.TB, src disk.Source, info Info, c int64) Run {
	t.Helper()
	r := info.Chunk(c)
	b := make([]byte, r.Len)
	if err := src.ReadAt(context.Background(), b, r.Off); err != nil {
		t.Fatal(err)
	}
	if h := HashOf(b); h != info.zeroHash(c) {
		return Run{First: c, Hashes: []Hash{h}}
	}
	return Run{First: c, Zeros: 1}
}

// readDisk returns the content of a disk.
func readDisk(t *testing.T, src disk.Source) []byte {
	t.Helper()
	b := make([]byte, src.Size())
	if err := src.ReadAt(context.Background(), b, 0); err != nil {
		t.Fatal(err)
	}
	return b
}

// A faultySource is a source with wrong bits, errors or wrong extents.
type faultySource struct {
	disk.Source
	flip    map[int64]byte // bits to flip, by offset
	err     error          // error of reads at or after errAt
	errAt   int64
	extents func(disk.Range) []disk.Extent // replaces the extents; may be nil

	mu      sync.Mutex
	buffers map[*byte]bool // buffers of the reads
}

func (s *faultySource) ReadAt(ctx context.Context, p []byte, off int64) error {
	s.mu.Lock()
	if s.buffers == nil {
		s.buffers = map[*byte]bool{}
	}
	s.buffers[unsafe.SliceData(p)] = true
	s.mu.Unlock()
	if s.err != nil && off >= s.errAt {
		return s.err
	}
	err := s.Source.ReadAt(ctx, p, off)
	for at, bits := range s.flip {
		if at >= off && at < off+int64(len(p)) {
			p[at-off] ^= bits
		}
	}
	return err
}

func (s *faultySource) Extents(ctx context.Context, r disk.Range) ([]disk.Extent, error) {
	if s.extents != nil {
		return s.extents(r), nil
	}
	return s.Source.Extents(ctx, r)
}

func (s *faultySource) Medium() string { return "glass" }

func TestVerifyAcceptsAGoodImage(t *testing.T) {
	for name, src := range map[string]disk.Source{
		"full":   disk.NewPattern(9<<20 + 512),
		"sparse": disk.NewSparsePattern(40<<20, 0.3, 5),
		"empty":  disk.NewSparsePattern(33<<20, 0, 5),
		"tiny":   disk.NewPattern(512),
		"none":   disk.NewPattern(0),
	} {
		t.Run(name, func(t *testing.T) {
			s := newSealed(t, src)
			b := readDisk(t, src)
			sha, md := sha256.Sum256(b), md5.Sum(b)
			want := Report{
				Disk: "2001", Bytes: src.Size(), Chunks: s.Info().Chunks(), Root: s.Root(),
				SHA256: hex.EncodeToString(sha[:]), MD5: hex.EncodeToString(md[:]), Medium: "glass",
			}
			for _, o := range []VerifyOptions{{}, {Window: 1, Windows: 1, MD5: true}, {Window: 3 << 20, Windows: 3}, {Window: 512 << 20}, {NoSums: true, MD5: true}} {
				want := want
				if o.NoSums {
					want.SHA256 = ""
				}
				if o.NoSums || !o.MD5 {
					want.MD5 = ""
				}
				got, err := Verify(context.Background(), &faultySource{Source: src}, s, o)
				if err != nil {
					t.Fatal(err)
				}
				if name == "empty" && got.Zero != src.Size() || name == "sparse" && (got.Zero == 0) != (o.Window == 512<<20) {
					t.Errorf("%+v: %d bytes of holes", o, got.Zero)
				}
				if got.Zero = 0; fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
					t.Errorf("%+v: report is\n%+v, want\n%+v", o, got, want)
				}
			}
		})
	}
}

func TestVerifyNamesAnyFlippedBit(t *testing.T) {
	src := disk.NewSparsePattern(20<<20-512, 0.5, 3)
	s := newSealed(t, src)
	rnd := rand.New(rand.NewPCG(3, 3))
	offs := []int64{0, ChunkSize - 1, ChunkSize, src.Size() - 1}
	for range 20 {
		offs = append(offs, rnd.Int64N(src.Size()))
	}
	for _, off := range offs {
		bad := &faultySource{Source: src, flip: map[int64]byte{off: 1 << rnd.IntN(8)}, extents: allData}
		report, err := Verify(context.Background(), bad, s, VerifyOptions{NoSums: off%2 == 0})
		wantFault(t, err, fault.Corrupt)
		r := s.Info().Chunk(off / ChunkSize)
		b := make([]byte, r.Len)
		if err := bad.ReadAt(context.Background(), b, r.Off); err != nil {
			t.Fatal(err)
		}
		seen := HashOf(b)
		if err := src.ReadAt(context.Background(), b, r.Off); err != nil {
			t.Fatal(err)
		}
		want := Bad{Disk: "2001", Off: r.Off, Len: r.Len, Want: HashOf(b), Got: seen}
		if report.BadChunks != 1 || len(report.Bad) != 1 || report.Bad[0] != want || want.Chunk() != off/ChunkSize {
			t.Fatalf("bit at %d: report %+v, want %+v", off, report, want)
		}
		for _, part := range []string{"disk 2001", fmt.Sprint(r.Off), want.Want.String(), seen.String()} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q does not name %q", err, part)
			}
		}
	}
}

func allData(r disk.Range) []disk.Extent { return []disk.Extent{{Range: r}} }
func allHole(r disk.Range) []disk.Extent { return []disk.Extent{{Range: r, Kind: disk.Zero}} }
func noExtents(disk.Range) []disk.Extent { return nil }

func TestVerifyCountsAllAndNamesTheFirst(t *testing.T) {
	src := disk.NewPattern(50 << 20)
	s := newSealed(t, src)
	lost := &faultySource{Source: src, extents: allHole} // the image has lost all data
	report, err := Verify(context.Background(), lost, s, VerifyOptions{MaxBad: 7})
	wantFault(t, err, fault.Corrupt)
	if report.BadChunks != 50 || len(report.Bad) != 7 || report.Chunks != 50 {
		t.Fatalf("%d bad chunks, %d listed, of %d", report.BadChunks, len(report.Bad), report.Chunks)
	}
	for i, b := range report.Bad {
		if b.Off != int64(i)*ChunkSize || b.Got != ZeroHash(ChunkSize) {
			t.Fatalf("bad chunk %d is %v", i, b)
		}
	}
	if len(lost.buffers) != 0 {
		t.Error("holes were read")
	}
}

// A source without extents is read, and not treated as zeros.
func TestVerifyReadsUndescribedRanges(t *testing.T) {
	src := disk.NewPattern(5 << 20)
	report, err := Verify(context.Background(), &faultySource{Source: src, extents: noExtents}, newSealed(t, src), VerifyOptions{})
	if err != nil || report.Zero != 0 {
		t.Fatalf("%d zero bytes, %v", report.Zero, err)
	}
}

func TestVerifyLimitsMemoryAndReportsProgress(t *testing.T) {
	src := disk.NewPattern(64 << 20)
	counted, last := &faultySource{Source: src}, int64(0)
	_, err := Verify(context.Background(), counted, newSealed(t, src), VerifyOptions{
		Window: 2 << 20, Windows: 3,
		Progress: func(p Progress) {
			if p.Done != last+2<<20 || p.Read != p.Done || p.Size != src.Size() {
				t.Errorf("progress after %d: %+v", last, p)
			}
			last = p.Done
		},
	})
	if err != nil || last != src.Size() {
		t.Fatalf("progress ends at %d, %v", last, err)
	}
	if len(counted.buffers) > 3 {
		t.Errorf("%d windows in memory, want at most 3", len(counted.buffers))
	}
	for p := range counted.buffers {
		if uintptr(unsafe.Pointer(p))%4096 != 0 {
			t.Errorf("buffer at %p is not aligned", p)
		}
	}
}

// Holes and proven chunks count as done, and are not read.
func TestVerifyReportsBytesRead(t *testing.T) {
	src := disk.NewPattern(64 << 20)
	last := Progress{}
	report, err := Verify(context.Background(), src, newSealed(t, src), VerifyOptions{
		Verified: func(chunk int64) bool { return chunk%4 != 0 },
		Progress: func(p Progress) { last = p },
	})
	if err != nil || last.Done != 64<<20 || last.Read != 16<<20 || report.Read() != last.Read {
		t.Errorf("with three of four chunks proven: %+v, %v", last, err)
	}
	zeros := disk.NewSparsePattern(64<<20, 0, 5)
	report, err = Verify(context.Background(), zeros, newSealed(t, zeros), VerifyOptions{Progress: func(p Progress) { last = p }})
	if err != nil || last.Done != 64<<20 || last.Read != 0 || report.Read() != 0 {
		t.Errorf("with a disk of zeros: %+v, %v", last, err)
	}
}

func TestVerifyStopsAtErrors(t *testing.T) {
	src := disk.NewPattern(64 << 20)
	s := newSealed(t, src)
	bad := errors.New("medium error")
	report, err := Verify(context.Background(), &faultySource{Source: src, err: bad, errAt: 40 << 20}, s, VerifyOptions{})
	if !errors.Is(err, bad) || !strings.Contains(err.Error(), "disk 2001: read [") || report.Bytes != 0 {
		t.Errorf("read error: %v, report %+v", err, report)
	}
	ctx, cancel := context.WithCancel(context.Background())
	_, err = Verify(ctx, src, s, VerifyOptions{Progress: func(Progress) { cancel() }})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	_, err = Verify(context.Background(), disk.NewPattern(64<<20+512), s, VerifyOptions{})
	wantFault(t, err, fault.Corrupt)
}

func TestVerifyDetectsAChangedManifest(t *testing.T) {
	src := disk.NewPattern(8 << 20)
	s := newSealed(t, src)
	f, err := os.OpenFile(s.path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{0xff, 0xfe}, s.start.off+recordHead+5); err != nil {
		t.Fatal(err)
	}
	mustClose(t, f)
	_, err = Verify(context.Background(), src, s, VerifyOptions{})
	wantFault(t, err, fault.Corrupt)
}

// The image is a Pattern, which takes almost no time, so this measures BLAKE3 and SHA-256.
func BenchmarkVerify(b *testing.B) {
	src := disk.NewPattern(256 << 20)
	s := newSealed(b, src)
	b.SetBytes(src.Size())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Verify(context.Background(), src, s, VerifyOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}
