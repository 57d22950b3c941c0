package landing_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/transport/landing"
)

// stuckTarget is a target whose writes block until released is closed.
type stuckTarget struct {
	disk.Target
	released chan struct{}
}

func (s stuckTarget) WriteAt(ctx context.Context, p []byte, off int64) error {
	<-s.released
	return s.Target.WriteAt(ctx, p, off)
}

// notifyingHost is a host that calls copied when a copy has ended.
type notifyingHost struct {
	*esx.Session
	copied func()
}

func (h notifyingHost) CopyDisk(ctx context.Context, c esx.DiskCopy) error {
	err := h.Session.CopyDisk(ctx, c)
	h.copied()
	return err
}

// With enough memory the host's copy ends before the first write to the image, and the image is correct after
// the writes.
func TestDiskLandsInMemoryFirst(t *testing.T) {
	r := newRig(t, lab.Disk{Capacity: 32 << 20, Fill: 100, Seed: 9})
	released := make(chan struct{})
	var once sync.Once
	tr := landing.New(notifyingHost{r.session, func() { once.Do(func() { close(released) }) }},
		landing.Options{Dir: r.dir, Ports: r.ports, Memory: 96 << 20})
	defer func() { r.checkError(tr.Close()) }()
	timer := time.AfterFunc(5*time.Minute, func() { once.Do(func() { t.Error("the host's copy waits for the image"); close(released) }) })
	defer timer.Stop()
	d := &r.vm.Disks[0]
	f := image.File{Path: t.TempDir() + "/disk.raw", Format: image.Raw, Size: d.Capacity}
	job := image.Job{Opener: f, Path: f.Path, Manifest: f.Path + ".manifest", Info: manifest.Info{Disk: "disk", Size: d.Capacity, Source: "test"}}
	_, _, err := job.Fill(t.Context(), func(ctx context.Context, c *image.Copying) error {
		_, err := tr.Transfer(ctx, transport.Job{
			Disk: transport.Disk{VM: r.vm, Disk: d}, Target: stuckTarget{c.Target, released}, Manifest: c.Log, ReadBack: f.ReadUnfinished,
		})
		return err
	})
	r.must(err)
	r.requireSameContent(f, 0)
}
