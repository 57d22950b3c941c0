package nfc_test

import (
	"context"
	"slices"
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

// busy is a host whose disk is read for half a second, so that its troubles meet reads.
var busy = lab.NFC{HostRate: 96 << 20}

// openOf opens the first disk of an environment for random access.
func openOf(t *testing.T, r transporttest.Environment) *nfc.Source {
	t.Helper()
	src, err := r.Transport.(*nfc.Transport).Open(t.Context(), r.Disks[0])
	if err != nil {
		t.Fatal(err)
	}
	return src
}

// An opened disk has readers that know nothing of sessions, such as the clients of an export. Whatever
// happens to the sessions, no read fails.
func TestReadersOfAnOpenedDiskSurvive(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	var down atomic.Bool
	var l *lab.Lab
	back := func(ctx context.Context, d time.Duration) error { // the first back-off lasts until the host is back
		if down.CompareAndSwap(true, false) {
			if err := l.Resume(); err != nil {
				t.Error(err)
			}
		}
		return hurriedly(ctx, d)
	}
	for name, v := range map[string]struct {
		vcenter bool
		trouble func() error
	}{
		"dropped sessions": {false, func() error { l.DropNFC(); return nil }},
		"an expired login": {false, func() error { l.KillSessions(); l.DropNFC(); return nil }},
		"a restart of the host": {false, func() error {
			err := l.Stop()
			down.Store(true)
			return err
		}},
		"vMotion": {true, func() error {
			hosts, err := login(t, l, true).Hosts(t.Context())
			if err != nil {
				return err
			}
			vm, err := login(t, l, true).VM(t.Context(), "web01")
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
			r := startLab(t, lab.Config{VCenter: v.vcenter, NFC: busy, VMs: []lab.VM{full()}}, nfc.Options{Sleep: back, Stall: stall * 5})
			l = labOf(r)
			src := openOf(t, r)
			transporttest.ReadThrough(t, src, contentOf(t, l, "web01"), func() {
				if err := v.trouble(); err != nil {
					t.Error(err)
				}
			})
			if report := src.Report(); report.Failures == 0 || down.Load() {
				t.Errorf("the trouble met no read: %+v", report)
			}
		})
	}
}

// A disk continues with one small session if its host becomes short of memory, and has more and larger
// ones again later.
func TestReadersOfAnOpenedDiskShareScarceMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for _, policy := range []nfchost.Policy{nfchost.RefuseSession, nfchost.Queue} {
		var late atomic.Int64 // how much later it is, for the transport
		r := startLab(t, lab.Config{NFC: busy, VMs: []lab.VM{full()}}, nfc.Options{
			Compressions: []wire.Compression{wire.Stored}, Stall: stall,
			Now: func() time.Time { return time.Now().Add(time.Duration(late.Load())) },
		})
		l := labOf(r)
		set := func(n lab.NFC) {
			if err := l.SetNFC(n); err != nil {
				t.Error(err)
			}
		}
		short := busy
		short.Memory, short.Exhausted = 300<<10, policy // for one session with the host's default buffers
		var few int64
		transporttest.ReadThrough(t, openOf(t, r), contentOf(t, l, "web01"), func() {
			set(short)
			l.DropNFC()
		}, func() {
			few = l.Stats().NFC.SessionsOpen
			set(busy)
			l.ResetStats()
			late.Store(int64(20 * time.Minute))
		})
		if after := l.Stats().NFC; few > 1 || after.SessionsPeak < 2 || after.MemoryPeak < 2*(4<<20) {
			t.Errorf("%q: %d sessions while memory was short, and %d with %d bytes afterwards", policy, few, after.SessionsPeak, after.MemoryPeak)
		}
	}
}
