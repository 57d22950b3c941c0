package nfc_test

import (
	"context"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/lab/nfchost"
	wire "github.com/decamp/decamp/internal/nfc"
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/transport/nfc"
	"github.com/decamp/decamp/internal/transport/transporttest"
)

// TestConformance runs the suite against the emulated ESXi, through a real session. The NFC of the lab was written
// from documented behaviour of ESXi, independently of this client.
func TestConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	transporttest.Run(t, transporttest.Harness{
		New: newEnvironment,
		Passes: []transporttest.Trouble{
			injectedFault(lab.Fault{Kind: lab.FaultNFCCut, Skip: 3, Count: 3}),
			injectedFault(lab.Fault{Kind: lab.FaultNFCStall, Skip: 3, Count: 2}),
			injectedFault(lab.Fault{Kind: lab.FaultNFCError, Code: 5, Text: "failed to allocate the requested 1048600 bytes", Skip: 3, Count: 2}),
			injectedFault(lab.Fault{Kind: lab.FaultNFCStatus, Code: 9, Skip: 3, Count: 2}),
			injectedFault(lab.Fault{Kind: lab.FaultNFCMagic, Skip: 3, Count: 1}),
			injectedFault(lab.Fault{Kind: lab.FaultNFCOpID, Skip: 3, Count: 1}),
			injectedFault(lab.Fault{Kind: lab.FaultNFCRange, Skip: 3, Count: 1}),
			injectedFault(lab.Fault{Kind: lab.FaultNFCOverlap, Skip: 3, Count: 1}),
			injectedFault(lab.Fault{Kind: lab.FaultNFCEmpty, Skip: 3, Count: 1}),
			injectedFault(lab.Fault{Kind: lab.FaultNFCLength, Skip: 3, Count: 1}),
			injectedFault(lab.Fault{Kind: lab.FaultNFCHuge, Skip: 3, Count: 1}),
			injectedFault(lab.Fault{Kind: lab.FaultNFCRefuse, Method: nfchost.OpHandshake, Count: 1}),
			injectedFault(lab.Fault{Kind: lab.FaultNFCRefuse, Method: nfchost.OpSession, Count: 1}),
			injectedFault(lab.Fault{Kind: lab.FaultNFCThumbprint, Count: 1}),
			injectedFault(lab.Fault{Kind: lab.FaultNFCCut, Method: nfchost.OpOpenFile, Count: 2}),
			{Name: "an expired session", Start: func(_ *testing.T, r transporttest.Environment) func() {
				labOf(r).KillSessions()
				return func() {}
			}},
		},
		Stops: []transporttest.Trouble{
			lastingFault(lab.Fault{Kind: lab.FaultNFCError, Code: 5, Skip: 3}, fault.Transient),
			lastingFault(lab.Fault{Kind: lab.FaultNFCCut, Skip: 3}, fault.Transient),
			lastingFault(lab.Fault{Kind: lab.FaultNFCMagic, Skip: 3}, fault.Corrupt),
			lastingFault(lab.Fault{Kind: lab.FaultNFCOverlap, Skip: 3}, fault.Corrupt),
			lastingFault(lab.Fault{Kind: lab.FaultNFCRefuse, Method: nfchost.OpSession}, fault.Denied),
			lastingFault(lab.Fault{Kind: lab.FaultNFCOtherCert}, fault.Denied),
			lastingFault(lab.Fault{Kind: lab.FaultNFCThumbprint}, fault.Denied),
			lastingFault(lab.Fault{Kind: lab.FaultNFCTicket}, fault.Denied),
			lastingFault(lab.Fault{Kind: lab.FaultNFCError, Method: nfchost.OpOpenFile, Code: 1, Text: "DiskLib error 16392: Failed to lock the file"}, fault.Conflict),
			lastingFault(lab.Fault{Kind: lab.FaultNFCError, Method: nfchost.OpOpenFile, Code: 11, Text: "NfcAioProcessOpenFileMsg: permission check failed"}, fault.Denied),
		},
	})
}

func injectedFault(f lab.Fault) transporttest.Trouble {
	return transporttest.Trouble{Name: strings.Join([]string{string(f.Kind), f.Method}, " "), Start: func(t *testing.T, r transporttest.Environment) func() {
		l := labOf(r)
		if _, err := l.Faults().Add(f); err != nil {
			t.Fatal(err)
		}
		return func() {
			if left := l.Faults().List(); f.Count > 0 && len(left) > 0 {
				t.Errorf("%d faults did not occur", left[0].Count)
			}
			l.Faults().Clear()
		}
	}}
}

func lastingFault(f lab.Fault, kind fault.Kind) transporttest.Trouble {
	tr := injectedFault(f)
	tr.Name, tr.Kind = tr.Name+" "+strconv.FormatUint(f.Code, 10), kind
	return tr
}

func labOf(r transporttest.Environment) *lab.Lab { return r.Data.(*lab.Lab) }

// newEnvironment starts a lab with one VM that has the given disks, and logs in.
func newEnvironment(t *testing.T, disks ...disk.Source) transporttest.Environment {
	vm := lab.VM{Name: "web 01", ChangeTracking: true}
	for _, d := range disks {
		vm.Disks = append(vm.Disks, lab.Disk{File: transporttest.SparseFile(t, d)})
	}
	return startLab(t, lab.Config{VMs: []lab.VM{vm}}, nfc.Options{Stall: stall, Sleep: fastSleep})
}

// stall is short enough for tests with silent hosts, and long enough for replies of a lab on a busy machine.
const stall = 2 * time.Second

// fastSleep is a Sleep that is a hundred times shorter.
func fastSleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d / 100):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// startLab starts a lab, logs in, and returns an environment with the disks of the first VM.
func startLab(t *testing.T, cfg lab.Config, opts nfc.Options) transporttest.Environment {
	t.Helper()
	l, err := lab.Start(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	s := logIn(t, l, cfg.VCenter)
	vm, err := s.VM(t.Context(), cfg.VMs[0].Name)
	if err != nil {
		t.Fatal(err)
	}
	if opts.Sleep == nil {
		opts.Sleep = fastSleep
	}
	tr := nfc.New(s, opts)
	t.Cleanup(func() { tr.Close() })
	rig := transporttest.Environment{Transport: tr, Data: l}
	for i := range vm.Disks {
		rig.Disks = append(rig.Disks, transport.Disk{VM: vm, Disk: &vm.Disks[i]})
	}
	return rig
}

func logIn(t *testing.T, l *lab.Lab, vcenter bool) *esx.Session {
	t.Helper()
	scheme := "esxi"
	if vcenter {
		scheme = "vcenter"
	}
	s, err := esx.Dial(t.Context(), esx.Config{
		URL:         &url.URL{Scheme: scheme, User: url.User(l.User()), Host: l.Addr()},
		Password:    func(context.Context) (esx.Secret, error) { return esx.Secret(l.Password()), nil },
		Fingerprint: l.Fingerprint(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// labContent is the content of a lab's disk as a Source to compare with.
type labContent struct {
	*disk.Pattern // provides all methods but Size and ReadAt
	lab.DiskContent
}

func contentOf(t *testing.T, l *lab.Lab, vm string) labContent {
	t.Helper()
	c, err := l.Disk(vm, 0)
	if err != nil {
		t.Fatal(err)
	}
	return labContent{disk.NewPattern(c.Size), c}
}

func (c labContent) Size() int64 { return c.Pattern.Size() }
func (c labContent) ReadAt(_ context.Context, p []byte, off int64) error {
	_, err := c.DiskContent.ReadAt(p, off)
	return err
}

// copyDisk copies the first disk of an environment and compares every byte with the lab's disk.
func copyDisk(t *testing.T, r transporttest.Environment, progress func(blockcopy.Progress)) error {
	t.Helper()
	check := disk.NewCheck(contentOf(t, labOf(r), r.Disks[0].VM.Name))
	_, err := r.Transport.Transfer(t.Context(), transport.Job{Disk: r.Disks[0], Target: check, Progress: progress})
	if err != nil {
		return err
	}
	return check.Finish(t.Context())
}

func newVM(mib int64) lab.VM {
	return lab.VM{Name: "web01", ChangeTracking: true, Disks: []lab.Disk{{Capacity: lab.Bytes(mib << 20), Fill: 60, Seed: 9}}}
}

// Disks are read correctly from hosts of different versions and configurations.
func TestHostsOfAllKinds(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for name, v := range map[string]struct {
		cfg  lab.Config
		opts nfc.Options
	}{
		"8.0.3, in clear":       {lab.Config{}, nfc.Options{Wire: wire.Plain}},
		"7.0.3, late answers":   {lab.Config{Version: "7.0.3"}, nfc.Options{}},
		"7.0, no SHA256":        {lab.Config{Version: "7.0.0"}, nfc.Options{}},
		"6.7, no tag":           {lab.Config{Version: "6.7.0", NFC: lab.NFC{LibVersion: 3}}, nfc.Options{}},
		"vCenter":               {lab.Config{VCenter: true}, nfc.Options{}},
		"TLS 1.3":               {lab.Config{NFC: lab.NFC{TLS13: true}}, nfc.Options{}},
		"own buffers":           {lab.Config{}, nfc.Options{Buffers: wire.Buffers{Size: 64 << 10, Count: 1}}},
		"buffers refused":       {lab.Config{NFC: lab.NFC{MaxBuffer: 512 << 10}}, nfc.Options{}},
		"odd fragments":         {lab.Config{NFC: lab.NFC{Order: nfchost.OddFirst, Fragments: []int{1000, 65536, 7, 3000, 64536}}}, nfc.Options{}},
		"reversed fragments":    {lab.Config{NFC: lab.NFC{Order: nfchost.Reversed}}, nfc.Options{Buffers: wire.Buffers{Size: 128 << 10, Count: 4}}},
		"mixed requests":        {lab.Config{NFC: lab.NFC{Order: nfchost.Mixed}}, nfc.Options{Buffers: wire.Buffers{Size: 64 << 10, Count: 4}}},
		"zlib":                  {lab.Config{}, nfc.Options{Compressions: []wire.Compression{wire.Zlib}}},
		"FastLZ":                {lab.Config{}, nfc.Options{Compressions: []wire.Compression{wire.FastLZ}}},
		"SkipZ":                 {lab.Config{}, nfc.Options{Compressions: []wire.Compression{wire.SkipZ}}},
		"FastLZ, now and then":  {lab.Config{NFC: lab.NFC{Packing: nfchost.Variety}}, nfc.Options{Compressions: []wire.Compression{wire.FastLZ}}},
		"SkipZ in odd pieces":   {lab.Config{NFC: lab.NFC{Order: nfchost.OddFirst, Fragments: []int{1000, 65536, 7, 3000, 64536}}}, nfc.Options{Compressions: []wire.Compression{wire.SkipZ}}},
		"zlib, never honoured":  {lab.Config{NFC: lab.NFC{Packing: nfchost.Stored}}, nfc.Options{Compressions: []wire.Compression{wire.Zlib}}},
		"a dirty end of map":    {lab.Config{NFC: lab.NFC{DirtyTail: true}}, nfc.Options{}},
		"reads held":            {lab.Config{NFC: lab.NFC{Hold: 3}}, nfc.Options{Handles: 1}},
		"no map":                {lab.Config{Datastores: []lab.Datastore{{Name: "nfs 1", Type: "NFS", Map: lab.MapFault}}}, nfc.Options{}},
		"no map, silent errors": {lab.Config{NFC: lab.NFC{ErrorTail: nfchost.TailNever}, Datastores: []lab.Datastore{{Name: "nfs 1", Type: "NFS", Map: lab.MapFault}}}, nfc.Options{}},
	} {
		t.Run(name, func(t *testing.T) {
			v.cfg.VMs = []lab.VM{newVM(12)}
			v.opts.Stall = stall * 5
			r := startLab(t, v.cfg, v.opts)
			offer, err := r.Transport.Probe(t.Context(), r.Disks[0])
			if err != nil || !offer.Usable {
				t.Fatalf("offer %+v, error %v", offer, err)
			}
			if err := copyDisk(t, r, nil); err != nil {
				t.Fatal(err)
			}
			stats := labOf(r).Stats().NFC
			if v.cfg.NFC.Hold > 0 && stats.HoldsMissed > 1 { // the session of Probe reads only once
				t.Errorf("%d sessions did not have %d reads in flight, want at most 1", stats.HoldsMissed, v.cfg.NFC.Hold)
			}
		})
	}
}
