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

// A running VM is refused as it is; what a snapshot of it froze can be read.
func TestRunningVMIsReadBelowASnapshot(t *testing.T) {
	vm := generated(24)
	vm.PoweredOn = true
	r := startLab(t, lab.Config{VMs: []lab.VM{vm}}, nfc.Options{})
	d := r.Disks[0]
	offer, err := r.Transport.Probe(t.Context(), d)
	if err != nil || offer.Usable || !strings.Contains(offer.Reason, "snapshot") {
		t.Errorf("offer %+v, error %v", offer, err)
	}
	off := *d.VM
	off.Power = inventory.PoweredOff // as if it was started since the inventory was read
	offer, err = r.Transport.Probe(t.Context(), transport.Disk{VM: &off, Disk: d.Disk})
	if err != nil || offer.Usable || !strings.Contains(offer.Reason, "multiwriter") {
		t.Errorf("offer %+v, error %v", offer, err)
	}
	s := login(t, labOf(r), false)
	snapshot, err := s.CreateSnapshot(t.Context(), d.VM.Ref, esx.SnapshotSpec{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	r.Disks[0].Snapshot = snapshot
	offer, err = r.Transport.Probe(t.Context(), r.Disks[0])
	if err != nil || !offer.Usable || !offer.Running || !offer.Map {
		t.Errorf("offer %+v, error %v", offer, err)
	}
	if err := move(t, r, nil); err != nil {
		t.Fatal(err)
	}
}

// NFC's own map of a chain may leave the parents out: then data would be lost without a
// sound. Change tracking is asked instead.
func TestChainsAreNotReadByTheirOwnMap(t *testing.T) {
	vm := generated(24)
	vm.Snapshots = []string{"one", "two"}
	var seen nfc.Report
	r := startLab(t, lab.Config{NFC: lab.NFC{OwnLinkMap: true}, VMs: []lab.VM{vm}}, nfc.Options{
		Report: func(_ transport.Disk, r nfc.Report) { seen = r },
	})
	if err := move(t, r, nil); err != nil {
		t.Fatal(err)
	}
	if n := labOf(r).Stats().NFC.MapQueries; n != 0 || seen.Map != allocation.Trusted {
		t.Errorf("%d queries of NFC's map, report %+v", n, seen)
	}
}

func TestLyingMapLosesNothing(t *testing.T) {
	vm := generated(64)
	vm.Disks[0].Fill = 100
	vm.Disks[0].Hide = []lab.Span{{Offset: 30 << 20, Length: 25 << 20}}
	var seen nfc.Report
	r := startLab(t, lab.Config{VMs: []lab.VM{vm}}, nfc.Options{Report: func(_ transport.Disk, r nfc.Report) { seen = r }})
	if err := move(t, r, nil); err != nil {
		t.Fatal(err)
	}
	if seen.Map != allocation.Dropped {
		t.Errorf("report %+v", seen)
	}
}

func TestOnlyAllocatedBytesAreRead(t *testing.T) {
	vm := generated(256)
	vm.Disks[0].Fill = 25
	r := startLab(t, lab.Config{VMs: []lab.VM{vm}}, nfc.Options{Compressions: []wire.Compression{wire.Stored}})
	if err := move(t, r, nil); err != nil {
		t.Fatal(err)
	}
	c := contentOf(t, labOf(r), "web01")
	if read := labOf(r).Stats().NFC.ReadBytes; read < c.Allocated || float64(read) > 1.02*float64(c.Allocated) {
		t.Errorf("%d bytes read for %d allocated", read, c.Allocated)
	}
}

// However many disks, the host's NFC memory is never asked for more than is ours to take,
// and every disk gets done.
func TestMemoryOfTheHostIsKept(t *testing.T) {
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
		t.Errorf("%d sessions and %d bytes at the most, the host has %d", stats.SessionsPeak, stats.MemoryPeak, limit)
	}
}

// Where others use the host's memory too, a disk does with the handles it can get.
func TestCrowdedHost(t *testing.T) {
	for _, policy := range []nfchost.Policy{nfchost.RefuseSession, nfchost.RefuseRead, nfchost.Queue} {
		var seen nfc.Report
		r := startLab(t, lab.Config{NFC: lab.NFC{Memory: 9 << 20, Exhausted: policy}, VMs: []lab.VM{generated(64)}}, nfc.Options{
			Stall:  stall,
			Report: func(_ transport.Disk, r nfc.Report) { seen = r },
		})
		if err := move(t, r, nil); err != nil {
			t.Fatalf("%q: %v", policy, err)
		}
		if policy != nfchost.RefuseRead && seen.Handles > 2 {
			t.Errorf("%q: report %+v", policy, seen)
		}
	}
}

// All handles break at once in the middle, as when a host restarts its agents or the VM
// moves: the copy goes on where it was.
func TestSessionsDropInTheMiddle(t *testing.T) {
	r := startLab(t, lab.Config{VMs: []lab.VM{generated(64)}}, nfc.Options{})
	drop := midway(labOf(r).DropNFC)
	var read int64
	err := move(t, r, func(p blockcopy.Progress) {
		drop(p)
		read = p.Read
	})
	if err != nil {
		t.Fatal(err)
	}
	if c := contentOf(t, labOf(r), "web01"); read > c.Allocated+c.Size()/4 {
		t.Errorf("%d bytes read of %d allocated", read, c.Allocated)
	}
}

func TestHostsThatCannot(t *testing.T) {
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
		v.cfg.VMs = []lab.VM{generated(1)}
		r := startLab(t, v.cfg, v.opts)
		offer, err := r.Transport.Probe(t.Context(), r.Disks[0])
		if err != nil || offer.Usable || !strings.Contains(offer.Reason, v.want) {
			t.Errorf("%s: offer %+v, error %v", name, offer, err)
		}
	}
	r := startLab(t, lab.Config{NFC: lab.NFC{Off: true}, VMs: []lab.VM{generated(1)}}, nfc.Options{})
	if _, err := r.Transport.Probe(t.Context(), r.Disks[0]); !fault.Is(err, fault.Unreachable) || !strings.Contains(fault.HintOf(err), "nc -vz") {
		t.Errorf("nobody answers: %v (%v)", err, fault.KindOf(err))
	}
}

// tickets keeps what the host handed out.
type tickets struct {
	nfc.Host
	mu   sync.Mutex
	seen []wire.Ticket
}

func (h *tickets) NFCTicket(ctx context.Context, vm inventory.MoRef) (wire.Ticket, error) {
	t, err := h.Host.NFCTicket(ctx, vm)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen = append(h.seen, t)
	return t, err
}

// Every connection has a ticket of its own, and no log or error tells one.
func TestTicketsAreNotTold(t *testing.T) {
	r := startLab(t, lab.Config{VMs: []lab.VM{generated(24)}}, nfc.Options{})
	l := labOf(r)
	for _, kind := range []lab.Fault{
		{Kind: lab.FaultNFCRefuse, Method: nfchost.OpSession, Count: 1}, {Kind: lab.FaultNFCCut, Count: 1},
	} {
		if _, err := l.Faults().Add(kind); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	host := &tickets{Host: login(t, l, false)}
	tr := nfc.New(host, nfc.Options{Sleep: hurriedly, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	if _, err := tr.Transfer(t.Context(), transport.Job{Disk: r.Disks[0], Target: disk.NewNull(24 << 20)}); err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, ticket := range host.seen {
		if used[ticket.Session] || strings.Contains(log.String(), ticket.Session) {
			t.Errorf("ticket %v was used twice or told", ticket)
		}
		used[ticket.Session] = true
	}
	if len(used) < 4 || !strings.Contains(log.String(), "disk opened over NFC") {
		t.Errorf("%d tickets, log:\n%s", len(used), &log)
	}
}

// moving is a vCenter as far as tickets go: they name the host the VM is on now.
type moving struct {
	nfc.Host
	on atomic.Pointer[esx.Session]
}

func (h *moving) NFCTicket(ctx context.Context, vm inventory.MoRef) (wire.Ticket, error) {
	s := h.on.Load()
	t, err := s.NFCTicket(ctx, vm)
	host, port, _ := net.SplitHostPort(t.Addr(s.Addr()))
	t.Host = host
	t.Port, _ = strconv.Atoi(port)
	return t, err
}

// A VM that moved in the middle is read from its new host: nothing but the ticket knows.
func TestVMThatMovesIsReadFromItsNewHost(t *testing.T) {
	old := startLab(t, lab.Config{VMs: []lab.VM{full()}}, nfc.Options{})
	now := startLab(t, lab.Config{VMs: []lab.VM{full()}}, nfc.Options{})
	host := &moving{Host: login(t, labOf(old), false)}
	host.on.Store(login(t, labOf(old), false))
	there := login(t, labOf(now), false)
	goOn := unfinished(t, labOf(old))
	move := midway(func() {
		host.on.Store(there)
		labOf(old).DropNFC()
		goOn()
	})
	var where string
	tr := nfc.New(host, nfc.Options{Sleep: hurriedly, Report: func(_ transport.Disk, r nfc.Report) { where = r.Where }})
	check := disk.NewCheck(contentOf(t, labOf(old), "web01"))
	_, err := tr.Transfer(t.Context(), transport.Job{Disk: old.Disks[0], Target: check, Progress: move})
	if err != nil {
		t.Fatal(err)
	}
	if err := check.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	if read := labOf(now).Stats().NFC.ReadBytes; read == 0 || where != labOf(now).NFCAddr("") {
		t.Errorf("%d bytes from the new host, the last of %s", read, where)
	}
}

// A host whose NFC is on a network of its own is found there: by the tag of its interface,
// by what was asked for, or because a vCenter's ticket names it.
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
		cfg := lab.Config{VCenter: v.vcenter, NFC: lab.NFC{Network: "127.0.0.2"}, VMs: []lab.VM{generated(4)}}
		r := startLab(t, cfg, nfc.Options{Network: v.network})
		offer, err := r.Transport.Probe(t.Context(), r.Disks[0])
		if err != nil || !offer.Usable || !strings.Contains(offer.Reason, "127.0.0.2:") || !strings.Contains(offer.Reason, v.note) {
			t.Errorf("%+v: offer %+v, error %v", v, offer, err)
		}
		if err := move(t, r, nil); err != nil {
			t.Errorf("%+v: %v", v, err)
		}
	}
}

// The disk of a snapshot is read to its end while vMotion moves the running VM. With a chosen interface, its
// address at the new host is used.
func TestVMotionInTheMiddle(t *testing.T) {
	for _, network := range []string{"", "vmk2"} {
		cfg := lab.Config{VCenter: true, VMs: []lab.VM{generated(64)}}
		cfg.VMs[0].PoweredOn = true
		if network != "" {
			cfg.NFC.Network = "127.0.0.2"
		}
		r := startLab(t, cfg, nfc.Options{Network: network})
		l := labOf(r)
		s := login(t, l, true)
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
		err = move(t, r, midway(func() {
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
		r.Disks[0].VM.Host = hosts[i].Ref // read before the VM moved back
		if err := move(t, r, nil); err != nil {
			t.Errorf("network %q, moved before the disk is opened: %v", network, err)
		}
	}
}
