package transporttest

import (
	"context"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/manifest"
)

const bigDisk = 48 << 20

func sparse(seed uint64) *disk.Pattern { return disk.NewSparsePattern(bigDisk, 0.6, seed) }

func probes(t *testing.T, h Harness) {
	rig := start(t, h, sparse(1))
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

func copiesEveryByte(t *testing.T, h Harness, size int64) {
	want := disk.NewPattern(size)
	rig := start(t, h, want)
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

func keepsHoles(t *testing.T, h Harness) {
	want := sparse(2)
	rig := start(t, h, want)
	im := newImage(t, want)
	if _, err := im.transfer(t.Context(), rig, 0, nil); err != nil {
		t.Fatal(err)
	}
	im.verify()
	if limit := allocated(t, want) + bigDisk/100; im.written() > limit {
		t.Errorf("%d bytes written, want at most %d", im.written(), limit)
	}
}

func resumesWhenCancelled(t *testing.T, h Harness) {
	want := sparse(3)
	rig := start(t, h, want)
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
	im.resume(rig)
}

// asksBeforeItTakes: a budget is asked for every byte that is data, and not for holes.
func asksBeforeItTakes(t *testing.T, h Harness) {
	want := sparse(6)
	rig := start(t, h, want)
	im := newImage(t, want)
	var asked atomic.Int64
	im.pace = func(_ context.Context, bytes int64) error { asked.Add(bytes); return nil }
	if _, err := im.transfer(t.Context(), rig, 0, nil); err != nil {
		t.Fatal(err)
	}
	im.verify()
	if n := asked.Load(); n < im.written() || n > allocated(t, want)+bigDisk/100 {
		t.Errorf("asked for %d bytes: %d were written, %d are data", n, im.written(), allocated(t, want))
	}
}

// takesNothingUnasked: a transfer that waits for its budget takes nothing, ends when it is
// canceled, and is completed later.
func takesNothingUnasked(t *testing.T, h Harness) {
	want := sparse(7)
	rig := start(t, h, want)
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
		t.Errorf("%d bytes were written that nobody granted", n)
	}
	im.pace = nil
	im.resume(rig)
}

// sharesFairly copies two disks of the same size at once, to images that take their time:
// when one has all its bytes, the other must have a good part. It is not half of them: on a
// loaded machine one of the two may begin late.
func sharesFairly(t *testing.T, h Harness) {
	a, b := disk.NewPattern(bigDisk), disk.NewPattern(bigDisk)
	rig := start(t, h, a, b)
	images := []*image{newImage(t, a), newImage(t, b)}
	var other atomic.Int64 // what the slower had when the faster had all
	other.Store(-1)
	var g errgroup.Group
	for i, im := range images {
		im.slow = func(written int64) {
			if written == bigDisk {
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
	if got := other.Load(); got < bigDisk/4 {
		t.Errorf("when one disk was done the other had %d of %d bytes", got, int64(bigDisk))
	}
}

func survives(t *testing.T, h Harness, tr Trouble) {
	want := sparse(4)
	rig := start(t, h, want)
	im := newImage(t, want)
	end := tr.Start(t, rig)
	defer end()
	if _, err := im.transfer(t.Context(), rig, 0, nil); err != nil {
		t.Fatal(err)
	}
	im.verify()
}

func stops(t *testing.T, h Harness, tr Trouble) {
	want := sparse(5)
	rig := start(t, h, want)
	im := newImage(t, want)
	end := tr.Start(t, rig)
	_, err := im.transfer(t.Context(), rig, 0, nil)
	if !fault.Is(err, tr.Kind) || fault.HintOf(err) == "" {
		t.Errorf("got %v (%v, hint %q), want %v with a remedy", err, fault.KindOf(err), fault.HintOf(err), tr.Kind)
	}
	end()
	im.resume(rig)
}

// resume opens the manifest again, as a new process would, and completes the image.
func (im *image) resume(rig Rig) {
	im.t.Helper()
	im.reopen()
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

func allocated(t *testing.T, d disk.Source) (n int64) {
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
