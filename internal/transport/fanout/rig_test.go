package fanout

import (
	"context"
	"io"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/writebehind"
)

const (
	mib      = 1 << 20
	testSize = 24*mib + 3*disk.SectorSize
)

// newDisk returns a disk of a VM.
func newDisk(key int32) transport.Disk {
	return transport.Disk{VM: &inventory.VM{}, Disk: &inventory.Disk{Key: key}}
}

// pullTransport is a transport that reads src and counts its transfers and bytes.
type pullTransport struct {
	src    disk.Source
	before func() error // called before each read; may be nil

	transfers, read atomic.Int64
}

func (*pullTransport) Name() string { return "pull" }
func (*pullTransport) Close() error { return nil }

func (*pullTransport) Probe(context.Context, transport.Disk) (transport.Offer, error) {
	return transport.Offer{Usable: true, Streams: 4, Running: true}, nil
}

func (p *pullTransport) Transfer(ctx context.Context, job transport.Job) (blockcopy.Result, error) {
	p.transfers.Add(1)
	return transport.Pull(ctx, func(context.Context, transport.Disk) (disk.Source, error) { return countingSource{p.src, p}, nil }, job)
}

type countingSource struct {
	disk.Source
	transport *pullTransport
}

func (c countingSource) ReadAt(ctx context.Context, b []byte, off int64) error {
	if c.transport.before != nil {
		if err := c.transport.before(); err != nil {
			return err
		}
	}
	c.transport.read.Add(int64(len(b)))
	return c.Source.ReadAt(ctx, b, off)
}

// pushTransport is a transport that writes a disk in random order. It writes some pieces twice, first with a
// wrong byte.
type pushTransport struct {
	src  disk.Source
	seed uint64
}

func (pushTransport) Name() string { return "push" }
func (pushTransport) Close() error { return nil }

func (pushTransport) Probe(context.Context, transport.Disk) (transport.Offer, error) {
	return transport.Offer{Usable: true}, nil
}

func (p pushTransport) Transfer(ctx context.Context, job transport.Job) (res blockcopy.Result, err error) {
	back, err := job.ReadBack(ctx)
	if err != nil {
		return res, err
	}
	defer back.Close()
	pool := writebehind.NewPool(writebehind.MinBudget)
	f, err := writebehind.New(job.Target, job.Manifest, pool, writebehind.Options{
		Source: back, Size: job.Target.Size(), CheckpointBytes: 4 * mib,
	})
	if err != nil {
		return res, err
	}
	defer f.Close()
	if err := p.sendPieces(ctx, f, pool); err != nil {
		return res, err
	}
	return res, f.Finish(ctx)
}

func (p pushTransport) sendPieces(ctx context.Context, f *writebehind.File, pool *writebehind.Pool) error {
	const piece = 192 << 10
	rnd := rand.New(rand.NewPCG(p.seed, 1))
	pieces := rnd.Perm(int((p.src.Size() + piece - 1) / piece))
	for _, wrong := range []bool{true, false} {
		for _, n := range pieces {
			if wrong && rnd.IntN(4) > 0 {
				continue
			}
			off := int64(n) * piece
			b, err := pool.Get(ctx, int(min(piece, p.src.Size()-off)))
			if err != nil {
				return err
			}
			if err := p.src.ReadAt(ctx, b.Bytes(), off); err != nil {
				return err
			}
			if wrong {
				b.Bytes()[rnd.IntN(len(b.Bytes()))] ^= 0xff
			}
			if err := f.Write(ctx, b, off); err != nil {
				return err
			}
		}
	}
	return nil
}

// testImage is a target in memory with a manifest. It fails the test if a write changes a chunk that the manifest
// lists.
type testImage struct {
	t      *testing.T
	want   disk.Source
	path   string
	log    *manifest.Log
	before func(op string) error // called before each operation; may be nil
	pace   func(ctx context.Context, bytes int64) error

	mu     sync.Mutex
	bytes  []byte
	closed bool
}

func newTestImage(t *testing.T, want disk.Source) *testImage {
	t.Helper()
	im := &testImage{t: t, want: want, path: filepath.Join(t.TempDir(), "manifest"), bytes: make([]byte, want.Size())}
	var err error
	if im.log, err = manifest.Create(im.path, manifest.Info{Disk: "d", Size: want.Size()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { im.log.Close() })
	return im
}

func newTestImages(t *testing.T, n int, want disk.Source) []*testImage {
	var list []*testImage
	for range n {
		list = append(list, newTestImage(t, want))
	}
	return list
}

// addChunks writes chunks to the image and lists them in its manifest.
func (im *testImage) addChunks(chunks ...int64) {
	im.t.Helper()
	for _, c := range chunks {
		off := c * manifest.ChunkSize
		p := im.bytes[off:min(off+manifest.ChunkSize, im.Size())]
		if err := im.want.ReadAt(im.t.Context(), p, off); err != nil {
			im.t.Fatal(err)
		}
		if err := im.log.Append(im.t.Context(), []manifest.Run{{First: c, Hashes: []manifest.Hash{manifest.HashOf(p)}}}); err != nil {
			im.t.Fatal(err)
		}
	}
}

func (im *testImage) transferJob() transport.Job {
	return transport.Job{Disk: newDisk(2000), Target: im, Manifest: im.log, Pace: im.pace,
		ReadBack: func(context.Context) (disk.Source, error) { return imageReader{im}, nil }}
}

// requireComplete fails the test unless the image holds the whole disk and verifies against its manifest.
func (im *testImage) requireComplete() {
	im.t.Helper()
	root, err := im.log.Seal(im.t.Context())
	if err != nil {
		im.t.Fatal(err)
	}
	sealed, err := manifest.Load(im.path)
	if err != nil {
		im.t.Fatal(err)
	}
	defer sealed.Close()
	report, err := manifest.Verify(im.t.Context(), imageReader{im}, sealed, manifest.VerifyOptions{})
	if err != nil || report.Root != root {
		im.t.Errorf("verify: root %v, sealed %v, error %v", report.Root, root, err)
	}
	check := disk.NewCheck(im.want)
	if err := check.WriteAt(im.t.Context(), im.bytes, 0); err != nil {
		im.t.Errorf("image: %v", err)
	}
}

func (im *testImage) Size() int64       { return int64(len(im.bytes)) }
func (im *testImage) Hints() disk.Hints { return disk.Hints{} }

func (im *testImage) WriteAt(_ context.Context, p []byte, off int64) error {
	return im.modify("write", disk.Range{Off: off, Len: int64(len(p))}, func(b []byte) { copy(b, p) })
}

func (im *testImage) Zero(_ context.Context, r disk.Range) error {
	return im.modify("zero", r, func(b []byte) { clear(b) })
}

func (im *testImage) modify(op string, r disk.Range, f func([]byte)) error {
	if err := im.checkCall(op); err != nil {
		return err
	}
	for c := r.Off / manifest.ChunkSize; c*manifest.ChunkSize < r.End(); c++ {
		if im.log.Has(c) {
			im.t.Errorf("%s at %v changes chunk %d, which the manifest lists", op, r, c)
		}
	}
	im.mu.Lock()
	defer im.mu.Unlock()
	f(im.bytes[r.Off:r.End()])
	return nil
}

func (im *testImage) checkCall(op string) error {
	im.mu.Lock()
	if im.closed {
		im.t.Errorf("%s after Transfer returned", op)
	}
	im.mu.Unlock()
	if im.before != nil {
		return im.before(op)
	}
	return nil
}

func (im *testImage) Sync(context.Context) error { return im.checkCall("sync") }
func (im *testImage) Finish(context.Context) error {
	im.t.Error("the transport called Finish")
	return nil
}
func (im *testImage) Close() error { im.t.Error("the transport called Close"); return io.ErrClosedPipe }

// runTransfer transfers the disk to the image as member m.
func (im *testImage) runTransfer(ctx context.Context, m *Member) error {
	im.mu.Lock()
	im.closed = false
	im.mu.Unlock()
	_, err := m.Transfer(ctx, im.transferJob())
	im.mu.Lock()
	defer im.mu.Unlock()
	im.closed = true
	return err
}

// imageReader reads the content of an image.
type imageReader struct{ im *testImage }

func (r imageReader) Size() int64       { return r.im.Size() }
func (r imageReader) Hints() disk.Hints { return disk.Hints{} }
func (r imageReader) Close() error      { return nil }

func (r imageReader) ReadAt(_ context.Context, p []byte, off int64) error {
	r.im.mu.Lock()
	defer r.im.mu.Unlock()
	if err := disk.CheckRange(r.im.Size(), disk.Range{Off: off, Len: int64(len(p))}); err != nil {
		return err
	}
	copy(p, r.im.bytes[off:])
	return nil
}

func (r imageReader) Extents(_ context.Context, g disk.Range) ([]disk.Extent, error) {
	return []disk.Extent{{Range: g}}, nil
}

// transferAll transfers to all images at once, each as a member of g, and returns their errors. Each member settles
// the disk afterwards.
func transferAll(t *testing.T, g *Group, images []*testImage) []error {
	t.Helper()
	errs := make([]error, len(images))
	var wg sync.WaitGroup
	for i, im := range images {
		wg.Go(func() {
			errs[i] = im.runTransfer(t.Context(), g.Member(i))
			g.Member(i).Settle(2000)
		})
	}
	requireReturn(t, wg.Wait)
	return errs
}

// requireReturn fails the test if f does not return within 5 minutes.
func requireReturn(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(5 * time.Minute):
		t.Fatal("deadlock: no return within 5 minutes")
	}
}
