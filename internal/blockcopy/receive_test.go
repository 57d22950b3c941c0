package blockcopy

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/manifest"
)

// windowFeed is a Feed that sends a Source window by window. It leaves out windows of zeros.
type windowFeed struct {
	disk.Source
	at     int64                                                  // offset of the next window
	out    atomic.Int64                                           // number of parts not released
	filled atomic.Int64                                           // number of parts filled
	next   func(p *windowFeed, off int64) (r disk.Range, e error) // returns the next range; nil sends windows in order
	end    error                                                  // final error; nil means io.EOF
}

func (p *windowFeed) Next(ctx context.Context, window int64) (disk.Part, error) {
	for ; p.at < p.Size(); p.at += window {
		r := disk.Range{Off: p.at, Len: min(window, p.Size()-p.at)}
		if p.next != nil {
			var err error
			if r, err = p.next(p, p.at); err != nil {
				return nil, err
			}
		} else if zero, err := allZero(ctx, p.Source, r); err != nil || zero {
			continue
		}
		p.at += window
		p.out.Add(1)
		return &windowPart{p, r}, nil
	}
	if p.end != nil {
		return nil, p.end
	}
	return nil, io.EOF
}

func allZero(ctx context.Context, src disk.Source, r disk.Range) (bool, error) {
	extents, err := src.Extents(ctx, r)
	for _, e := range extents {
		if e.Kind == disk.Data {
			return false, err
		}
	}
	return true, err
}

type windowPart struct {
	p *windowFeed
	r disk.Range
}

func (p *windowPart) Range() disk.Range { return p.r }
func (p *windowPart) Release()          { p.p.out.Add(-1) }
func (p *windowPart) Fill(ctx context.Context, b []byte) error {
	p.p.filled.Add(1)
	return p.p.ReadAt(ctx, b, p.r.Off)
}

func TestReceiveWithAnySizesAndOptions(t *testing.T) {
	for _, size := range []int64{512, 1 << 20, 5<<20 + 512, 70<<20 + 3*512} {
		for _, share := range []float64{0, 0.4, 1} {
			for _, o := range []Options{{}, {Window: 1 << 20, Readers: 1, Writers: 1}, {Window: 4 << 20, Readers: 5, Writers: 3}} {
				src := disk.NewSparsePattern(size, share, 11)
				feed, check := &windowFeed{Source: src}, disk.NewCheck(src)
				if _, err := Receive(t.Context(), feed, check, o); err != nil {
					t.Fatalf("%d bytes, fill %v, %+v: %v", size, share, o, err)
				}
				if err := check.Finish(t.Context()); err != nil {
					t.Fatalf("%d bytes, fill %v, %+v: %v", size, share, o, err)
				}
				if n := feed.out.Load(); n != 0 {
					t.Fatalf("%d parts were not released", n)
				}
			}
		}
	}
}

func TestReceiveResumesAfterACrashAtEveryOperation(t *testing.T) {
	if testing.Short() {
		t.Skip("crashes at every operation")
	}
	src := disk.NewSparsePattern(12<<20, 0.6, 9)
	o := Options{Window: 1 << 20, Readers: 3, Writers: 2, CheckpointBytes: 2 << 20}
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
		feed := &windowFeed{Source: src}
		_, err := Receive(t.Context(), feed, img, o)
		if n := feed.out.Load(); n != 0 {
			t.Fatalf("crash at operation %d: %d parts were not released", at, n)
		}
		if err == nil {
			break // every operation was tried
		}
		if !errors.Is(err, crash) {
			t.Fatalf("crash at operation %d: %v", at, err)
		}
		resumeReceive(t, src, img, log, path, o)
	}
}

// resumeReceive crashes the image and receives the same feed from its start. It fails the
// test if a chunk in the manifest is filled or written again.
func resumeReceive(t *testing.T, src disk.Source, img *memImage, log *manifest.Log, path string, o Options) {
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
	o.Manifest = again
	missing, feed := again.Missing(), &windowFeed{Source: src}
	res, err := Receive(t.Context(), feed, img, o)
	if err != nil {
		t.Fatal(err)
	}
	if got := res.Done / manifest.ChunkSize; got != missing || feed.filled.Load() > missing {
		t.Fatalf("received %d chunks and filled %d, %d were missing", got, feed.filled.Load(), missing)
	}
	checkImage(t, img, again, src)
}

func TestReceiveKeepsChunksBeforeAnError(t *testing.T) {
	cut := errors.New("connection lost")
	src := disk.NewPattern(16 << 20)
	log, _ := newLog(t, src.Size())
	feed := &windowFeed{Source: src, end: cut}
	_, err := Receive(t.Context(), feed, newMemImage(src.Size()), Options{Manifest: log, Window: 1 << 20})
	if !errors.Is(err, cut) || feed.out.Load() != 0 {
		t.Fatalf("%v, %d parts were not released", err, feed.out.Load())
	}
	if !log.Complete() {
		t.Fatalf("%d of %d received chunks are missing", log.Missing(), log.Chunks())
	}
}

func TestReceiveDropsRecalledChunks(t *testing.T) {
	src := disk.NewPattern(16 << 20)
	log, _ := newLog(t, src.Size())
	if err := log.Append(t.Context(), []manifest.Run{{First: 3, Zeros: 1}}); err != nil {
		t.Fatal(err)
	}
	feed := &windowFeed{Source: src, end: fault.Wrap(fault.Corrupt, disk.ErrRecalled)}
	_, err := Receive(t.Context(), feed, newMemImage(src.Size()), Options{Manifest: log, Window: 1 << 20})
	if !fault.Is(err, fault.Corrupt) {
		t.Fatalf("got %v", err)
	}
	if log.Missing() != log.Chunks() {
		t.Fatalf("%d of %d chunks are still in the manifest", log.Chunks()-log.Missing(), log.Chunks())
	}
}

func TestReceiveRefusesPartsOutOfOrder(t *testing.T) {
	for _, wrong := range []disk.Range{{Off: 0, Len: 1 << 20}, {Off: 5<<20 + 512, Len: 1 << 20}, {Off: 8 << 20, Len: 512}, {Off: 8 << 20, Len: 2 << 20}, {Off: 16 << 20, Len: 1 << 20}} {
		feed := &windowFeed{Source: disk.NewPattern(16 << 20)}
		feed.next = func(_ *windowFeed, off int64) (disk.Range, error) {
			if off == 4<<20 {
				return wrong, nil
			}
			return disk.Range{Off: off, Len: 1 << 20}, nil
		}
		_, err := Receive(t.Context(), feed, disk.NewNull(feed.Size()), Options{Window: 1 << 20})
		if !fault.Is(err, fault.Internal) || feed.out.Load() != 0 {
			t.Fatalf("%v: error %v, %d parts were not released", wrong, err, feed.out.Load())
		}
	}
}

func TestReceiveRefusesDifferentSizes(t *testing.T) {
	if _, err := Receive(t.Context(), &windowFeed{Source: disk.NewPattern(1024)}, disk.NewNull(512), Options{}); err == nil {
		t.Fatal("no error")
	}
}

// Parts whose chunks are all in the manifest are not filled; a part with a missing chunk is. Chunks of zeros, which
// have no part, are zeroed only if they are missing.
func TestReceiveSkipsListedChunks(t *testing.T) {
	src := disk.NewPattern(8 << 20)
	for window, filled := range map[int64]int64{1 << 20: 4, 2 << 20: 3} {
		img := newMemImage(src.Size())
		log, _ := newLog(t, src.Size())
		if _, err := Copy(t.Context(), src, img, Options{Manifest: log}); err != nil {
			t.Fatal(err)
		}
		if err := log.DropAll([]int64{3, 4, 6, 7}); err != nil {
			t.Fatal(err)
		}
		clear(img.now[3<<20 : 5<<20])
		clear(img.now[6<<20:])
		feed := &windowFeed{Source: src}
		res, err := Receive(t.Context(), feed, img, Options{Manifest: log, Window: window})
		if err != nil || feed.filled.Load() != filled || res.Done != filled*window || res.Skipped != src.Size()-res.Done {
			t.Errorf("%d bytes at once: %d parts filled, want %d; %+v, %v", window, feed.filled.Load(), filled, res.Progress, err)
		}
		checkImage(t, img, log, src)
	}
	zeros := disk.NewSparsePattern(8<<20, 0, 1)
	log, _ := newLog(t, zeros.Size())
	if err := log.Append(t.Context(), []manifest.Run{{First: 2, Zeros: 3}}); err != nil {
		t.Fatal(err)
	}
	dst := &recordingTarget{Null: disk.NewNull(zeros.Size())}
	if _, err := Receive(t.Context(), &windowFeed{Source: zeros}, dst, Options{Manifest: log}); err != nil {
		t.Fatal(err)
	}
	if want := []disk.Range{{Len: 2 << 20}, {Off: 5 << 20, Len: 3 << 20}}; !slices.Equal(sortRanges(dst.zeros), want) {
		t.Errorf("zeroed %v, want %v", dst.zeros, want)
	}
}

// The error is the one that ended the copy, without the cancellations that it caused.
func TestFeedErrorOmitsCausedCancellations(t *testing.T) {
	full, cut := errors.New("no space"), errors.New("connection lost")
	for _, c := range []struct {
		err, fed error
		want     string
	}{
		{nil, nil, ""},
		{nil, cut, cut.Error()},
		{full, nil, full.Error()},
		{full, context.Canceled, full.Error()},
		{full, cut, cut.Error() + "\n" + full.Error()},
	} {
		got := ""
		if err := feedError(c.err, c.fed); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%v and %v: %q, want %q", c.err, c.fed, got, c.want)
		}
	}
}
