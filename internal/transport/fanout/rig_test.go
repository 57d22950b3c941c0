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

// diskOf is a disk of the VM that everybody moves.
func diskOf(key int32) transport.Disk {
	return transport.Disk{VM: &inventory.VM{}, Disk: &inventory.Disk{Key: key}}
}

// pull is a transport that reads src, and counts.
type pull struct {
	src    disk.Source
	before func() error // each read; nil is fine

	transfers, read atomic.Int64
}

func (*pull) Name() string { return "pull" }
func (*pull) Close() error { return nil }

func (*pull) Probe(context.Context, transport.Disk) (transport.Offer, error) {
	return transport.Offer{Usable: true, Streams: 4, Running: true}, nil
}

func (p *pull) Transfer(ctx context.Context, job transport.Job) (blockcopy.Result, error) {
	p.transfers.Add(1)
	return transport.Pull(ctx, func(context.Context, transport.Disk) (disk.Source, error) { return counted{p.src, p}, nil }, job)
}

type counted struct {
	disk.Source
	p *pull
}

func (c counted) ReadAt(ctx context.Context, b []byte, off int64) error {
	if c.p.before != nil {
		if err := c.p.before(); err != nil {
			return err
		}
	}
	c.p.read.Add(int64(len(b)))
	return c.Source.ReadAt(ctx, b, off)
}

// push is a transport to which the disk is sent: in pieces out of order, some twice, after
// other bytes that were not meant.
type push struct {
	src  disk.Source
	seed uint64
}

func (push) Name() string { return "push" }
func (push) Close() error { return nil }

func (push) Probe(context.Context, transport.Disk) (transport.Offer, error) {
	return transport.Offer{Usable: true}, nil
}

func (p push) Transfer(ctx context.Context, job transport.Job) (res blockcopy.Result, err error) {
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
	if err := p.send(ctx, f, pool); err != nil {
		return res, err
	}
	return res, f.Finish(ctx)
}

func (p push) send(ctx context.Context, f *writebehind.File, pool *writebehind.Pool) error {
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

// image is one destination: memory and a manifest, and what it suffers. It fails the test
// if a byte changes that the manifest calls safe.
type image struct {
	t      *testing.T
	want   disk.Source
	path   string
	log    *manifest.Log
	before func(op string) error // each call; nil is fine
	pace   func(ctx context.Context, bytes int64) error

	mu     sync.Mutex
	bytes  []byte
	closed bool
}

func newImage(t *testing.T, want disk.Source) *image {
	t.Helper()
	im := &image{t: t, want: want, path: filepath.Join(t.TempDir(), "manifest"), bytes: make([]byte, want.Size())}
	var err error
	if im.log, err = manifest.Create(im.path, manifest.Info{Disk: "d", Size: want.Size()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { im.log.Close() })
	return im
}

func newImages(t *testing.T, n int, want disk.Source) []*image {
	var list []*image
	for range n {
		list = append(list, newImage(t, want))
	}
	return list
}

// have lets the image begin with some chunks.
func (im *image) have(chunks ...int64) {
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

func (im *image) job() transport.Job {
	return transport.Job{Disk: diskOf(2000), Target: im, Manifest: im.log, Pace: im.pace,
		ReadBack: func(context.Context) (disk.Source, error) { return reader{im}, nil }}
}

// complete fails the test unless the image holds the whole disk, and the manifest proves it.
func (im *image) complete() {
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
	report, err := manifest.Verify(im.t.Context(), reader{im}, sealed, manifest.VerifyOptions{})
	if err != nil || report.Root != root {
		im.t.Errorf("verify: root %v, sealed %v, error %v", report.Root, root, err)
	}
	check := disk.NewCheck(im.want)
	if err := check.WriteAt(im.t.Context(), im.bytes, 0); err != nil {
		im.t.Errorf("image: %v", err)
	}
}

func (im *image) Size() int64       { return int64(len(im.bytes)) }
func (im *image) Hints() disk.Hints { return disk.Hints{} }

func (im *image) WriteAt(_ context.Context, p []byte, off int64) error {
	return im.change("write", disk.Range{Off: off, Len: int64(len(p))}, func(b []byte) { copy(b, p) })
}

func (im *image) Zero(_ context.Context, r disk.Range) error {
	return im.change("zero", r, func(b []byte) { clear(b) })
}

func (im *image) change(op string, r disk.Range, f func([]byte)) error {
	if err := im.call(op); err != nil {
		return err
	}
	for c := r.Off / manifest.ChunkSize; c*manifest.ChunkSize < r.End(); c++ {
		if im.log.Has(c) {
			im.t.Errorf("%s at %v changes chunk %d, which is safe", op, r, c)
		}
	}
	im.mu.Lock()
	defer im.mu.Unlock()
	f(im.bytes[r.Off:r.End()])
	return nil
}

func (im *image) call(op string) error {
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

func (im *image) Sync(context.Context) error   { return im.call("sync") }
func (im *image) Finish(context.Context) error { im.t.Error("finished by the transport"); return nil }
func (im *image) Close() error                 { im.t.Error("closed by the transport"); return io.ErrClosedPipe }

// transfer is what a run does with its image.
func (im *image) transfer(ctx context.Context, m *Member) error {
	im.mu.Lock()
	im.closed = false
	im.mu.Unlock()
	_, err := m.Transfer(ctx, im.job())
	im.mu.Lock()
	defer im.mu.Unlock()
	im.closed = true
	return err
}

// reader reads what an image holds.
type reader struct{ im *image }

func (r reader) Size() int64       { return r.im.Size() }
func (r reader) Hints() disk.Hints { return disk.Hints{} }
func (r reader) Close() error      { return nil }

func (r reader) ReadAt(_ context.Context, p []byte, off int64) error {
	r.im.mu.Lock()
	defer r.im.mu.Unlock()
	if err := disk.CheckRange(r.im.Size(), disk.Range{Off: off, Len: int64(len(p))}); err != nil {
		return err
	}
	copy(p, r.im.bytes[off:])
	return nil
}

func (r reader) Extents(_ context.Context, g disk.Range) ([]disk.Extent, error) {
	return []disk.Extent{{Range: g}}, nil
}

// moved transfers into all images at once, each a member of g, and returns their errors.
// After its last attempt each member is done with the disk.
func moved(t *testing.T, g *Group, images []*image) []error {
	t.Helper()
	errs := make([]error, len(images))
	var wg sync.WaitGroup
	for i, im := range images {
		wg.Go(func() {
			errs[i] = im.transfer(t.Context(), g.Member(i))
			g.Member(i).Settle(2000)
		})
	}
	within(t, wg.Wait)
	return errs
}

// within fails the test if f does not return: somebody waits for nobody.
func within(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(5 * time.Minute):
		t.Fatal("somebody waits for ever")
	}
}
