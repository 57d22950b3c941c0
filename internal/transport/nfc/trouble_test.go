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

// atOneThird returns a progress function that calls do once, after a third of the disk.
func atOneThird(do func()) func(blockcopy.Progress) {
	once := sync.OnceFunc(do)
	return func(p blockcopy.Progress) {
		if p.Done > p.Size/3 {
			once()
		}
	}
}

// newFullVM returns a VM with 64 MiB of data.
func newFullVM() lab.VM {
	vm := newVM(64)
	vm.Disks[0].Fill = 100
	return vm
}

// stallNearEnd stalls the read of a full disk near its end, so that the transfer is incomplete when the test
// intervenes. The caller calls resume afterwards.
func stallNearEnd(t *testing.T, l *lab.Lab) (resume func()) {
	t.Helper()
	if _, err := l.Faults().Add(lab.Fault{Kind: lab.FaultNFCStall, At: 63 << 20, Count: 1}); err != nil {
		t.Fatal(err)
	}
	return l.Faults().Clear
}

// copyWithoutRereads copies a disk and fails the test if the host sends much more than the allocated bytes: data that
// was read before an interruption is not read again.
func copyWithoutRereads(t *testing.T, r transporttest.Environment, progress func(blockcopy.Progress)) error {
	t.Helper()
	const inFlight = 24 << 20 // four requests of 1 MiB on each of four handles, and samples of the map
	before := labOf(r).Stats().NFC.ReadBytes
	err := copyDisk(t, r, progress)
	c := contentOf(t, labOf(r), r.Disks[0].VM.Name)
	if read := labOf(r).Stats().NFC.ReadBytes - before; read > c.Allocated+inFlight {
		t.Errorf("%d bytes sent, want at most %d", read, c.Allocated+inFlight)
	}
	return err
}

// If the host goes down during a copy, the copy continues when the host is back, after several retries.
func TestCopySurvivesHostReboot(t *testing.T) {
	var l *lab.Lab
	var mu sync.Mutex // guards down and sleeps; held while the host stops
	var down bool
	var sleeps int
	r := startLab(t, lab.Config{VMs: []lab.VM{newFullVM()}}, nfc.Options{
		Sleep: func(ctx context.Context, d time.Duration) error {
			const sleepsUntilBack = 8 // number of back-offs of all readers until the host is back
			mu.Lock()
			if down {
				sleeps++
				if down = sleeps < sleepsUntilBack; !down {
					if err := l.Resume(); err != nil {
						t.Error(err)
					}
				}
			}
			mu.Unlock()
			return fastSleep(ctx, d)
		},
	})
	l = labOf(r)
	resume := stallNearEnd(t, l)
	err := copyWithoutRereads(t, r, atOneThird(func() {
		mu.Lock()
		defer mu.Unlock()
		if err := l.Stop(); err != nil {
			t.Error(err)
		}
		resume()
		down = true
	}))
	if err != nil || sleeps == 0 {
		t.Errorf("error %v after %d back-offs, want success after some", err, sleeps)
	}
}

// If the API session has expired when new tickets are necessary, one new login is made for all handles.
func TestCopySurvivesExpiredSession(t *testing.T) {
	r := startLab(t, lab.Config{VMs: []lab.VM{newFullVM()}}, nfc.Options{})
	l := labOf(r)
	before := l.Stats().SOAP["Login"]
	resume := stallNearEnd(t, l)
	err := copyWithoutRereads(t, r, atOneThird(func() {
		l.KillSessions()
		l.DropNFC()
		resume()
	}))
	if again := l.Stats().SOAP["Login"] - before; err != nil || again != 1 {
		t.Errorf("error %v with %d new logins, want success with 1", err, again)
	}
}

// If the sessions survive a move of the VM, the disk is read to its end over them, and nothing is read again.
func TestSessionsSurviveVMotion(t *testing.T) {
	r := startLab(t, lab.Config{VCenter: true, VMs: []lab.VM{newFullVM()}}, nfc.Options{})
	l := labOf(r)
	hosts, err := logIn(t, l, true).Hosts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(hosts, func(h inventory.Host) bool { return h.Ref != r.Disks[0].VM.Host })
	resume := stallNearEnd(t, l)
	err = copyWithoutRereads(t, r, atOneThird(func() {
		if err := l.MoveVM("web01", hosts[i].Name); err != nil {
			t.Error(err)
		}
		resume()
	}))
	if err != nil {
		t.Fatal(err)
	}
}

// The guest of a running VM writes during the copy. The state at the snapshot is read from a delta on another delta
// (seSparse on VMFS, COWD on NFS), while the guest writes to a third one. Every byte is that of the snapshot.
func TestSnapshotOfWritingGuestIsExact(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for _, kind := range []string{"VMFS", "NFS"} {
		vm := newVM(48)
		vm.PoweredOn, vm.Snapshots = true, []string{"old"}
		vm.Guest.Writes = lab.Writes{Seed: 7, Rate: 10 << 20, Spread: 60}
		r := startLab(t, lab.Config{Datastores: []lab.Datastore{{Name: "datastore1", Type: kind}}, VMs: []lab.VM{vm}}, nfc.Options{})
		l := labOf(r)
		const name = "frozen"
		if err := l.GuestWrites("web01", 200); err != nil {
			t.Fatal(err)
		}
		s := logIn(t, l, false)
		var err error
		if r.Disks[0].Snapshot, err = s.CreateSnapshot(t.Context(), r.Disks[0].VM.Ref, esx.SnapshotSpec{Name: name}); err != nil {
			t.Fatal(err)
		}
		file, err := s.DiskAtSnapshot(t.Context(), r.Disks[0].Snapshot, r.Disks[0].Disk.Key)
		if err != nil || !strings.Contains(file.Path.File, "-000001") || file.Layers < 2 {
			t.Fatalf("%s: the disk at the snapshot is %v with %d layers, error %v", kind, file.Path, file.Layers, err)
		}
		if err := l.GuestWrites("web01", 200); err != nil {
			t.Fatal(err)
		}
		then, err := l.DiskAt("web01", 0, name)
		if err != nil {
			t.Fatal(err)
		}
		check := disk.NewCheck(labContent{disk.NewPattern(then.Size), then})
		if _, err := r.Transport.Transfer(t.Context(), transport.Job{Disk: r.Disks[0], Target: check}); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		if err := check.Finish(t.Context()); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// Each error record and status that hosts are known to send, if it persists, gives a transfer error of the expected
// kind with a hint. It does not matter whether a reply of zeros follows the record.
func TestErrorRecordsHaveKindAndHint(t *testing.T) {
	const (
		memory  = "Failed to allocate the requested 2097176 bytes"
		right   = "NfcAioProcessOpenFileMsg: permission check failed"
		running = "Thin/TBZ/Sparse disks cannot be opened in multiwriter mode"
		locked  = "DiskLib error 16392: Failed to lock the file"
	)
	cases := []struct {
		fault lab.Fault
		want  fault.Kind
		text  string // part of the error or the hint
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
		r := startLab(t, lab.Config{NFC: lab.NFC{ErrorTail: tail}, VMs: []lab.VM{newVM(4)}}, nfc.Options{Handles: 1, Sleep: noSleep})
		l := labOf(r)
		for _, v := range cases {
			if _, err := l.Faults().Add(v.fault); err != nil {
				t.Fatal(err)
			}
			err := copyDisk(t, r, nil)
			l.Faults().Clear()
			if !fault.Is(err, v.want) || !strings.Contains(err.Error()+fault.HintOf(err), v.text) || fault.HintOf(err) == "" {
				t.Errorf("%s %s %d %q: %v (%v), hint %q, want %v with %q", v.fault.Kind, v.fault.Method, v.fault.Code, v.fault.Text, err, fault.KindOf(err), fault.HintOf(err), v.want, v.text)
			}
		}
		if _, err := l.Faults().Add(lab.Fault{Kind: lab.FaultNFCError, Method: nfchost.OpMap, Code: 77, Text: "who knows"}); err != nil {
			t.Fatal(err)
		}
		if err := copyDisk(t, r, nil); err != nil { // no fault is left but that of the map, which is not necessary
			t.Errorf("copy without faults: %v", err)
		}
	}
}

// noSleep is a Sleep that returns at once.
func noSleep(ctx context.Context, _ time.Duration) error { return ctx.Err() }

// Fragments that cannot be decompressed are read again. If that never succeeds, the error is Corrupt.
func TestCorruptFragmentsAreReadAgain(t *testing.T) {
	for kind, c := range map[lab.FaultKind]wire.Compression{
		lab.FaultNFCSum: wire.Zlib, lab.FaultNFCMatch: wire.FastLZ, lab.FaultNFCRun: wire.SkipZ, lab.FaultNFCFalling: wire.SkipZ,
	} {
		r := startLab(t, lab.Config{VMs: []lab.VM{newVM(8)}}, nfc.Options{Handles: 1, Compressions: []wire.Compression{c}})
		l := labOf(r)
		add := func(f lab.Fault) {
			if _, err := l.Faults().Add(f); err != nil {
				t.Fatal(err)
			}
		}
		add(lab.Fault{Kind: kind, Skip: 1, Count: 1})
		if err := copyDisk(t, r, nil); err != nil || len(l.Faults().List()) > 0 {
			t.Errorf("%s once: error %v, remaining faults %v, want neither", kind, err, l.Faults().List())
		}
		add(lab.Fault{Kind: kind})
		if err := copyDisk(t, r, nil); !fault.Is(err, fault.Corrupt) || fault.HintOf(err) == "" {
			t.Errorf("%s in every reply: error %v (%v), want Corrupt and a hint", kind, err, fault.KindOf(err))
		}
	}
}

// A disk on a host with little NFC memory is read with the host's default small buffers, whether the host refuses
// sessions or queues them. If no memory is left, the error is Transient and has a hint.
func TestHostShortOfNFCMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for policy, none := range map[nfchost.Policy]error{nfchost.RefuseSession: wire.ErrMemory, nfchost.Queue: wire.ErrQueued} {
		var seen nfc.Report
		r := startLab(t, lab.Config{NFC: lab.NFC{Memory: 1 << 20, Exhausted: policy}, VMs: []lab.VM{newVM(8)}}, nfc.Options{
			Sleep: noSleep, Stall: stall,
			Report: func(_ transport.Disk, r nfc.Report) { seen = r },
		})
		if err := copyDisk(t, r, nil); err != nil {
			t.Fatalf("%q: %v", policy, err)
		}
		if peak := labOf(r).Stats().NFC.MemoryPeak; peak > 1<<20 || seen.Handles < 1 {
			t.Errorf("%q: peak memory %d bytes, report %+v, want at most 1 MiB and a handle", policy, peak, seen)
		}
		if err := labOf(r).SetNFC(lab.NFC{Memory: 64 << 10, Exhausted: policy}); err != nil {
			t.Fatal(err)
		}
		host := logIn(t, labOf(r), false)
		ticket, err := host.NFCTicket(t.Context(), r.Disks[0].VM.Ref)
		if err != nil {
			t.Fatal(err)
		}
		_, err = wire.Open(t.Context(), ticket, r.Disks[0].Disk.Path.String(), wire.Options{Server: host.Addr(), Setup: stall})
		if !errors.Is(err, none) || !fault.Is(err, fault.Transient) || !strings.Contains(fault.HintOf(err), "--nfc-handles") {
			t.Errorf("%q: got %v (%v), hint %q, want Transient with --nfc-handles", policy, err, fault.KindOf(err), fault.HintOf(err))
		}
	}
}

// Two independent transports together need more NFC memory than the host has. All disks are copied, whether the host
// refuses sessions or queues them.
func TestTwoTransportsShareHostMemory(t *testing.T) {
	for _, policy := range []nfchost.Policy{nfchost.RefuseSession, nfchost.Queue} {
		vm := lab.VM{Name: "web01", ChangeTracking: true}
		for i := range 6 {
			vm.Disks = append(vm.Disks, lab.Disk{Capacity: 16 << 20, Fill: 100, Seed: uint64(i + 1)})
		}
		const limit = 18 << 20 // a handle needs 4 MiB; each transport assumes that it has all of it
		opts := nfc.Options{Memory: limit, Stall: stall}
		r := startLab(t, lab.Config{NFC: lab.NFC{Memory: limit, Exhausted: policy}, VMs: []lab.VM{vm}}, opts)
		opts.Sleep = fastSleep
		decamps := []*nfc.Transport{nfc.New(logIn(t, labOf(r), false), opts), nfc.New(logIn(t, labOf(r), false), opts)}
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
			t.Errorf("%q: peak memory %d bytes, want at most %d", policy, peak, limit)
		}
	}
}

// If the connection breaks or stalls after any message, the transfer continues, and closing does not block.
func TestTransferSurvivesStallAtEveryMessage(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for _, kind := range []lab.FaultKind{lab.FaultNFCCut, lab.FaultNFCStall} {
		for _, op := range []string{
			nfchost.OpHandshake, nfchost.OpOpenSession, nfchost.OpOpenFile, nfchost.OpMap, nfchost.OpRead, nfchost.OpCloseFile, nfchost.OpCloseSession,
		} {
			t.Run(string(kind)+" "+op, func(t *testing.T) {
				t.Parallel()
				r := startLab(t, lab.Config{VMs: []lab.VM{newVM(4)}}, nfc.Options{Handles: 1, Stall: stall})
				l := labOf(r)
				if _, err := l.Faults().Add(lab.Fault{Kind: kind, Method: op, Count: 1}); err != nil {
					t.Fatal(err)
				}
				if err := copyDisk(t, r, nil); err != nil {
					t.Error(err)
				}
				if left := l.Faults().List(); len(left) > 0 {
					t.Errorf("remaining faults %+v, want none", left)
				}
			})
		}
	}
}

// The opening of a disk fails after OpenRetries back-offs if port 902 is closed.
func TestOpeningFailsAfterFewRetries(t *testing.T) {
	var sleeps atomic.Int64
	r := startLab(t, lab.Config{NFC: lab.NFC{Off: true}, VMs: []lab.VM{newVM(4)}}, nfc.Options{
		OpenRetries: 2,
		Sleep: func(ctx context.Context, _ time.Duration) error {
			sleeps.Add(1)
			return ctx.Err()
		},
	})
	if err := copyDisk(t, r, nil); !fault.Is(err, fault.Unreachable) || sleeps.Load() != 2 {
		t.Errorf("error %v after %d back-offs, want Unreachable after 2", err, sleeps.Load())
	}
}
