package transporttest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/manifest"
)

// bigDisk is the size of most test disks in bytes: many windows of the copy engine.
const bigDisk = 24 << 20

// sparseDisk returns a disk with 60 % data. seed selects the content.
func sparseDisk(seed uint64) *disk.Pattern { return disk.NewSparsePattern(bigDisk, 0.6, seed) }

// testProbe checks the Offer for a VM that is off, and for a running one.
func testProbe(t *testing.T, h Harness) {
	rig := startEnvironment(t, h, sparseDisk(1))
	d := rig.Disks[0]
	offer, err := rig.Transport.Probe(t.Context(), d)
	if err != nil || !offer.Usable || offer.Streams < 1 {
		t.Errorf("offer %+v, error %v", offer, err)
	}
	if rig.Transport.Name() == "" {
		t.Error("the transport has no name")
	}
	on := *d.VM
	on.Power = inventory.PoweredOn
	d.VM = &on
	offer, err = rig.Transport.Probe(t.Context(), d)
	if err != nil || offer.Usable && !offer.Running || !offer.Usable && offer.Reason == "" {
		t.Errorf("running VM: offer %+v, error %v", offer, err)
	}
}

// testCopiesEveryByte copies a disk without holes and compares every byte.
func testCopiesEveryByte(t *testing.T, h Harness, size int64) {
	want := disk.NewPattern(size)
	rig := startEnvironment(t, h, want)
	im := newImage(t, want)
	res, err := im.transfer(t.Context(), rig, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	im.verify()
	if res.Done != size || res.Size != size {
		t.Errorf("result %+v", res.Progress)
	}
}

// testKeepsHoles checks that little more than the allocated bytes is written.
func testKeepsHoles(t *testing.T, h Harness) {
	want := sparseDisk(2)
	rig := startEnvironment(t, h, want)
	im := newImage(t, want)
	if _, err := im.transfer(t.Context(), rig, 0, nil); err != nil {
		t.Fatal(err)
	}
	im.verify()
	if limit := allocatedBytes(t, want) + bigDisk/100; im.written() > limit {
		t.Errorf("%d bytes written, want at most %d", im.written(), limit)
	}
}

// testResumesWhenCanceled cancels a transfer and completes it with another.
func testResumesWhenCanceled(t *testing.T, h Harness) {
	want := sparseDisk(3)
	rig := startEnvironment(t, h, want)
	im := newImage(t, want)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := im.transfer(ctx, rig, 0, func(p blockcopy.Progress) {
		if p.Done > bigDisk/4 {
			cancel()
		}
	})
	if !fault.Is(err, fault.Canceled) {
		t.Fatalf("got %v, want Canceled", err)
	}
	im.resumeTransfer(rig)
}

// testPacesData checks that Job.Pace is called for every byte of data, and not for holes.
func testPacesData(t *testing.T, h Harness) {
	want := sparseDisk(6)
	rig := startEnvironment(t, h, want)
	im := newImage(t, want)
	var asked atomic.Int64
	im.pace = func(_ context.Context, bytes int64) error { asked.Add(bytes); return nil }
	if _, err := im.transfer(t.Context(), rig, 0, nil); err != nil {
		t.Fatal(err)
	}
	im.verify()
	if n := asked.Load(); n < im.written() || n > allocatedBytes(t, want)+bigDisk/100 {
		t.Errorf("Pace was called for %d bytes: %d were written, %d are data", n, im.written(), allocatedBytes(t, want))
	}
}

// testWaitsForBudget checks that a transfer without budget writes nothing, ends when it is canceled,
// and can be completed later.
func testWaitsForBudget(t *testing.T, h Harness) {
	want := sparseDisk(7)
	rig := startEnvironment(t, h, want)
	im := newImage(t, want)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	im.pace = func(ctx context.Context, _ int64) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}
	if _, err := im.transfer(ctx, rig, 0, nil); !fault.Is(err, fault.Canceled) {
		t.Fatalf("got %v, want Canceled", err)
	}
	if n := im.written(); n > 0 {
		t.Errorf("%d bytes were written without a budget", n)
	}
	im.pace = nil
	im.resumeTransfer(rig)
}

// testSharesFairly copies two disks of the same size at once, to slow images. When one is complete, the
// other must have a quarter of its bytes. Each waits with its first bytes until the other begins, or for a minute.
func testSharesFairly(t *testing.T, h Harness) {
	const size = 2 * bigDisk
	a, b := disk.NewPattern(size), disk.NewPattern(size)
	rig := startEnvironment(t, h, a, b)
	images := []*image{newImage(t, a), newImage(t, b)}
	var other atomic.Int64 // bytes of the slower when the faster was complete; -1 before
	other.Store(-1)
	var g errgroup.Group
	begun := []chan struct{}{make(chan struct{}), make(chan struct{})}
	for i, im := range images {
		begin := sync.OnceFunc(func() { close(begun[i]) })
		im.slow = func(written int64) {
			begin()
			select {
			case <-begun[1-i]:
			case <-time.After(time.Minute):
			}
			if written == size {
				other.CompareAndSwap(-1, images[1-i].written())
			}
		}
		g.Go(func() error {
			_, err := im.transfer(t.Context(), rig, i, nil)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, im := range images {
		im.verify()
	}
	if got := other.Load(); got < size/4 {
		t.Errorf("when one disk was done the other had %d of %d bytes", got, int64(size))
	}
}

// testSurvives checks that a transfer succeeds despite tr.
func testSurvives(t *testing.T, h Harness, tr Trouble) {
	want := sparseDisk(4)
	rig := startEnvironment(t, h, want)
	im := newImage(t, want)
	end := tr.Start(t, rig)
	defer end()
	if _, err := im.transfer(t.Context(), rig, 0, nil); err != nil {
		t.Fatal(err)
	}
	im.verify()
}

// testStops checks that tr ends a transfer with the right kind and a remedy, and that a later transfer
// completes the image.
func testStops(t *testing.T, h Harness, tr Trouble) {
	want := sparseDisk(5)
	rig := startEnvironment(t, h, want)
	im := newImage(t, want)
	end := tr.Start(t, rig)
	_, err := im.transfer(t.Context(), rig, 0, nil)
	if !fault.Is(err, tr.Kind) || fault.HintOf(err) == "" {
		t.Errorf("got %v (%v, hint %q), want %v with a remedy", err, fault.KindOf(err), fault.HintOf(err), tr.Kind)
	}
	end()
	im.resumeTransfer(rig)
}

// resumeTransfer opens the manifest again, as a new process would, and completes the image. It fails
// the test if durable chunks are copied again.
func (im *image) resumeTransfer(rig Environment) {
	im.t.Helper()
	im.reopenLog()
	missing := im.log.Missing()
	safe := im.log.Chunks() - missing
	res, err := im.transfer(im.t.Context(), rig, 0, nil)
	if err != nil {
		im.t.Fatalf("resume: %v", err)
	}
	im.verify()
	if res.Skipped < safe*manifest.ChunkSize-manifest.ChunkSize {
		im.t.Errorf("skipped %d bytes although %d chunks were safe", res.Skipped, safe)
	}
}

// allocatedBytes returns the number of bytes of d that are data.
func allocatedBytes(t *testing.T, d disk.Source) (n int64) {
	extents, err := d.Extents(t.Context(), disk.Range{Len: d.Size()})
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
