package nfc_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/lab/nfchost"
	wire "github.com/decamp/decamp/internal/nfc"
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/transport/allocation"
	"github.com/decamp/decamp/internal/transport/nfc"
)

// A disk of a running VM is refused, but its state at a snapshot can be read.
func TestRunningVMIsReadBelowASnapshot(t *testing.T) {
	vm := newVM(24)
	vm.PoweredOn = true
	r := startLab(t, lab.Config{VMs: []lab.VM{vm}}, nfc.Options{})
	d := r.Disks[0]
	offer, err := r.Transport.Probe(t.Context(), d)
	if err != nil || offer.Usable || !strings.Contains(offer.Reason, "snapshot") {
		t.Errorf("running VM: offer %+v, error %v, want the need of a snapshot", offer, err)
	}
	off := *d.VM
	off.Power = inventory.PoweredOff // state in an outdated inventory
	offer, err = r.Transport.Probe(t.Context(), transport.Disk{VM: &off, Disk: d.Disk})
	if err != nil || offer.Usable || !strings.Contains(offer.Reason, "multiwriter") {
		t.Errorf("VM started after the inventory: offer %+v, error %v, want the refusal of the host", offer, err)
	}
	s := logIn(t, labOf(r), false)
	snapshot, err := s.CreateSnapshot(t.Context(), d.VM.Ref, esx.SnapshotSpec{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	r.Disks[0].Snapshot = snapshot
	offer, err = r.Transport.Probe(t.Context(), r.Disks[0])
	if err != nil || !offer.Usable || !offer.Running || !offer.Map {
		t.Errorf("snapshot: offer %+v, error %v, want a usable one with a map", offer, err)
	}
	if err := copyDisk(t, r, nil); err != nil {
		t.Fatal(err)
	}
}

// The NFC map of a disk with snapshots may omit its parents, which would lose data. Therefore change tracking is
// used instead.
func TestChainsUseChangeTrackingMap(t *testing.T) {
	vm := newVM(24)
	vm.Snapshots = []string{"one", "two"}
	var seen nfc.Report
	r := startLab(t, lab.Config{NFC: lab.NFC{OwnLinkMap: true}, VMs: []lab.VM{vm}}, nfc.Options{
		Report: func(_ transport.Disk, r nfc.Report) { seen = r },
	})
	if err := copyDisk(t, r, nil); err != nil {
		t.Fatal(err)
	}
	if n := labOf(r).Stats().NFC.MapQueries; n != 0 || seen.Map != allocation.Trusted {
		t.Errorf("%d queries of the NFC map, report %+v, want none and Trusted", n, seen)
	}
}

func TestIncompleteNFCMapLosesNoData(t *testing.T) {
	vm := newVM(64)
	vm.Disks[0].Fill = 100
	vm.Disks[0].Hide = []lab.Span{{Offset: 30 << 20, Length: 25 << 20}}
	var seen nfc.Report
	r := startLab(t, lab.Config{VMs: []lab.VM{vm}}, nfc.Options{Report: func(_ transport.Disk, r nfc.Report) { seen = r }})
	if err := copyDisk(t, r, nil); err != nil {
		t.Fatal(err)
	}
	if seen.Map != allocation.Dropped {
		t.Errorf("report %+v, want Dropped", seen)
	}
}

func TestOnlyAllocatedBytesAreRead(t *testing.T) {
	vm := newVM(256)
	vm.Disks[0].Fill = 25
	r := startLab(t, lab.Config{VMs: []lab.VM{vm}}, nfc.Options{Compressions: []wire.Compression{wire.Stored}})
	if err := copyDisk(t, r, nil); err != nil {
		t.Fatal(err)
	}
	c := contentOf(t, labOf(r), "web01")
	if read := labOf(r).Stats().NFC.ReadBytes; read < c.Allocated || float64(read) > 1.02*float64(c.Allocated) {
		t.Errorf("%d bytes read, want %d to 2 %% more", read, c.Allocated)
	}
}

// Concurrent transfers of many disks stay within the configured NFC memory of the host, and all complete.
func TestTransfersStayWithinNFCMemory(t *testing.T) {
	const handle = 4 << 20 // 4 buffers of 1 MiB
	vm := lab.VM{Name: "web01", ChangeTracking: true}
	for i := range 9 {
		vm.Disks = append(vm.Disks, lab.Disk{Capacity: 16 << 20, Fill: 100, Seed: uint64(i + 1)})
	}
	const limit = 5 * handle
	r := startLab(t, lab.Config{NFC: lab.NFC{Memory: limit}, VMs: []lab.VM{vm}}, nfc.Options{Memory: limit})
	var g errgroup.Group
	for _, d := range r.Disks {
		g.Go(func() error {
			_, err := r.Transport.Transfer(t.Context(), transport.Job{Disk: d, Target: disk.NewNull(d.Disk.Capacity)})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	stats := labOf(r).Stats().NFC
	if stats.MemoryPeak > limit || stats.SessionsPeak > limit/handle {
		t.Errorf("peak of %d sessions and %d bytes, want at most %d bytes", stats.SessionsPeak, stats.MemoryPeak, limit)
	}
}

// If other clients use the host's NFC memory too, a disk is read with fewer handles.
func TestSharedNFCMemoryReducesHandles(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for _, policy := range []nfchost.Policy{nfchost.RefuseSession, nfchost.RefuseRead, nfchost.Queue} {
		var seen nfc.Report
		r := startLab(t, lab.Config{NFC: lab.NFC{Memory: 9 << 20, Exhausted: policy}, VMs: []lab.VM{newVM(64)}}, nfc.Options{
			Stall:  stall * 5,
			Report: func(_ transport.Disk, r nfc.Report) { seen = r },
		})
		if err := copyDisk(t, r, nil); err != nil {
			t.Fatalf("%q: %v", policy, err)
		}
		if policy != nfchost.RefuseRead && seen.Handles > 2 {
			t.Errorf("%q: report %+v, want at most 2 handles", policy, seen)
		}
	}
}

// If all handles break during a copy, as when a host restarts its agents or the VM moves, the copy continues
// without reading much again.
func TestCopySurvivesDroppedSessions(t *testing.T) {
	r := startLab(t, lab.Config{VMs: []lab.VM{newVM(64)}}, nfc.Options{})
	drop := atOneThird(labOf(r).DropNFC)
	var read int64
	err := copyDisk(t, r, func(p blockcopy.Progress) {
		drop(p)
		read = p.Read
	})
	if err != nil {
		t.Fatal(err)
	}
	if c := contentOf(t, labOf(r), "web01"); read > c.Allocated+c.Size()/4 {
		t.Errorf("%d bytes read, too many for %d allocated", read, c.Allocated)
	}
}

func TestUnsupportedNFCHosts(t *testing.T) {
	for name, v := range map[string]struct {
		cfg  lab.Config
		opts nfc.Options
		want string
	}{
		"6.7 with its library of version 2": {lab.Config{Version: "6.7.0"}, nfc.Options{}, "too old"},
		"the old synchronous protocol":      {lab.Config{NFC: lab.NFC{NoVersion: true}}, nfc.Options{}, "too old"},
		"in clear only":                     {lab.Config{NFC: lab.NFC{NoTLS: true}}, nfc.Options{}, "in clear"},
		"another network":                   {lab.Config{}, nfc.Options{Network: "vmk7"}, "vmk7"},
	} {
		v.cfg.VMs = []lab.VM{newVM(1)}
		r := startLab(t, v.cfg, v.opts)
		offer, err := r.Transport.Probe(t.Context(), r.Disks[0])
		if err != nil || offer.Usable || !strings.Contains(offer.Reason, v.want) {
			t.Errorf("%s: offer %+v, error %v, want reason %q", name, offer, err, v.want)
		}
	}
	r := startLab(t, lab.Config{NFC: lab.NFC{Off: true}, VMs: []lab.VM{newVM(1)}}, nfc.Options{})
	if _, err := r.Transport.Probe(t.Context(), r.Disks[0]); !fault.Is(err, fault.Unreachable) || !strings.Contains(fault.HintOf(err), "nc -vz") {
		t.Errorf("closed port: error %v (%v), want Unreachable with a command in its hint", err, fault.KindOf(err))
	}
}

// ticketRecorder is a Host that records its tickets.
type ticketRecorder struct {
	nfc.Host
	mu      sync.Mutex
	tickets []wire.Ticket
}

func (h *ticketRecorder) NFCTicket(ctx context.Context, vm inventory.MoRef) (wire.Ticket, error) {
	t, err := h.Host.NFCTicket(ctx, vm)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tickets = append(h.tickets, t)
	return t, err
}

// Every connection has a separate ticket, and the log contains no ticket.
func TestTicketsAreNotLogged(t *testing.T) {
	r := startLab(t, lab.Config{VMs: []lab.VM{newVM(24)}}, nfc.Options{})
	l := labOf(r)
	for _, kind := range []lab.Fault{
		{Kind: lab.FaultNFCRefuse, Method: nfchost.OpSession, Count: 1}, {Kind: lab.FaultNFCCut, Count: 1},
	} {
		if _, err := l.Faults().Add(kind); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	host := &ticketRecorder{Host: logIn(t, l, false)}
	tr := nfc.New(host, nfc.Options{Sleep: fastSleep, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	if _, err := tr.Transfer(t.Context(), transport.Job{Disk: r.Disks[0], Target: disk.NewNull(24 << 20)}); err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, ticket := range host.tickets {
		if used[ticket.Session] || strings.Contains(log.String(), ticket.Session) {
			t.Errorf("ticket %v was used twice or logged", ticket)
		}
		used[ticket.Session] = true
	}
	if len(used) < 4 || !strings.Contains(log.String(), "disk opened over NFC") {
		t.Errorf("%d tickets, want at least 4; log:\n%s", len(used), &log)
	}
}

// movingHost is a Host whose tickets, like those of a vCenter, name the current host of the VM.
type movingHost struct {
	nfc.Host
	current atomic.Pointer[esx.Session]
}

func (h *movingHost) NFCTicket(ctx context.Context, vm inventory.MoRef) (wire.Ticket, error) {
	s := h.current.Load()
	t, err := s.NFCTicket(ctx, vm)
	host, port, _ := net.SplitHostPort(t.Addr(s.Addr()))
	t.Host = host
	t.Port, _ = strconv.Atoi(port)
	return t, err
}

// If a VM moves during a copy, the rest is read from its new host, which only the ticket names.
func TestMovedVMIsReadFromNewHost(t *testing.T) {
	old := startLab(t, lab.Config{VMs: []lab.VM{newFullVM()}}, nfc.Options{})
	now := startLab(t, lab.Config{VMs: []lab.VM{newFullVM()}}, nfc.Options{})
	host := &movingHost{Host: logIn(t, labOf(old), false)}
	host.current.Store(logIn(t, labOf(old), false))
	newHost := logIn(t, labOf(now), false)
	resume := stallNearEnd(t, labOf(old))
	progress := atOneThird(func() {
		host.current.Store(newHost)
		labOf(old).DropNFC()
		resume()
	})
	var where string
	tr := nfc.New(host, nfc.Options{Sleep: fastSleep, Report: func(_ transport.Disk, r nfc.Report) { where = r.Where }})
	check := disk.NewCheck(contentOf(t, labOf(old), "web01"))
	_, err := tr.Transfer(t.Context(), transport.Job{Disk: old.Disks[0], Target: check, Progress: progress})
	if err != nil {
		t.Fatal(err)
	}
	if err := check.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	if read := labOf(now).Stats().NFC.ReadBytes; read == 0 || where != labOf(now).NFCAddr("") {
		t.Errorf("%d bytes read from the new host, report names %s, want %s", read, where, labOf(now).NFCAddr(""))
	}
}

// The NFC address of a host on a separate network is found by the tag of its interface, by Options.Network, or by
// the ticket of a vCenter.
func TestBackupNetworkIsFound(t *testing.T) {
	for _, v := range []struct {
		network, note string
		vcenter       bool
	}{
		{"", "vmk2, tagged for backup traffic", false},
		{"vmk2", "vmk2, as configured", false},
		{"127.0.0.2/32", "vmk2, as configured", false},
		{"", "vmk2, tagged for backup traffic", true},
	} {
		cfg := lab.Config{VCenter: v.vcenter, NFC: lab.NFC{Network: "127.0.0.2"}, VMs: []lab.VM{newVM(4)}}
		r := startLab(t, cfg, nfc.Options{Network: v.network})
		offer, err := r.Transport.Probe(t.Context(), r.Disks[0])
		if err != nil || !offer.Usable || !strings.Contains(offer.Reason, "127.0.0.2:") || !strings.Contains(offer.Reason, v.note) {
			t.Errorf("%+v: offer %+v, error %v", v, offer, err)
		}
		if err := copyDisk(t, r, nil); err != nil {
			t.Errorf("%+v: %v", v, err)
		}
	}
}

// The disk of a snapshot is read to its end while vMotion moves the running VM. With a chosen interface, its
// address at the new host is used.
func TestSnapshotReadSurvivesVMotion(t *testing.T) {
	for _, network := range []string{"", "vmk2"} {
		cfg := lab.Config{VCenter: true, VMs: []lab.VM{newVM(64)}}
		cfg.VMs[0].PoweredOn = true
		if network != "" {
			cfg.NFC.Network = "127.0.0.2"
		}
		r := startLab(t, cfg, nfc.Options{Network: network})
		l := labOf(r)
		s := logIn(t, l, true)
		snapshot, err := s.CreateSnapshot(t.Context(), r.Disks[0].VM.Ref, esx.SnapshotSpec{Name: "test"})
		if err != nil {
			t.Fatal(err)
		}
		r.Disks[0].Snapshot = snapshot
		hosts, err := s.Hosts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(hosts, func(h inventory.Host) bool { return h.Ref != r.Disks[0].VM.Host })
		err = copyDisk(t, r, atOneThird(func() {
			if err := l.MoveVM("web01", hosts[i].Name); err != nil {
				t.Error(err)
			}
			l.DropNFC()
		}))
		if err != nil {
			t.Errorf("network %q: %v", network, err)
		}
		if err := l.MoveVM("web01", hosts[1-i].Name); err != nil {
			t.Fatal(err)
		}
		r.Disks[0].VM.Host = hosts[i].Ref // inventory from before the VM moved back
		if err := copyDisk(t, r, nil); err != nil {
			t.Errorf("network %q, moved before the disk is opened: %v", network, err)
		}
	}
}
