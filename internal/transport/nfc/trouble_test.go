package nfc_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
	"github.com/decamp/decamp/internal/transport/nfc"
	"github.com/decamp/decamp/internal/transport/transporttest"
)

// midway does something once, when a third of the disk is there.
func midway(do func()) func(blockcopy.Progress) {
	once := sync.OnceFunc(do)
	return func(p blockcopy.Progress) {
		if p.Done > p.Size/3 {
			once()
		}
	}
}

// full is a VM with 64 MiB of data.
func full() lab.VM {
	vm := generated(64)
	vm.Disks[0].Fill = 100
	return vm
}

// unfinished keeps the end of a full disk from coming, so that whatever happens midway meets
// a transfer that is not done. The caller calls what it returns after that.
func unfinished(t *testing.T, l *lab.Lab) (goOn func()) {
	t.Helper()
	if _, err := l.Faults().Add(lab.Fault{Kind: lab.FaultNFCStall, At: 63 << 20, Count: 1}); err != nil {
		t.Fatal(err)
	}
	return l.Faults().Clear
}

// bounded moves a disk and fails the test if its host had to send much more than the disk
// holds: what was there before a break stays.
func bounded(t *testing.T, r transporttest.Environment, progress func(blockcopy.Progress)) error {
	t.Helper()
	const underWay = 24 << 20 // four requests of 1 MiB on each of four handles, and samples of the map
	before := labOf(r).Stats().NFC.ReadBytes
	err := move(t, r, progress)
	c := contentOf(t, labOf(r), r.Disks[0].VM.Name)
	if read := labOf(r).Stats().NFC.ReadBytes - before; read > c.Allocated+underWay {
		t.Errorf("%d bytes sent of %d allocated", read, c.Allocated)
	}
	return err
}

// The host goes down with all its sessions and comes back after some have looked for it.
func TestHostRebootsInTheMiddle(t *testing.T) {
	var l *lab.Lab
	var down atomic.Bool
	var rests atomic.Int64
	r := startLab(t, lab.Config{VMs: []lab.VM{full()}}, nfc.Options{
		Sleep: func(ctx context.Context, d time.Duration) error {
			const looks = 8 // of all readers together
			if down.Load() && rests.Add(1) == looks {
				if err := l.Resume(); err != nil {
					t.Error(err)
				}
				down.Store(false)
			}
			return hurriedly(ctx, d)
		},
	})
	l = labOf(r)
	goOn := unfinished(t, l)
	err := bounded(t, r, midway(func() {
		if err := l.Stop(); err != nil {
			t.Error(err)
		}
		goOn()
		down.Store(true)
	}))
	if err != nil || rests.Load() == 0 {
		t.Errorf("%v, after %d rests", err, rests.Load())
	}
}

// The API's session is over when new tickets are needed: one new login is made for all.
func TestSessionExpiresInTheMiddle(t *testing.T) {
	r := startLab(t, lab.Config{VMs: []lab.VM{full()}}, nfc.Options{})
	l := labOf(r)
	before := l.Stats().SOAP["Login"]
	goOn := unfinished(t, l)
	err := bounded(t, r, midway(func() {
		l.KillSessions()
		l.DropNFC()
		goOn()
	}))
	if again := l.Stats().SOAP["Login"] - before; err != nil || again != 1 {
		t.Errorf("%v, with %d logins", err, again)
	}
}

// A VM that moves without its sessions noticing is read to the end over them, and nothing is
// read twice.
func TestVMotionThatSessionsSurvive(t *testing.T) {
	r := startLab(t, lab.Config{VCenter: true, VMs: []lab.VM{full()}}, nfc.Options{})
	l := labOf(r)
	hosts, err := login(t, l, true).Hosts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(hosts, func(h inventory.Host) bool { return h.Ref != r.Disks[0].VM.Host })
	goOn := unfinished(t, l)
	err = bounded(t, r, midway(func() {
		if err := l.MoveVM("web01", hosts[i].Name); err != nil {
			t.Error(err)
		}
		goOn()
	}))
	if err != nil {
		t.Fatal(err)
	}
}

// A running VM whose guest writes all the time: what its snapshot froze is read from a
// delta, seSparse on VMFS and COWD on NFS, that lies on another, while the guest's writes
// go to a third. Every byte is the one of that moment.
func TestFrozenDeltaOfAWritingGuest(t *testing.T) {
	for _, kind := range []string{"VMFS", "NFS"} {
		vm := generated(48)
		vm.PoweredOn, vm.Snapshots = true, []string{"old"}
		vm.Guest.Writes = lab.Writes{Seed: 7, Rate: 10 << 20, Spread: 60}
		r := startLab(t, lab.Config{Datastores: []lab.Datastore{{Name: "datastore1", Type: kind}}, VMs: []lab.VM{vm}}, nfc.Options{})
		l := labOf(r)
		const name = "frozen"
		if err := l.GuestWrites("web01", 200); err != nil {
			t.Fatal(err)
		}
		s := login(t, l, false)
		var err error
		if r.Disks[0].Snapshot, err = s.CreateSnapshot(t.Context(), r.Disks[0].VM.Ref, esx.SnapshotSpec{Name: name}); err != nil {
			t.Fatal(err)
		}
		file, err := s.DiskAtSnapshot(t.Context(), r.Disks[0].Snapshot, r.Disks[0].Disk.Key)
		if err != nil || !strings.Contains(file.Path.File, "-000001") || file.Layers < 2 {
			t.Fatalf("%s: frozen is %v with %d layers, error %v", kind, file.Path, file.Layers, err)
		}
		if err := l.GuestWrites("web01", 200); err != nil {
			t.Fatal(err)
		}
		then, err := l.DiskAt("web01", 0, name)
		if err != nil {
			t.Fatal(err)
		}
		check := disk.NewCheck(content{disk.NewPattern(then.Size), then})
		if _, err := r.Transport.Transfer(t.Context(), transport.Job{Disk: r.Disks[0], Target: check}); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		if err := check.Finish(t.Context()); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// Error records and states that hosts were seen to give, wherever they may stand, and what
// becomes of the transfer when they go on. Which have the reply of zeros behind them makes
// no difference.
func TestEveryErrorRecord(t *testing.T) {
	const (
		memory  = "Failed to allocate the requested 2097176 bytes"
		right   = "NfcAioProcessOpenFileMsg: permission check failed"
		running = "Thin/TBZ/Sparse disks cannot be opened in multiwriter mode"
		locked  = "DiskLib error 16392: Failed to lock the file"
	)
	cases := []struct {
		fault lab.Fault
		want  fault.Kind
		says  string
	}{
		{lab.Fault{Kind: lab.FaultNFCTicket}, fault.Denied, "VirtualMachine.Provisioning.GetVmFiles"},
		{lab.Fault{Kind: lab.FaultNFCRefuse, Method: nfchost.OpSession}, fault.Denied, "530"},
		{lab.Fault{Kind: lab.FaultNFCRefuse}, fault.Denied, "ended the NFC handshake"},
		{lab.Fault{Kind: lab.FaultNFCError, Method: nfchost.OpOpenSession, Code: 5, Text: memory}, fault.Transient, memory},
		{lab.Fault{Kind: lab.FaultNFCError, Method: nfchost.OpOpenSession, Code: 1, Text: "buffers"}, fault.Unsupported, "buffers"},
		{lab.Fault{Kind: lab.FaultNFCError, Method: nfchost.OpOpenFile, Code: 5, Text: memory}, fault.Transient, memory},
		{lab.Fault{Kind: lab.FaultNFCError, Method: nfchost.OpOpenFile, Code: 11, Text: right}, fault.Denied, right},
		{lab.Fault{Kind: lab.FaultNFCError, Method: nfchost.OpOpenFile, Code: 13}, fault.Denied, "13"},
		{lab.Fault{Kind: lab.FaultNFCError, Method: nfchost.OpOpenFile, Code: 1, Text: running}, fault.Conflict, running},
		{lab.Fault{Kind: lab.FaultNFCError, Method: nfchost.OpOpenFile, Code: 1, Text: locked}, fault.Conflict, locked},
		{lab.Fault{Kind: lab.FaultNFCError, Method: nfchost.OpOpenFile, Code: 77, Text: "who knows"}, fault.Conflict, "who knows"},
		{lab.Fault{Kind: lab.FaultNFCStatus, Method: nfchost.OpOpenFile, Code: 5}, fault.Transient, "5"},
		{lab.Fault{Kind: lab.FaultNFCError, Code: 5, Text: memory}, fault.Transient, memory},
		{lab.Fault{Kind: lab.FaultNFCError, Code: 77, Text: "who knows"}, fault.Transient, "who knows"},
		{lab.Fault{Kind: lab.FaultNFCStatus, Code: 5}, fault.Transient, "5"},
	}
	for _, tail := range []nfchost.Tail{nfchost.TailAlways, nfchost.TailNever} {
		r := startLab(t, lab.Config{NFC: lab.NFC{ErrorTail: tail}, VMs: []lab.VM{generated(4)}}, nfc.Options{Handles: 1, Sleep: restless})
		l := labOf(r)
		for _, v := range cases {
			if _, err := l.Faults().Add(v.fault); err != nil {
				t.Fatal(err)
			}
			err := move(t, r, nil)
			l.Faults().Clear()
			if !fault.Is(err, v.want) || !strings.Contains(err.Error()+fault.HintOf(err), v.says) || fault.HintOf(err) == "" {
				t.Errorf("%s %s %d %q: %v (%v), hint %q", v.fault.Kind, v.fault.Method, v.fault.Code, v.fault.Text, err, fault.KindOf(err), fault.HintOf(err))
			}
		}
		if _, err := l.Faults().Add(lab.Fault{Kind: lab.FaultNFCError, Method: nfchost.OpMap, Code: 77, Text: "who knows"}); err != nil {
			t.Fatal(err)
		}
		if err := move(t, r, nil); err != nil { // nothing of all that is left, and a map is not needed
			t.Errorf("afterwards: %v", err)
		}
	}
}

// restless is the back-off without any wait.
func restless(ctx context.Context, _ time.Duration) error { return ctx.Err() }

// Fragments that cannot be unpacked are read again; what never can is Corrupt.
func TestPackedFragmentsThatDoNotUnpack(t *testing.T) {
	for kind, c := range map[lab.FaultKind]wire.Compression{
		lab.FaultNFCSum: wire.Zlib, lab.FaultNFCMatch: wire.FastLZ, lab.FaultNFCRun: wire.SkipZ, lab.FaultNFCFalling: wire.SkipZ,
	} {
		r := startLab(t, lab.Config{VMs: []lab.VM{generated(8)}}, nfc.Options{Handles: 1, Compressions: []wire.Compression{c}})
		l := labOf(r)
		add := func(f lab.Fault) {
			if _, err := l.Faults().Add(f); err != nil {
				t.Fatal(err)
			}
		}
		add(lab.Fault{Kind: kind, Skip: 1, Count: 1})
		if err := move(t, r, nil); err != nil || len(l.Faults().List()) > 0 {
			t.Errorf("%s: %v, left %v", kind, err, l.Faults().List())
		}
		add(lab.Fault{Kind: kind})
		if err := move(t, r, nil); !fault.Is(err, fault.Corrupt) || fault.HintOf(err) == "" {
			t.Errorf("%s for good: %v (%v)", kind, err, fault.KindOf(err))
		}
	}
}

// A host that has hardly any NFC memory left is read with its own small buffers, whether it
// says so or lets sessions wait; one that has none refuses, with the remedy.
func TestHostShortOfNFCMemory(t *testing.T) {
	for policy, none := range map[nfchost.Policy]error{nfchost.RefuseSession: wire.ErrMemory, nfchost.Queue: wire.ErrQueued} {
		var seen nfc.Report
		r := startLab(t, lab.Config{NFC: lab.NFC{Memory: 1 << 20, Exhausted: policy}, VMs: []lab.VM{generated(8)}}, nfc.Options{
			Sleep: restless, Stall: stall,
			Report: func(_ transport.Disk, r nfc.Report) { seen = r },
		})
		if err := move(t, r, nil); err != nil {
			t.Fatalf("%q: %v", policy, err)
		}
		if peak := labOf(r).Stats().NFC.MemoryPeak; peak > 1<<20 || seen.Handles < 1 {
			t.Errorf("%q: %d bytes of memory, %+v", policy, peak, seen)
		}
		if err := labOf(r).SetNFC(lab.NFC{Memory: 64 << 10, Exhausted: policy}); err != nil {
			t.Fatal(err)
		}
		host := login(t, labOf(r), false)
		ticket, err := host.NFCTicket(t.Context(), r.Disks[0].VM.Ref)
		if err != nil {
			t.Fatal(err)
		}
		_, err = wire.Open(t.Context(), ticket, r.Disks[0].Disk.Path.String(), wire.Options{Server: host.Addr(), Setup: stall})
		if !errors.Is(err, none) || !fault.Is(err, fault.Transient) || !strings.Contains(fault.HintOf(err), "--nfc-handles") {
			t.Errorf("%q: %v (%v), hint %q", policy, err, fault.KindOf(err), fault.HintOf(err))
		}
	}
}

// Two decamps, which know nothing of each other, on one host: together they want more than
// it has. All disks get there, whichever way the host has to say no.
func TestTwoDecampsOnOneHost(t *testing.T) {
	for _, policy := range []nfchost.Policy{nfchost.RefuseSession, nfchost.Queue} {
		vm := lab.VM{Name: "web01", ChangeTracking: true}
		for i := range 6 {
			vm.Disks = append(vm.Disks, lab.Disk{Capacity: 16 << 20, Fill: 100, Seed: uint64(i + 1)})
		}
		const limit = 18 << 20 // of 4 MiB a handle; each of the two believes it has them alone
		opts := nfc.Options{Memory: limit, Stall: stall}
		r := startLab(t, lab.Config{NFC: lab.NFC{Memory: limit, Exhausted: policy}, VMs: []lab.VM{vm}}, opts)
		opts.Sleep = hurriedly
		decamps := []*nfc.Transport{nfc.New(login(t, labOf(r), false), opts), nfc.New(login(t, labOf(r), false), opts)}
		var g errgroup.Group
		for i, d := range r.Disks {
			g.Go(func() error {
				_, err := decamps[i%2].Transfer(t.Context(), transport.Job{Disk: d, Target: disk.NewNull(d.Disk.Capacity)})
				return err
			})
		}
		if err := g.Wait(); err != nil {
			t.Errorf("%q: %v", policy, err)
		}
		if peak := labOf(r).Stats().NFC.MemoryPeak; peak > limit {
			t.Errorf("%q: %d bytes of memory", policy, peak)
		}
	}
}

// Every message may be the last for a while: the connection breaks there, or nothing more
// comes. The transfer goes on, and closing does not wait for ever.
func TestSilenceAtEveryMessage(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for _, kind := range []lab.FaultKind{lab.FaultNFCCut, lab.FaultNFCStall} {
		for _, op := range []string{
			nfchost.OpHandshake, nfchost.OpOpenSession, nfchost.OpOpenFile, nfchost.OpMap, nfchost.OpRead, nfchost.OpCloseFile, nfchost.OpCloseSession,
		} {
			t.Run(string(kind)+" "+op, func(t *testing.T) {
				t.Parallel()
				r := startLab(t, lab.Config{VMs: []lab.VM{generated(4)}}, nfc.Options{Handles: 1, Stall: stall})
				l := labOf(r)
				if _, err := l.Faults().Add(lab.Fault{Kind: kind, Method: op, Count: 1}); err != nil {
					t.Fatal(err)
				}
				if err := move(t, r, nil); err != nil {
					t.Error(err)
				}
				if left := l.Faults().List(); len(left) > 0 {
					t.Errorf("it never happened: %+v", left)
				}
			})
		}
	}
}

// A user who waits for the opening of a disk learns soon that port 902 is closed.
func TestOpeningFailsAfterFewRetries(t *testing.T) {
	var rests atomic.Int64
	r := startLab(t, lab.Config{NFC: lab.NFC{Off: true}, VMs: []lab.VM{generated(4)}}, nfc.Options{
		OpenRetries: 2,
		Sleep: func(ctx context.Context, _ time.Duration) error {
			rests.Add(1)
			return ctx.Err()
		},
	})
	if err := move(t, r, nil); !fault.Is(err, fault.Unreachable) || rests.Load() != 2 {
		t.Errorf("%v, after %d rests", err, rests.Load())
	}
}
