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

// stuck is a target that takes nothing until it is released.
type stuck struct {
	disk.Target
	released chan struct{}
}

func (s stuck) WriteAt(ctx context.Context, p []byte, off int64) error {
	<-s.released
	return s.Target.WriteAt(ctx, p, off)
}

// telling is a host that says when a copy has ended there.
type telling struct {
	*esx.Session
	copied func()
}

func (h telling) CopyDisk(ctx context.Context, c esx.DiskCopy) error {
	err := h.Session.CopyDisk(ctx, c)
	h.copied()
	return err
}

// TestDiskLandsInMemoryFirst: with memory enough the host is done before the image has
// taken a byte, and the disk is right once it has.
func TestDiskLandsInMemoryFirst(t *testing.T) {
	r := newRig(t, lab.Disk{Capacity: 32 << 20, Fill: 100, Seed: 9})
	released := make(chan struct{})
	var once sync.Once
	tr := landing.New(telling{r.session, func() { once.Do(func() { close(released) }) }},
		landing.Options{Dir: r.dir, Ports: r.ports, Memory: 96 << 20})
	defer func() { r.check(tr.Close()) }()
	give := time.AfterFunc(5*time.Minute, func() { once.Do(func() { t.Error("the host waits for the image"); close(released) }) })
	defer give.Stop()
	d := &r.vm.Disks[0]
	f := image.File{Path: t.TempDir() + "/disk.raw", Format: image.Raw, Size: d.Capacity}
	job := image.Job{Opener: f, Path: f.Path, Manifest: f.Path + ".manifest", Info: manifest.Info{Disk: "disk", Size: d.Capacity, Source: "test"}}
	_, _, err := job.Fill(t.Context(), func(ctx context.Context, c *image.Copying) error {
		_, err := tr.Transfer(ctx, transport.Job{
			Disk: transport.Disk{VM: r.vm, Disk: d}, Target: stuck{c.Target, released}, Manifest: c.Log, ReadBack: f.ReadUnfinished,
		})
		return err
	})
	r.must(err)
	r.same(f, 0)
}
