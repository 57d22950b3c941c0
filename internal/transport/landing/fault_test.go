package landing_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/lab/nfsclient"
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/transport/landing"
)

// largeDisk returns a disk whose copy takes long enough for progress reports.
func largeDisk() lab.Disk { return lab.Disk{Capacity: 48 << 20, Fill: 90, Seed: 8} }

// injectFault injects a fault into the next copy, at its 24th MiB.
func (r *rig) injectFault(kind lab.FaultKind) {
	r.Helper()
	_, err := r.lab.Faults().Add(lab.Fault{Kind: kind, Path: "disk.vmdk", At: 24 << 20, Count: 1})
	r.must(err)
	r.Cleanup(r.lab.Faults().Release)
}

// startStalledCopy starts to land the first disk at path, and returns when half of it has landed and the host
// stalls. The channel receives the result.
func (r *rig) startStalledCopy(tr *landing.Transport, host *fakeHost, path string) <-chan error {
	r.Helper()
	r.injectFault(lab.FaultCloneStall)
	seen := make(chan bool, 1)
	host.onProgress = func(int) {
		select {
		case seen <- true:
		default:
		}
	}
	ended := make(chan error, 1)
	_, job := newImageJob(path, &r.vm.Disks[0], image.Raw)
	go func() { ended <- r.fillImage(tr, transport.Disk{VM: r.vm, Disk: &r.vm.Disks[0]}, job) }()
	select {
	case <-seen:
	case err := <-ended:
		r.Fatalf("the copy ended before it stalled: %v", err)
	}
	return ended
}

// requireRetryable checks that err has a hint and a kind for which a migration tries again.
func (r *rig) requireRetryable(err error) {
	r.Helper()
	if k := fault.KindOf(err); err == nil || k != fault.Transient && k != fault.Unreachable || fault.HintOf(err) == "" {
		r.Errorf("error %v of kind %v with hint %q, want Transient or Unreachable and a hint", err, k, fault.HintOf(err))
	}
}

// closeAndRequireClean closes the landing and checks that nothing is left on the host or recorded.
func (r *rig) closeAndRequireClean(tr *landing.Transport, stays *errorList) {
	r.Helper()
	r.must(tr.Close())
	if all := stays.take(); len(all) > 0 {
		r.Errorf("Stays was called with %v", all)
	}
	if r.hasDatastore() || r.recordCount() > 0 {
		r.Errorf("mounted %v, %d records, want neither", r.hasDatastore(), r.recordCount())
	}
}

// A copy that fails on the host, or that another administrator cancels, succeeds when it is landed again.
func TestFailedCopyIsLandedAgain(t *testing.T) {
	for _, kind := range []lab.FaultKind{lab.FaultCloneFail, lab.FaultCloneKill} {
		t.Run(string(kind), func(t *testing.T) {
			r := newRig(t, largeDisk())
			tr, stays := r.newLandingFor(&fakeHost{})
			r.injectFault(kind)
			path := filepath.Join(t.TempDir(), "disk.raw")
			f, job := newImageJob(path, &r.vm.Disks[0], image.Raw)
			d := transport.Disk{VM: r.vm, Disk: &r.vm.Disks[0]}
			r.requireRetryable(r.fillImage(tr, d, job))
			r.must(r.fillImage(tr, d, job))
			r.requireSameContent(f, 0)
			r.closeAndRequireClean(tr, stays)
		})
	}
}

func TestStalledCopyIsEnded(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	r := newRig(t, largeDisk())
	path := filepath.Join(t.TempDir(), "disk.raw")
	host := &fakeHost{}
	tr, stays := r.newLandingFor(host, func(o *landing.Options) { o.Stall = 400 * time.Second }) // ten seconds with fastAfter
	err := <-r.startStalledCopy(tr, host, path)
	r.requireRetryable(err)
	if !strings.Contains(fmt.Sprint(err), "made no progress") {
		t.Errorf("error %v, want one about missing progress", err)
	}
	r.closeAndRequireClean(tr, stays) // a running copy would keep the file open
	again, stays := r.newLandingFor(&fakeHost{})
	r.requireSameContent(r.landAt(again, path), 0)
	r.closeAndRequireClean(again, stays)
}

// A copy that waits for its turn does not count as stalled.
func TestWaitingCopyDoesNotStall(t *testing.T) {
	r := newRig(t, smallDisk())
	const stall = time.Hour
	checked := make(chan bool)
	begun := make(chan bool)
	tr, stays := r.newLandingFor(&fakeHost{beforeCopy: func() {
		for range 20 { // several times the number of checks until a stall
			<-checked
		}
		close(begun)
	}}, func(o *landing.Options) {
		o.Stall = stall
		o.After = func(d time.Duration) <-chan time.Time {
			if d < time.Minute { // not the stall check
				return fastAfter(d)
			}
			c := make(chan time.Time, 1)
			select {
			case checked <- true:
				c <- time.Now()
			case <-begun: // the copy has begun
			}
			return c
		}
	})
	f, err := r.landDisk(tr, 0, image.Raw)
	r.must(err)
	r.requireSameContent(f, 0)
	r.closeAndRequireClean(tr, stays)
}

// If the session ends while the task runs, a new session finds the task.
func TestSessionLostWhileTheTaskRuns(t *testing.T) {
	r := newRig(t, largeDisk())
	path := filepath.Join(t.TempDir(), "disk.raw")
	host := &fakeHost{}
	tr, stays := r.newLandingFor(host)
	ended := r.startStalledCopy(tr, host, path)
	r.lab.KillSessions()
	r.lab.Faults().Release()
	r.must(<-ended)
	f, _ := newImageJob(path, &r.vm.Disks[0], image.Raw)
	r.requireSameContent(f, 0)
	r.closeAndRequireClean(tr, stays)
}

// If the host loses power during a copy, the disk lands after the host has restarted.
func TestHostLosesPowerInACopy(t *testing.T) {
	for _, remembers := range []bool{true, false} {
		t.Run(fmt.Sprintf("mounts remembered %v", remembers), func(t *testing.T) {
			r := newRig(t, largeDisk())
			path := filepath.Join(t.TempDir(), "disk.raw")
			host := &fakeHost{}
			tr, stays := r.newLandingFor(host)
			ended := r.startStalledCopy(tr, host, path)
			r.must(r.lab.Stop())
			r.lab.PowerCutHost()
			r.requireRetryable(<-ended)
			r.must(r.lab.Resume())
			if remembers {
				r.must(r.lab.BootHost())
			}
			r.requireSameContent(r.landAt(tr, path), 0)
			r.closeAndRequireClean(tr, stays)
		})
	}
}

// A network outage that is shorter than the host's APD timeout does not disturb the copy. After a longer one
// the copy fails, and the disk is landed again.
func TestLandingSurvivesNetworkOutage(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for name, tc := range map[string]struct {
		apd  time.Duration
		when nfsclient.EventKind // event at which the network returns
	}{
		"shorter than APD": {time.Hour, nfsclient.APDStarted},
		"longer than APD":  {time.Second, nfsclient.APDTimedOut},
	} {
		t.Run(name, func(t *testing.T) {
			events := make(chan nfsclient.EventKind, 1000)
			r := newRigOf(t, lab.Config{
				NFS: lab.NFS{
					Times: nfsclient.Times{
						Heartbeat: 50 * time.Millisecond, Reconnect: 20 * time.Millisecond, APD: tc.apd, GiveUp: time.Hour,
						HeartbeatTimeout: 2 * time.Second, // long enough for a busy machine
					},
					OnEvent: func(_, _ string, e nfsclient.Event) {
						select {
						case events <- e.Kind:
						default:
						}
					},
				},
				VMs: []lab.VM{{Name: "web 01", Disks: []lab.Disk{largeDisk()}}},
			})
			path := filepath.Join(t.TempDir(), "disk.raw")
			host := &fakeHost{}
			tr, stays := r.newLandingFor(host)
			ended := r.startStalledCopy(tr, host, path)
			r.lab.CutNFS()
			r.lab.Faults().Release()
			waitForEvent(t, events, tc.when)
			if tc.when == nfsclient.APDTimedOut {
				r.requireRetryable(<-ended)
			}
			r.lab.HealNFS()
			f, _ := newImageJob(path, &r.vm.Disks[0], image.Raw)
			if tc.when == nfsclient.APDTimedOut {
				waitForEvent(t, events, nfsclient.APDCleared)
				r.landAt(tr, path)
			} else {
				r.must(<-ended)
			}
			r.requireSameContent(f, 0)
			r.closeAndRequireClean(tr, stays)
		})
	}
}

// waitForEvent waits for an event.
func waitForEvent(t *testing.T, events <-chan nfsclient.EventKind, want nfsclient.EventKind) {
	t.Helper()
	for {
		select {
		case e := <-events:
			if e == want {
				return
			}
		case <-t.Context().Done():
			t.Fatalf("no event %s", want)
		}
	}
}

// With a vCenter, which has several hosts and refuses thin copies, the datastore is mounted only on the host of the VM.
func TestLandingFromVCenter(t *testing.T) {
	r := newRigOf(t, lab.Config{VCenter: true, VMs: []lab.VM{{Name: "web 01", Disks: []lab.Disk{largeDisk(), smallDisk()}}}})
	tr, stays := r.newLandingFor(&fakeHost{})
	for n := range r.vm.Disks {
		f, err := r.landDisk(tr, n, image.QCOW2)
		r.must(err)
		r.requireSameContent(f, n)
	}
	if m := r.lab.Mounts(); len(m) != 1 || m[0].Host != string(r.vm.Host) {
		t.Errorf("mounts %+v, want one on %s, the host of the VM", m, r.vm.Host)
	}
	r.closeAndRequireClean(tr, stays)
}

// The failure of one disk's copy does not disturb another copy of the same host.
func TestFailedCopyDoesNotDisturbOthers(t *testing.T) {
	r := newRig(t, largeDisk(), lab.Disk{Capacity: 32 << 20, Fill: 90, Seed: 9})
	tr, stays := r.newLandingFor(&fakeHost{})
	r.injectFault(lab.FaultCloneFail)
	var g errgroup.Group
	for n := range r.vm.Disks {
		f, job := newImageJob(filepath.Join(t.TempDir(), "disk.raw"), &r.vm.Disks[n], image.Raw)
		d := transport.Disk{VM: r.vm, Disk: &r.vm.Disks[n]}
		g.Go(func() error {
			err := r.fillImage(tr, d, job)
			if fault.Is(err, fault.Transient) {
				err = r.fillImage(tr, d, job)
			}
			return err
		})
		defer func() { r.requireSameContent(f, n) }()
	}
	r.must(g.Wait())
	r.closeAndRequireClean(tr, stays)
}
