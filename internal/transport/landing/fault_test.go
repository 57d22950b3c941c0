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

// aDisk is large enough that its copy is seen under way.
func aDisk() lab.Disk { return lab.Disk{Capacity: 48 << 20, Fill: 90, Seed: 8} }

// inject makes the next copy meet a fault at its 24th MiB.
func (r *rig) inject(kind lab.FaultKind) {
	r.Helper()
	_, err := r.lab.Faults().Add(lab.Fault{Kind: kind, Path: "disk.vmdk", At: 24 << 20, Count: 1})
	r.must(err)
	r.Cleanup(r.lab.Faults().Release)
}

// underWay begins to land the first disk at path, and returns when half of it is here and
// the host stands still. The channel has the outcome.
func (r *rig) underWay(tr *landing.Transport, host *odd, path string) <-chan error {
	r.Helper()
	r.inject(lab.FaultCloneStall)
	seen := make(chan bool, 1)
	host.progress = func(int) {
		select {
		case seen <- true:
		default:
		}
	}
	ended := make(chan error, 1)
	_, job := jobOf(path, &r.vm.Disks[0], image.Raw)
	go func() { ended <- r.fill(tr, transport.Disk{VM: r.vm, Disk: &r.vm.Disks[0]}, job) }()
	select {
	case <-seen:
	case err := <-ended:
		r.Fatalf("it ended at once: %v", err)
	}
	return ended
}

// passes checks that an error is one that a migration tries again for, with a remedy.
func (r *rig) passes(err error) {
	r.Helper()
	if k := fault.KindOf(err); err == nil || k != fault.Transient && k != fault.Unreachable || fault.HintOf(err) == "" {
		r.Errorf("%v (%v, remedy: %s)", err, k, fault.HintOf(err))
	}
}

// gone checks that nothing is left on the host in the end.
func (r *rig) gone(tr *landing.Transport, told *complaints) {
	r.Helper()
	r.must(tr.Close())
	if all := told.take(); len(all) > 0 {
		r.Errorf("told: %v", all)
	}
	if r.mounted() || r.recorded() > 0 {
		r.Errorf("mounted %v, %d on record", r.mounted(), r.recorded())
	}
}

// A copy that fails at the host, or that another administrator cancels, is landed again.
func TestCopyThatFailsIsLandedAgain(t *testing.T) {
	for _, kind := range []lab.FaultKind{lab.FaultCloneFail, lab.FaultCloneKill} {
		t.Run(string(kind), func(t *testing.T) {
			r := newRig(t, aDisk())
			tr, told := r.landingOf(&odd{})
			r.inject(kind)
			path := filepath.Join(t.TempDir(), "disk.raw")
			f, job := jobOf(path, &r.vm.Disks[0], image.Raw)
			d := transport.Disk{VM: r.vm, Disk: &r.vm.Disks[0]}
			r.passes(r.fill(tr, d, job))
			r.must(r.fill(tr, d, job))
			r.same(f, 0)
			r.gone(tr, told)
		})
	}
}

func TestCopyThatStandsStillIsEnded(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	r := newRig(t, aDisk())
	path := filepath.Join(t.TempDir(), "disk.raw")
	host := &odd{}
	tr, told := r.landingOf(host, func(o *landing.Options) { o.Stall = 400 * time.Second }) // ten seconds, as soon counts
	err := <-r.underWay(tr, host, path)
	r.passes(err)
	if !strings.Contains(fmt.Sprint(err), "made no progress") {
		t.Errorf("%v", err)
	}
	r.gone(tr, told) // the host's copy was ended, or it would hold the file
	again, told := r.landingOf(&odd{})
	r.same(r.landAt(again, path), 0)
	r.gone(again, told)
}

// A copy that waits for its turn does not stand still.
func TestCopyThatWaitsForItsTurnIsNotEnded(t *testing.T) {
	r := newRig(t, smallDisk())
	const stall = time.Hour
	looked := make(chan bool)
	begun := make(chan bool)
	tr, told := r.landingOf(&odd{turn: func() {
		for range 20 { // several times as often as it takes
			<-looked
		}
		close(begun)
	}}, func(o *landing.Options) {
		o.Stall = stall
		o.After = func(d time.Duration) <-chan time.Time {
			if d < time.Minute { // not of the watch
				return soon(d)
			}
			c := make(chan time.Time, 1)
			select {
			case looked <- true:
				c <- time.Now()
			case <-begun: // it is not looked at any more
			}
			return c
		}
	})
	f, err := r.land(tr, 0, image.Raw)
	r.must(err)
	r.same(f, 0)
	r.gone(tr, told)
}

// The session ends while the task runs: the task is found again by a new one.
func TestSessionLostWhileTheTaskRuns(t *testing.T) {
	r := newRig(t, aDisk())
	path := filepath.Join(t.TempDir(), "disk.raw")
	host := &odd{}
	tr, told := r.landingOf(host)
	ended := r.underWay(tr, host, path)
	r.lab.KillSessions()
	r.lab.Faults().Release()
	r.must(<-ended)
	f, _ := jobOf(path, &r.vm.Disks[0], image.Raw)
	r.same(f, 0)
	r.gone(tr, told)
}

// The host loses power in the middle of a copy, and comes back.
func TestHostLosesPowerInACopy(t *testing.T) {
	for _, remembers := range []bool{true, false} {
		t.Run(fmt.Sprintf("mounts remembered %v", remembers), func(t *testing.T) {
			r := newRig(t, aDisk())
			path := filepath.Join(t.TempDir(), "disk.raw")
			host := &odd{}
			tr, told := r.landingOf(host)
			ended := r.underWay(tr, host, path)
			r.must(r.lab.Stop())
			r.lab.PowerCutHost()
			r.passes(<-ended)
			r.must(r.lab.Resume())
			if remembers {
				r.must(r.lab.BootHost())
			}
			r.same(r.landAt(tr, path), 0)
			r.gone(tr, told)
		})
	}
}

// The network to us is away. For less than the host waits, nobody notices; for longer, its
// copy fails, and is landed again.
func TestNetworkIsAway(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for name, tc := range map[string]struct {
		apd  time.Duration
		when nfsclient.EventKind // it comes back
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
						HeartbeatTimeout: 2 * time.Second, // a busy machine answers within it
					},
					OnEvent: func(_, _ string, e nfsclient.Event) {
						select {
						case events <- e.Kind:
						default:
						}
					},
				},
				VMs: []lab.VM{{Name: "web 01", Disks: []lab.Disk{aDisk()}}},
			})
			path := filepath.Join(t.TempDir(), "disk.raw")
			host := &odd{}
			tr, told := r.landingOf(host)
			ended := r.underWay(tr, host, path)
			r.lab.CutNFS()
			r.lab.Faults().Release()
			until(t, events, tc.when)
			if tc.when == nfsclient.APDTimedOut {
				r.passes(<-ended)
			}
			r.lab.HealNFS()
			f, _ := jobOf(path, &r.vm.Disks[0], image.Raw)
			if tc.when == nfsclient.APDTimedOut {
				until(t, events, nfsclient.APDCleared)
				r.landAt(tr, path)
			} else {
				r.must(<-ended)
			}
			r.same(f, 0)
			r.gone(tr, told)
		})
	}
}

// until waits for an event.
func until(t *testing.T, events <-chan nfsclient.EventKind, want nfsclient.EventKind) {
	t.Helper()
	for {
		select {
		case e := <-events:
			if e == want {
				return
			}
		case <-t.Context().Done():
			t.Fatalf("no %s", want)
		}
	}
}

// A vCenter has several hosts, and refuses to be asked for thin copies.
func TestLandingFromAVCenter(t *testing.T) {
	r := newRigOf(t, lab.Config{VCenter: true, VMs: []lab.VM{{Name: "web 01", Disks: []lab.Disk{aDisk(), smallDisk()}}}})
	tr, told := r.landingOf(&odd{})
	for n := range r.vm.Disks {
		f, err := r.land(tr, n, image.QCOW2)
		r.must(err)
		r.same(f, n)
	}
	if m := r.lab.Mounts(); len(m) != 1 || m[0].Host != string(r.vm.Host) {
		t.Errorf("mounted on %+v, the VM is on %s", m, r.vm.Host)
	}
	r.gone(tr, told)
}

// One disk's copy fails while another of the same host lands: that one is not disturbed.
func TestOneCopyFailsAndTheOtherGoesOn(t *testing.T) {
	r := newRig(t, aDisk(), lab.Disk{Capacity: 32 << 20, Fill: 90, Seed: 9})
	tr, told := r.landingOf(&odd{})
	r.inject(lab.FaultCloneFail)
	var g errgroup.Group
	for n := range r.vm.Disks {
		f, job := jobOf(filepath.Join(t.TempDir(), "disk.raw"), &r.vm.Disks[n], image.Raw)
		d := transport.Disk{VM: r.vm, Disk: &r.vm.Disks[n]}
		g.Go(func() error {
			err := r.fill(tr, d, job)
			if fault.Is(err, fault.Transient) {
				err = r.fill(tr, d, job)
			}
			return err
		})
		defer func() { r.same(f, n) }()
	}
	r.must(g.Wait())
	r.gone(tr, told)
}
