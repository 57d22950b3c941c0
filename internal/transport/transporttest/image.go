package transporttest

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/transport"
)

// image is a disk.Target in memory, with its manifest in a folder of the test, and the expected
// content.
type image struct {
	t    *testing.T
	want disk.Source   // expected content
	path string        // file of the manifest
	log  *manifest.Log // open manifest

	bytes []byte // content so far

	// slow, if set, is called with the number of written bytes after each write. Writes then happen one at
	// a time and need slowMiB for each MiB.
	slow   func(written int64)
	slowly sync.Mutex // held during a slow write

	pace func(ctx context.Context, bytes int64) error // Job.Pace of the transfers; nil for no budget

	mu    sync.Mutex // guards wrote
	wrote int64      // bytes written by WriteAt
}

// slowMiB makes a slow image of 48 MiB need two seconds.
const slowMiB = 40 * time.Millisecond

var _ disk.Target = (*image)(nil)

// newImage returns an empty image. Its manifest is closed when the test ends.
func newImage(t *testing.T, want disk.Source) *image {
	t.Helper()
	im := &image{t: t, want: want, path: filepath.Join(t.TempDir(), "manifest"), bytes: make([]byte, want.Size())}
	log, err := manifest.Create(im.path, manifest.Info{Disk: "disk", Size: want.Size(), Source: "transporttest"})
	if err != nil {
		t.Fatal(err)
	}
	im.log = log
	t.Cleanup(func() { im.log.Close() })
	return im
}

// reopenLog closes the manifest and opens it from its file.
func (im *image) reopenLog() {
	im.t.Helper()
	if err := im.log.Close(); err != nil {
		im.t.Fatal(err)
	}
	log, err := manifest.Open(im.path)
	if err != nil {
		im.t.Fatal(err)
	}
	im.log = log
}

// transfer copies the rig's n-th disk into the image.
func (im *image) transfer(ctx context.Context, rig Environment, n int, progress func(blockcopy.Progress)) (blockcopy.Result, error) {
	return rig.Transport.Transfer(ctx, transport.Job{Disk: rig.Disks[n], Target: im, Manifest: im.log, Progress: progress, Pace: im.pace})
}

// verify fails the test unless the image has the expected content and the manifest is complete.
func (im *image) verify() {
	im.t.Helper()
	if !im.log.Complete() {
		im.t.Errorf("the manifest lacks %d chunks", im.log.Missing())
	}
	check := disk.NewCheck(im.want)
	for off := int64(0); off < im.Size(); off += manifest.ChunkSize {
		chunk := im.bytes[off:min(off+manifest.ChunkSize, im.Size())]
		if err := check.WriteAt(im.t.Context(), chunk, off); err != nil {
			im.t.Fatalf("image: %v", err)
		}
	}
}

// written returns the number of bytes written so far.
func (im *image) written() int64 {
	im.mu.Lock()
	defer im.mu.Unlock()
	return im.wrote
}

// Size is part of disk.Target.
func (im *image) Size() int64 { return int64(len(im.bytes)) }

// WriteAt is part of disk.Target.
func (im *image) WriteAt(_ context.Context, p []byte, off int64) error {
	if err := disk.CheckRange(im.Size(), disk.Range{Off: off, Len: int64(len(p))}); err != nil {
		return err
	}
	copy(im.bytes[off:], p)
	if im.slow == nil {
		im.addWritten(len(p))
		return nil
	}
	im.slowly.Lock()
	defer im.slowly.Unlock()
	time.Sleep(slowMiB * time.Duration(len(p)) >> 20)
	im.slow(im.addWritten(len(p)))
	return nil
}

// addWritten adds n to the written bytes, and returns the sum.
func (im *image) addWritten(n int) int64 {
	im.mu.Lock()
	defer im.mu.Unlock()
	im.wrote += int64(n)
	return im.wrote
}

// Zero is part of disk.Target. Zeros do not count as written.
func (im *image) Zero(_ context.Context, r disk.Range) error {
	if err := disk.CheckRange(im.Size(), r); err != nil {
		return err
	}
	clear(im.bytes[r.Off:r.End()])
	return nil
}

// Sync is part of disk.Target.
func (im *image) Sync(context.Context) error { return nil }

// Hints is part of disk.Target.
func (im *image) Hints() disk.Hints { return disk.Hints{} }

// Finish is part of disk.Target.
func (im *image) Finish(context.Context) error { return nil }

// Close is part of disk.Target.
func (im *image) Close() error { return nil }

// startEnvironment returns a rig, and fails the test if goroutines of it remain when the test ends.
func startEnvironment(t *testing.T, h Harness, disks ...disk.Source) Environment {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() { waitForGoroutines(t, before) }) // runs last
	return h.New(t, disks...)
}

// waitForGoroutines waits until no more than before goroutines run, and fails the test after a minute.
func waitForGoroutines(t *testing.T, before int) {
	deadline := time.Now().Add(time.Minute)
	for runtime.NumGoroutine() > before {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d goroutines more than before:\n%s", runtime.NumGoroutine()-before, buf[:runtime.Stack(buf, true)])
		}
		time.Sleep(time.Millisecond)
	}
}

// SparseFile writes the data of d to a file with holes, and returns its name. The file is deleted when
// the test ends.
func SparseFile(t *testing.T, d disk.Source) string {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "disk.raw"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(d.Size()); err != nil {
		t.Fatal(err)
	}
	extents, err := d.Extents(t.Context(), disk.Range{Len: d.Size()})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range extents {
		if e.Kind == disk.Zero {
			continue
		}
		b := make([]byte, e.Len)
		if err := d.ReadAt(t.Context(), b, e.Off); err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(b, e.Off); err != nil {
			t.Fatal(err)
		}
	}
	return f.Name()
}
