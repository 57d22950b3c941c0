package landing_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/transport/landing"
)

// lagging is a target whose medium takes its time for each MiB.
type lagging struct {
	disk.Target
	each time.Duration
}

func (l lagging) WriteAt(ctx context.Context, p []byte, off int64) error {
	select {
	case <-time.After(l.each * time.Duration(len(p)) >> 20):
	case <-ctx.Done():
		return ctx.Err()
	}
	return l.Target.WriteAt(ctx, p, off)
}

// timed lands the first disk, and returns what was told last and in the end.
func (r *rig) timed(memory int64, each, hold time.Duration, pace func(context.Context, int64) error) (last blockcopy.Progress, res blockcopy.Result) {
	r.Helper()
	o := r.options()
	o.Memory, o.Hold = memory, hold
	tr := landing.New(r.session, o)
	defer func() { r.check(tr.Close()) }()
	_, job := jobOf(filepath.Join(r.TempDir(), "disk.raw"), &r.vm.Disks[0], image.Raw)
	_, _, err := job.Fill(r.Context(), func(ctx context.Context, c *image.Copying) (err error) {
		res, err = tr.Transfer(ctx, transport.Job{
			Disk: transport.Disk{VM: r.vm, Disk: &r.vm.Disks[0]}, Target: lagging{c.Target, each}, Manifest: c.Log,
			ReadBack: job.Opener.ReadUnfinished, Pace: pace, Progress: func(p blockcopy.Progress) { last = p },
		})
		return err
	})
	r.must(err)
	return last, res
}

// What limits a landing is what the host waited for here; while it waits for nothing, it is the host.
func TestLandingSaysWhatTheHostWaitedFor(t *testing.T) {
	const each = 200 * time.Millisecond // of a MiB: four writers take 2 s for 40, which a busy machine reads in less
	r := newRig(t, lab.Disk{Capacity: 40 << 20, Fill: 100, Seed: 3})
	last, slow := r.timed(8<<20, each, time.Minute, nil)
	if slow.WindowWait < each || slow.PaceWait != 0 || slow.WriterHash == 0 {
		t.Errorf("onto a slow target: %+v", slow.Times)
	}
	if slow.WriteTime < 40*each || slow.Writers < 2 || slow.ReadTime+slow.WindowWait > slow.Elapsed+each {
		t.Errorf("onto a slow target, within %v: %+v", slow.Elapsed, slow.Times)
	}
	if last.Times.Writers == 0 || last.Times.WriteTime == 0 {
		t.Errorf("while it lands nothing is told of it: %+v", last.Times)
	}
	const hold = 50 * time.Millisecond
	_, paced := r.timed(256<<20, 0, hold, func(ctx context.Context, _ int64) error {
		<-ctx.Done()
		return ctx.Err()
	})
	if paced.PaceWait < hold || paced.WindowWait > paced.PaceWait {
		t.Errorf("under a budget that grants nothing: %+v", paced.Times)
	}
}
