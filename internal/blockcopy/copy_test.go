package blockcopy

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/manifest"
)

// memImage is a Target in memory. As on a disk, a crash drops data that was not synced. fail, if set, is
// called before every operation.
type memImage struct {
	mu      sync.Mutex
	now     []byte // current content
	durable []byte // content after a crash
	ops     int    // number of operations
	fail    func(op string, n int) error
	writes  int64 // bytes written
	zeroed  int64 // bytes zeroed
}

func newMemImage(size int64) *memImage {
	return &memImage{now: make([]byte, size), durable: make([]byte, size)}
}

func (m *memImage) countOp(op string) error {
	m.ops++
	if m.fail == nil {
		return nil
	}
	return m.fail(op, m.ops)
}

func (m *memImage) Size() int64 { return int64(len(m.now)) }

func (m *memImage) WriteAt(ctx context.Context, p []byte, off int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := errors.Join(m.countOp("write"), ctx.Err()); err != nil {
		return err
	}
	copy(m.now[off:], p)
	m.writes += int64(len(p))
	return nil
}

func (m *memImage) Zero(ctx context.Context, r disk.Range) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := errors.Join(m.countOp("zero"), ctx.Err()); err != nil {
		return err
	}
	clear(m.now[r.Off:r.End()])
	m.zeroed += r.Len
	return nil
}

func (m *memImage) Sync(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.countOp("sync"); err != nil {
		return err
	}
	copy(m.durable, m.now)
	return nil
}

// crash drops data that was not synced, except for some bytes of it.
func (m *memImage) crash() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.now {
		if m.now[i] != m.durable[i] && i%3 == 0 {
			m.durable[i] = m.now[i] // reached the medium before the crash
		}
	}
	copy(m.now, m.durable)
	m.fail = nil
}

func (m *memImage) Hints() disk.Hints            { return disk.Hints{} }
func (m *memImage) Finish(context.Context) error { return nil }
func (m *memImage) Close() error                 { return nil }

func newLog(t *testing.T, size int64) (*manifest.Log, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk.manifest")
	log, err := manifest.Create(path, manifest.Info{Disk: "disk 2000", Size: size})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	return log, path
}

// checkImage fails the test if the image differs from want or a chunk is missing in the manifest.
func checkImage(t *testing.T, img *memImage, log *manifest.Log, want disk.Source) {
	t.Helper()
	b := make([]byte, want.Size())
	if err := want.ReadAt(t.Context(), b, 0); err != nil {
		t.Fatal(err)
	}
	for i := range b {
		if b[i] != img.now[i] {
			t.Fatalf("byte %d of the image is %#02x, want %#02x", i, img.now[i], b[i])
		}
	}
	if !log.Complete() {
		t.Fatalf("%d chunks are missing in the manifest", log.Missing())
	}
}

func TestCopyWithAnySizesAndOptions(t *testing.T) {
	for _, size := range []int64{512, 1 << 20, 5<<20 + 512, 70<<20 + 3*512} {
		for _, fill := range []float64{0, 0.4, 1} {
			for _, o := range []Options{
				{},
				{Window: 1 << 20, Readers: 1, Writers: 1, Span: 1 << 20},
				{Window: 4 << 20, Readers: 7, Writers: 3, Span: 8 << 20},
			} {
				name := fmt.Sprintf("%d bytes, %.1f full, %d readers", size, fill, o.Readers)
				t.Run(name, func(t *testing.T) {
					src := disk.NewSparsePattern(size, fill, 11)
					check := disk.NewCheck(src)
					o.Manifest, _ = newLog(t, size)
					if _, err := Copy(t.Context(), src, check, o); err != nil {
						t.Fatal(err)
					}
					if err := check.Finish(t.Context()); err != nil {
						t.Fatal(err)
					}
					if !o.Manifest.Complete() {
						t.Fatalf("%d chunks are missing in the manifest", o.Manifest.Missing())
					}
				})
			}
		}
	}
}

func TestCopyNeverWritesZeros(t *testing.T) {
	src := undescribedSource{disk.NewSparsePattern(64<<20, 0.5, 3)}
	img := newMemImage(src.Size())
	log, _ := newLog(t, src.Size())
	res, err := Copy(t.Context(), src, img, Options{Manifest: log})
	if err != nil {
		t.Fatal(err)
	}
	checkImage(t, img, log, src)
	var data int64
	extents, err := src.Pattern.Extents(t.Context(), disk.Range{Len: src.Size()})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range extents {
		if e.Kind == disk.Data {
			data += e.Len
		}
	}
	if img.writes != data || res.Written != data || res.Read != src.Size() {
		t.Errorf("wrote %d bytes (result: %d) and read %d; want %d written, all read", img.writes, res.Written, res.Read, data)
	}
}

// undescribedSource is a source that does not report its holes.
type undescribedSource struct{ *disk.Pattern }

func (b undescribedSource) Extents(_ context.Context, r disk.Range) ([]disk.Extent, error) {
	return []disk.Extent{{Range: r}}, nil
}

func TestCopyReadsOnlyData(t *testing.T) {
	src := disk.NewSparsePattern(64<<20, 0.3, 5)
	res, err := Copy(t.Context(), src, disk.NewNull(src.Size()), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if res.Read >= src.Size()/2 || res.Read != res.Written || res.Done != src.Size() {
		t.Errorf("result %+v", res.Progress)
	}
}

// countingPacer is a budget that grants all requests and counts their bytes.
type countingPacer struct{ bytes atomic.Int64 }

func (p *countingPacer) pace(_ context.Context, bytes int64) error { p.bytes.Add(bytes); return nil }

// Copy requests its budget for the bytes that it reads, and not for known zeros or chunks in the
// manifest. It does not read the bytes that the budget refuses.
func TestCopyRequestsBudgetForBytesRead(t *testing.T) {
	src := disk.NewSparsePattern(64<<20, 0.3, 6)
	log, _ := newLog(t, src.Size())
	var paced countingPacer
	refused, granted := errors.New("no more"), 0
	half := func(ctx context.Context, bytes int64) error {
		if granted++; granted > 4 {
			return refused
		}
		return paced.pace(ctx, bytes)
	}
	first, err := Copy(t.Context(), src, disk.NewNull(src.Size()), Options{Manifest: log, Pace: half, Readers: 1})
	if !errors.Is(err, refused) || paced.bytes.Load() != first.Read || first.Read == 0 {
		t.Fatalf("%v, with %d bytes granted and %d read", err, paced.bytes.Load(), first.Read)
	}
	rest, err := Copy(t.Context(), src, disk.NewNull(src.Size()), Options{Manifest: log, Pace: paced.pace})
	if err != nil || paced.bytes.Load() != first.Read+rest.Read || rest.Read >= src.Size()/2 {
		t.Errorf("%v, with %d bytes granted and %d and %d read", err, paced.bytes.Load(), first.Read, rest.Read)
	}
}

func TestCopyResumesAfterACrashAtEveryOperation(t *testing.T) {
	src := disk.NewSparsePattern(10<<20, 0.6, 9)
	o := Options{Window: 1 << 20, Readers: 3, Writers: 2, Span: 4 << 20, CheckpointBytes: 2 << 20}
	crash := errors.New("power cut")
	for at := 1; ; at++ {
		img := newMemImage(src.Size())
		log, path := newLog(t, src.Size())
		o.Manifest = log
		img.fail = func(_ string, n int) error {
			if n >= at {
				return crash
			}
			return nil
		}
		_, err := Copy(t.Context(), src, img, o)
		if err == nil {
			break // the copy ended before operation at: all its operations were tried
		}
		if !errors.Is(err, crash) {
			t.Fatalf("crash at operation %d: %v", at, err)
		}
		resumeCopy(t, src, img, log, path, o)
	}
}

// resumeCopy crashes the image, opens the manifest again and copies the missing chunks. It
// fails the test if Copy copies a chunk that is in the manifest.
func resumeCopy(t *testing.T, src disk.Source, img *memImage, log *manifest.Log, path string, o Options) {
	t.Helper()
	img.crash()
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := manifest.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	missing := again.Missing()
	o.Manifest = again
	res, err := Copy(t.Context(), src, img, o)
	if err != nil {
		t.Fatal(err)
	}
	if got := (res.Done + manifest.ChunkSize - 1) / manifest.ChunkSize; got != missing {
		t.Fatalf("copied %d bytes, %d chunks were missing", res.Done, missing)
	}
	checkImage(t, img, again, src)
}

func TestCanceledCopyRecordsCopiedChunks(t *testing.T) {
	src := disk.NewPattern(32 << 20)
	img := newMemImage(src.Size())
	log, path := newLog(t, src.Size())
	ctx, cancel := context.WithCancel(t.Context())
	o := Options{Manifest: log, Window: 1 << 20, Readers: 2, Writers: 2, Progress: func(p Progress) {
		if p.Done >= 8<<20 {
			cancel()
		}
	}}
	res, err := Copy(ctx, src, img, o)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	if got := (log.Chunks() - log.Missing()) * manifest.ChunkSize; got != res.Done || got < 8<<20 {
		t.Fatalf("%d bytes are in the manifest, %d were copied", got, res.Done)
	}
	o.Progress = nil
	resumeCopy(t, src, img, log, path, o)
}

func TestReadErrorContainsTheRange(t *testing.T) {
	broken := errors.New("bad sector")
	src := badSectorSource{Source: disk.NewPattern(8 << 20), at: 5 << 20, err: broken}
	_, err := Copy(t.Context(), src, disk.NewNull(8<<20), Options{Window: 1 << 20, Span: 1 << 20})
	if !errors.Is(err, broken) || err.Error() != "read [5242880, 6291456): bad sector" {
		t.Fatalf("got %v", err)
	}
}

// badSectorSource is a source whose reads of the byte at fail.
type badSectorSource struct {
	disk.Source
	at  int64
	err error
}

func (f badSectorSource) ReadAt(ctx context.Context, p []byte, off int64) error {
	if off <= f.at && f.at < off+int64(len(p)) {
		return f.err
	}
	return f.Source.ReadAt(ctx, p, off)
}

// Readers that fail while describe still sends zero runs must not close its queue, which caused a panic in an earlier
// version.
func TestReaderFailureDuringDescribe(t *testing.T) {
	broken := errors.New("host is gone")
	for seed := range uint64(50) {
		src := brokenSource{disk.NewSparsePattern(512<<20, 0.5, seed), broken}
		if _, err := Copy(t.Context(), src, disk.NewNull(src.Size()), Options{Readers: 1, Writers: 1}); !errors.Is(err, broken) {
			t.Fatalf("got %v", err)
		}
	}
}

// brokenSource is a source whose reads fail.
type brokenSource struct {
	disk.Source
	err error
}

func (f brokenSource) ReadAt(context.Context, []byte, int64) error { return f.err }

func TestCopyRefusesDifferentSizes(t *testing.T) {
	if _, err := Copy(t.Context(), disk.NewPattern(1024), disk.NewNull(512), Options{}); err == nil {
		t.Fatal("no error")
	}
}

func TestCheckpointsByBytesAndByTime(t *testing.T) {
	src := disk.NewPattern(64 << 20)
	now := time.Unix(0, 0)
	var mu sync.Mutex
	clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	for _, c := range []struct {
		name string
		o    Options
		step time.Duration // clock step per MiB
		want int
	}{
		{"by bytes", Options{CheckpointBytes: 4 << 20, CheckpointEvery: time.Hour}, 0, 16},
		// The description of the disk is also one clock step. Checkpoints are at 16, 32, 48 and 64 s, and at the end.
		{"by time", Options{CheckpointBytes: 1 << 40, CheckpointEvery: 16 * time.Second}, time.Second, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			log, _ := newLog(t, src.Size())
			c.o.Manifest, c.o.Now, c.o.Window, c.o.Readers, c.o.Writers = log, clock, 1<<20, 1, 1
			c.o.Progress = func(Progress) { mu.Lock(); now = now.Add(c.step); mu.Unlock() }
			res, err := Copy(t.Context(), src, newMemImage(src.Size()), c.o)
			if err != nil {
				t.Fatal(err)
			}
			if res.Checkpoints != c.want {
				t.Errorf("%d checkpoints, want %d", res.Checkpoints, c.want)
			}
		})
	}
}

// windowsInUse returns the number of windows that are not in the pool.
func windowsInUse(p *windowPool) int { return cap(p.idle) - len(p.uncut) - len(p.idle) }

func TestWindowsAreReturned(t *testing.T) {
	src := disk.NewSparsePattern(64<<20, 0.5, 1)
	c := newCopy(src, disk.NewNull(src.Size()), Options{Window: 1 << 20})
	w, err := c.takeWindow(t.Context(), disk.Range{Len: 4096})
	if err != nil || windowsInUse(c.windows) != 1 {
		t.Fatalf("%d windows in use, error %v", windowsInUse(c.windows), err)
	}
	c.windows.put(w)
	if _, err := c.runCopy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out := windowsInUse(c.windows); out != 0 {
		t.Fatalf("%d windows were not returned", out)
	}
}

// A copy of a disk whose chunks are all in the manifest reports the skipped bytes, although it writes no
// window.
func TestSkippedBytesAreReported(t *testing.T) {
	const size = 3<<20 + disk.SectorSize
	img := newMemImage(size)
	log, _ := newLog(t, size)
	if _, err := Copy(t.Context(), disk.NewPattern(size), img, Options{Manifest: log}); err != nil {
		t.Fatal(err)
	}
	var last Progress
	res, err := Copy(t.Context(), disk.NewPattern(size), img, Options{Manifest: log, Progress: func(p Progress) { last = p }})
	if err != nil {
		t.Fatal(err)
	}
	if res.Skipped != size || last.Skipped != size || last.Done != 0 {
		t.Errorf("skipped %d of %d bytes; last progress %+v", res.Skipped, size, last)
	}
}

// describedSource is a disk of zeros with data in some ranges. It records the requests for its extents and
// the opened streams.
type describedSource struct {
	disk.Null
	data []disk.Range

	mu       sync.Mutex
	requests []disk.Range
	streams  []disk.Range
	open     int   // number of open streams
	short    int64 // bytes missing at the end of each stream
}

func (d *describedSource) Extents(_ context.Context, r disk.Range) ([]disk.Extent, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.requests = append(d.requests, r)
	return disk.Describe(r, d.data), nil
}

func (d *describedSource) ReadAt(_ context.Context, p []byte, off int64) error {
	for i := range p {
		p[i] = byte((off+int64(i))>>16) | 1
	}
	return nil
}

// streamSource is a describedSource that can only be read by streams.
type streamSource struct{ *describedSource }

func (s streamSource) Hints() disk.Hints { return disk.Hints{Stream: s.openStream} }

func (s streamSource) ReadAt(context.Context, []byte, int64) error {
	return errors.New("read without a stream")
}

func (s streamSource) openStream(ctx context.Context, r disk.Range) (io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams = append(s.streams, r)
	s.open++
	return &rangeStream{s.describedSource, r}, nil
}

// rangeStream is the stream of a range. It ends short bytes before the end of the range.
type rangeStream struct {
	d    *describedSource
	left disk.Range
}

func (b *rangeStream) Read(p []byte) (int, error) {
	n := min(int64(len(p)), b.left.Len-b.d.short)
	if n <= 0 {
		return 0, io.EOF
	}
	err := b.d.ReadAt(context.Background(), p[:n], b.left.Off)
	b.left = disk.Range{Off: b.left.Off + n, Len: b.left.Len - n}
	return int(n), err
}

func (b *rangeStream) Close() error {
	b.d.mu.Lock()
	defer b.d.mu.Unlock()
	b.d.open--
	return nil
}

// recordingTarget is a target that records the zeroed and the written ranges.
type recordingTarget struct {
	disk.Null
	mu             sync.Mutex
	zeros, written []disk.Range
}

func (z *recordingTarget) Zero(_ context.Context, r disk.Range) error {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.zeros = append(z.zeros, r)
	return nil
}

func (z *recordingTarget) WriteAt(_ context.Context, p []byte, off int64) error {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.written = append(z.written, disk.Range{Off: off, Len: int64(len(p))})
	return nil
}

func sortRanges(list []disk.Range) []disk.Range {
	slices.SortFunc(list, func(a, b disk.Range) int { return cmp.Compare(a.Off, b.Off) })
	return list
}

// Copy requests the extents of a source in parts of 4 GiB.
func TestExtentsAreRequestedInLargeParts(t *testing.T) {
	src := &describedSource{Null: disk.NewNull(9<<30 + 512)}
	res, err := Copy(t.Context(), src, disk.NewNull(src.Size()), Options{})
	if err != nil || res.Done != src.Size() {
		t.Fatalf("%+v, %v", res.Progress, err)
	}
	want := []disk.Range{{Off: 0, Len: 4 << 30}, {Off: 4 << 30, Len: 4 << 30}, {Off: 8 << 30, Len: 1<<30 + 512}}
	if !slices.Equal(src.requests, want) {
		t.Errorf("requested extents of %v, want %v", src.requests, want)
	}
}

// A hole of any number of spans is zeroed in one piece, up to the chunk with the next data. The zeros in a chunk with
// data are zeroed with that chunk.
func TestHolesAreZeroedInOneCall(t *testing.T) {
	src := &describedSource{Null: disk.NewNull(32 << 20), data: []disk.Range{{Off: 10<<20 + 64<<10, Len: 64 << 10}}}
	dst := &recordingTarget{Null: src.Null}
	if _, err := Copy(t.Context(), src, dst, Options{Span: 4 << 20, Readers: 1}); err != nil {
		t.Fatal(err)
	}
	zeros := []disk.Range{{Off: 0, Len: 10 << 20}, {Off: 10 << 20, Len: 64 << 10}, {Off: 10<<20 + 128<<10, Len: 1<<20 - 128<<10}, {Off: 11 << 20, Len: 21 << 20}}
	if got := sortRanges(dst.zeros); !slices.Equal(got, zeros) || !slices.Equal(dst.written, src.data) {
		t.Errorf("zeroed %v, want %v; wrote %v", got, zeros, dst.written)
	}
}

// A source with streams is read only by streams, with one for each run of data in a span. The
// last spans have a quarter of the length.
func TestStreamsCoverSpans(t *testing.T) {
	src := streamSource{&describedSource{Null: disk.NewNull(16 << 20), data: []disk.Range{{Len: 9 << 20}, {Off: 9<<20 + 128<<10, Len: 7<<20 - 128<<10}}}}
	img := newMemImage(16 << 20)
	if _, err := Copy(t.Context(), src, img, Options{Readers: 2, Span: 4 << 20, Window: 2 << 20}); err != nil {
		t.Fatal(err)
	}
	want := []disk.Range{{Len: 4 << 20}, {Off: 4 << 20, Len: 4 << 20}, {Off: 8 << 20, Len: 1 << 20}, {Off: 9<<20 + 128<<10, Len: 1<<20 - 128<<10}}
	for off := int64(10 << 20); off < 16<<20; off += 1 << 20 {
		want = append(want, disk.Range{Off: off, Len: 1 << 20})
	}
	if got := sortRanges(src.streams); !slices.Equal(got, want) || src.open != 0 {
		t.Errorf("streams %v, want %v; %d are open", got, want, src.open)
	}
	all := make([]byte, 16<<20)
	if err := src.describedSource.ReadAt(t.Context(), all, 0); err != nil {
		t.Fatal(err)
	}
	clear(all[9<<20 : 9<<20+128<<10])
	if !bytes.Equal(img.now, all) {
		t.Error("the image differs from the disk")
	}
}

// If a stream ends before its range, the copy fails and closes it. It does not write zeros for the missing data.
func TestTruncatedStreamFailsCopy(t *testing.T) {
	src := streamSource{&describedSource{Null: disk.NewNull(4 << 20), data: []disk.Range{{Len: 4 << 20}}, short: 1}}
	_, err := Copy(t.Context(), src, newMemImage(4<<20), Options{Readers: 1})
	if !errors.Is(err, io.ErrUnexpectedEOF) || src.open != 0 {
		t.Errorf("%v, %d streams are open", err, src.open)
	}
}

// A copy has at most Readers + Writers windows, and at most as many as the disk has.
func TestBuffersAreLimited(t *testing.T) {
	for _, c := range []struct {
		size int64
		want int
	}{{0, 1}, {512, 1}, {2 << 20, 1}, {2<<20 + 512, 2}, {10 << 20, 5}, {1 << 30, 5}} {
		o := Options{Readers: 3, Writers: 2, Window: 2 << 20}
		got := newCopy(disk.NewPattern(c.size), disk.NewNull(c.size), o)
		if n := cap(got.windows.idle); n != c.want || got.Window > 2<<20 {
			t.Errorf("%d bytes: %d windows of %d, want %d", c.size, n, got.Window, c.want)
		}
	}
}

// The sum of two attempts counts each byte once, as done or as skipped.
func TestResultThenAddsAttempts(t *testing.T) {
	src := disk.NewPattern(8 << 20)
	log, _ := newLog(t, src.Size())
	broken := errors.New("bad sector")
	o := Options{Manifest: log, Window: 1 << 20, Span: 1 << 20, Readers: 1, Writers: 1}
	first, err := Copy(t.Context(), badSectorSource{Source: src, at: 5 << 20, err: broken}, disk.NewNull(src.Size()), o)
	if !errors.Is(err, broken) || first.Done == 0 {
		t.Fatalf("%+v, %v", first.Progress, err)
	}
	second, err := Copy(t.Context(), src, disk.NewNull(src.Size()), o)
	if err != nil {
		t.Fatal(err)
	}
	sum := first.Then(second)
	if sum.Done != src.Size() || sum.Skipped != 0 || sum.Written != src.Size() || sum.Checkpoints != first.Checkpoints+second.Checkpoints {
		t.Errorf("the sum of %+v and %+v is %+v", first.Progress, second.Progress, sum)
	}
}
