package nfc_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/lab/nfchost"
	wire "github.com/decamp/decamp/internal/nfc"
	"github.com/decamp/decamp/internal/transport/nfc"
	"github.com/decamp/decamp/internal/transport/transporttest"
)

// slowNFC limits a host so that the read of a disk takes half a second, and faults occur during reads.
var slowNFC = lab.NFC{HostRate: 96 << 20}

// openDisk opens the first disk of an environment for random access.
func openDisk(t *testing.T, r transporttest.Environment) *nfc.Source {
	t.Helper()
	src, err := r.Transport.(*nfc.Transport).Open(t.Context(), r.Disks[0])
	if err != nil {
		t.Fatal(err)
	}
	return src
}

// Reads of an opened disk, as those of the clients of an export, succeed despite failures of sessions, the login or
// the host.
func TestReadersOfAnOpenedDiskSurvive(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	var down atomic.Bool
	var stopping sync.Mutex // held while the host stops, so that retries wait
	var l *lab.Lab
	back := func(ctx context.Context, d time.Duration) error { // the first back-off lasts until the host is back
		stopping.Lock()
		if down.CompareAndSwap(true, false) {
			if err := l.Resume(); err != nil {
				t.Error(err)
			}
		}
		stopping.Unlock()
		return fastSleep(ctx, d)
	}
	for name, v := range map[string]struct {
		vcenter bool
		trouble func() error
	}{
		"dropped sessions": {false, func() error { l.DropNFC(); return nil }},
		"an expired login": {false, func() error { l.KillSessions(); l.DropNFC(); return nil }},
		"a restart of the host": {false, func() error {
			stopping.Lock()
			defer stopping.Unlock()
			down.Store(true)
			return l.Stop()
		}},
		"vMotion": {true, func() error {
			hosts, err := logIn(t, l, true).Hosts(t.Context())
			if err != nil {
				return err
			}
			vm, err := logIn(t, l, true).VM(t.Context(), "web01")
			if err != nil {
				return err
			}
			i := slices.IndexFunc(hosts, func(h inventory.Host) bool { return h.Ref != vm.Host })
			err = l.MoveVM("web01", hosts[i].Name)
			l.DropNFC()
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := startLab(t, lab.Config{VCenter: v.vcenter, NFC: slowNFC, VMs: []lab.VM{newFullVM()}}, nfc.Options{Sleep: back, Stall: stall * 5})
			l = labOf(r)
			src := openDisk(t, r)
			transporttest.ReadThrough(t, src, contentOf(t, l, "web01"), func() {
				if err := v.trouble(); err != nil {
					t.Error(err)
				}
			})
			if report := src.Report(); report.Failures == 0 || down.Load() {
				t.Errorf("the trouble disturbed no read: %+v", report)
			}
		})
	}
}

// If its host runs short of memory, a disk continues with one small session. Later it uses more and larger sessions
// again.
func TestReadersOfAnOpenedDiskShareScarceMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for _, policy := range []nfchost.Policy{nfchost.RefuseSession, nfchost.Queue} {
		var late atomic.Int64 // offset of the transport's clock, in ns
		r := startLab(t, lab.Config{NFC: slowNFC, VMs: []lab.VM{newFullVM()}}, nfc.Options{
			Compressions: []wire.Compression{wire.Stored}, Stall: stall * 5,
			Now: func() time.Time { return time.Now().Add(time.Duration(late.Load())) },
		})
		l := labOf(r)
		set := func(n lab.NFC) {
			if err := l.SetNFC(n); err != nil {
				t.Error(err)
			}
		}
		short := slowNFC
		short.Memory, short.Exhausted = 300<<10, policy // enough for one session with the host's default buffers
		var few int64
		transporttest.ReadThrough(t, openDisk(t, r), contentOf(t, l, "web01"), func() {
			set(short)
			l.DropNFC()
		}, func() {
			few = l.Stats().NFC.SessionsOpen
			set(slowNFC)
			l.ResetStats()
			late.Store(int64(20 * time.Minute))
		})
		if after := l.Stats().NFC; few > 1 || after.SessionsPeak < 2 || after.MemoryPeak < 2*(4<<20) {
			t.Errorf("%q: %d sessions while memory was short, later a peak of %d with %d bytes", policy, few, after.SessionsPeak, after.MemoryPeak)
		}
	}
}
