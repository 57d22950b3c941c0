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

// slowTarget is a target whose writes take a time for each MiB.
type slowTarget struct {
	disk.Target
	each time.Duration
}

func (l slowTarget) WriteAt(ctx context.Context, p []byte, off int64) error {
	select {
	case <-time.After(l.each * time.Duration(len(p)) >> 20):
	case <-ctx.Done():
		return ctx.Err()
	}
	return l.Target.WriteAt(ctx, p, off)
}

// landTimed lands the first disk, and returns the last progress and the result.
func (r *rig) landTimed(memory int64, each, hold time.Duration, pace func(context.Context, int64) error) (last blockcopy.Progress, res blockcopy.Result) {
	r.Helper()
	o := r.landingOptions()
	o.Memory, o.Hold = memory, hold
	tr := landing.New(r.session, o)
	defer func() { r.checkError(tr.Close()) }()
	_, job := newImageJob(filepath.Join(r.TempDir(), "disk.raw"), &r.vm.Disks[0], image.Raw)
	_, _, err := job.Fill(r.Context(), func(ctx context.Context, c *image.Copying) (err error) {
		res, err = tr.Transfer(ctx, transport.Job{
			Disk: transport.Disk{VM: r.vm, Disk: &r.vm.Disks[0]}, Target: slowTarget{c.Target, each}, Manifest: c.Log,
			ReadBack: job.Opener.ReadUnfinished, Pace: pace, Progress: func(p blockcopy.Progress) { last = p },
		})
		return err
	})
	r.must(err)
	return last, res
}

// The times of a landing show the reason for which the host's writes waited: the target or the budget.
func TestTimesShowReasonOfWait(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	const each = 500 * time.Millisecond // time for a MiB: four writers take 5 s for the disk, and reads are faster
	r := newRig(t, lab.Disk{Capacity: 40 << 20, Fill: 100, Seed: 3})
	last, slow := r.landTimed(8<<20, each, time.Minute, nil)
	if slow.WindowWait < each || slow.PaceWait != 0 || slow.WriterHash == 0 {
		t.Errorf("slow target: times %+v, want a window wait and no pace wait", slow.Times)
	}
	if slow.WriteTime < 40*each || slow.Writers < 2 || slow.ReadTime+slow.WindowWait > slow.Elapsed+each {
		t.Errorf("slow target, elapsed %v: times %+v", slow.Elapsed, slow.Times)
	}
	if last.Times.Writers == 0 || last.Times.WriteTime == 0 {
		t.Errorf("last progress: times %+v, want writers and a write time", last.Times)
	}
	const hold = 50 * time.Millisecond
	_, paced := r.landTimed(256<<20, 0, hold, func(ctx context.Context, _ int64) error {
		<-ctx.Done()
		return ctx.Err()
	})
	if paced.PaceWait < hold || paced.WindowWait > paced.PaceWait {
		t.Errorf("budget that grants no bytes: times %+v, want mostly a pace wait", paced.Times)
	}
}
