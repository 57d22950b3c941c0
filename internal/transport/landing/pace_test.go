package landing_test

import (
	"context"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/lab/nfsclient"
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/transport/landing"
)

// landPaced lands the first disk with a bandwidth budget, and compares it.
func (r *rig) landPaced(hold time.Duration, pace func(context.Context, int64) error, free func() bool) {
	r.Helper()
	o := r.landingOptions()
	o.Hold = hold
	tr := landing.New(r.session, o)
	defer func() { r.checkError(tr.Close()) }()
	f, job := newImageJob(filepath.Join(r.TempDir(), "disk.raw"), &r.vm.Disks[0], image.Raw)
	_, _, err := job.Fill(r.Context(), func(ctx context.Context, c *image.Copying) error {
		_, err := tr.Transfer(ctx, transport.Job{
			Disk: transport.Disk{VM: r.vm, Disk: &r.vm.Disks[0]}, Target: c.Target, Manifest: c.Log, ReadBack: job.Opener.ReadUnfinished, Pace: pace, Free: free,
		})
		return err
	})
	r.must(err)
	r.requireSameContent(f, 0)
}

// A budget that grants no bytes slows down the copy, but the copy completes.
func TestCopyCompletesDespiteEmptyBudget(t *testing.T) {
	r := newRig(t, lab.Disk{Capacity: 2 << 20, Fill: 100, Seed: 6})
	r.landPaced(20*time.Millisecond, func(ctx context.Context, _ int64) error {
		<-ctx.Done()
		return ctx.Err()
	}, nil)
}

// Pace is not called while Free reports true. A budget may get a rate at any time.
func TestUnlimitedBudgetSkipsPace(t *testing.T) {
	r := newRig(t, lab.Disk{Capacity: 8 << 20, Fill: 100, Seed: 8})
	var calls, paced atomic.Int64
	r.landPaced(time.Minute, func(_ context.Context, bytes int64) error {
		paced.Add(bytes)
		return nil
	}, func() bool { return calls.Add(1) <= 20 })
	if n := paced.Load(); n == 0 || n > 8<<20-10*64<<10 {
		t.Errorf("Pace was called for %d bytes of 8 MiB, want more than 0, but not those of the first ten writes", n)
	}
}

// While the replies to all WRITEs are delayed, the host's heartbeats are answered.
func TestHeartbeatsDoNotWaitForDelayedWrites(t *testing.T) {
	var mu sync.Mutex
	held, beats, bad := false, 0, []nfsclient.Event{}
	beat := make(chan struct{}) // closed after enough heartbeats
	const enough = 3
	r := newRigOf(t, lab.Config{
		NFS: lab.NFS{
			Times: nfsclient.Times{Heartbeat: 20 * time.Millisecond, HeartbeatTimeout: time.Minute, Silence: time.Minute},
			OnEvent: func(_, _ string, e nfsclient.Event) {
				mu.Lock()
				defer mu.Unlock()
				switch e.Kind {
				case nfsclient.HeartbeatMissed, nfsclient.ConnLost, nfsclient.APDStarted:
					bad = append(bad, e)
				case nfsclient.HeartbeatAnswered:
					if held {
						beats++
					}
					if beats == enough {
						beats++
						close(beat)
					}
				}
			},
		},
		VMs: []lab.VM{{Name: "web 01", Disks: []lab.Disk{{Capacity: 8 << 20, Fill: 100, Seed: 7}}}},
	})
	var alone sync.Once
	r.landPaced(10*time.Minute, func(ctx context.Context, _ int64) error {
		alone.Do(func() { mu.Lock(); held = true; mu.Unlock() })
		select {
		case <-beat:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}, nil)
	mu.Lock()
	defer mu.Unlock()
	if beats <= enough || len(bad) > 0 {
		t.Errorf("%d heartbeats were answered while writes were delayed, want more than %d; bad events: %v", beats, enough, bad)
	}
}
