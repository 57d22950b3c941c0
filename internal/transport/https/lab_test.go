package https_test

import (
	"context"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/transport/https"
	"github.com/decamp/decamp/internal/transport/transporttest"
)

// TestConformanceAgainstTheLab runs the suite against the emulated ESXi, through a real session. The lab was
// written from documented behaviour of ESXi, independently of this client.
func TestConformanceAgainstTheLab(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	transporttest.Run(t, transporttest.Harness{
		New: newLabRig,
		Passes: []transporttest.Trouble{
			injectedFault(lab.Fault{Kind: lab.FaultReset, At: 1 << 20, Skip: 2, Count: 5}),
			injectedFault(lab.Fault{Kind: lab.FaultShort, At: 700_000, Skip: 2, Count: 5}),
			injectedFault(lab.Fault{Kind: lab.FaultStall, At: 1 << 20, Skip: 4, Count: 2}),
			injectedFault(lab.Fault{Kind: lab.FaultStatus, Status: 503, Skip: 2, Count: 9}),
			injectedFault(lab.Fault{Kind: lab.FaultShortLength, At: 4096, Skip: 4, Count: 3}),
			injectedFault(lab.Fault{Kind: lab.FaultWrongRange, At: 512, Skip: 4, Count: 3}),
			injectedFault(lab.Fault{Kind: lab.FaultIgnoreRange, Skip: 4, Count: 2}),
			{Name: "an expired session", Start: func(_ *testing.T, r transporttest.Environment) func() {
				labOf(r).KillSessions()
				return func() {}
			}},
			{Name: "few connections", Start: func(_ *testing.T, r transporttest.Environment) func() {
				labOf(r).SetLimits(lab.Limits{MaxConns: 4}) // the session uses some of them
				return func() {}
			}},
			{Name: "few requests", Start: func(_ *testing.T, r transporttest.Environment) func() {
				labOf(r).SetLimits(lab.Limits{MaxRequests: 3})
				return func() {}
			}},
		},
		Stops: []transporttest.Trouble{
			lastingFault(lab.Fault{Kind: lab.FaultStatus, Status: 500, Skip: 4}, fault.Conflict),
			lastingFault(lab.Fault{Kind: lab.FaultStatus, Status: 404, Skip: 4}, fault.NotFound),
			lastingFault(lab.Fault{Kind: lab.FaultStatus, Status: 503, Skip: 4}, fault.Transient),
			lastingFault(lab.Fault{Kind: lab.FaultShortLength, At: 4096, Skip: 4}, fault.Corrupt),
			lastingFault(lab.Fault{Kind: lab.FaultWrongRange, At: 512, Skip: 4}, fault.Corrupt),
			lastingFault(lab.Fault{Kind: lab.FaultIgnoreRange, Skip: 4}, fault.Corrupt),
		},
	})
}

const flatFile = "-flat.vmdk"

func injectedFault(f lab.Fault) transporttest.Trouble {
	f.Path = flatFile
	return transporttest.Trouble{Name: string(f.Kind), Start: func(t *testing.T, r transporttest.Environment) func() {
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
	tr.Name, tr.Kind = tr.Name+" "+strconv.Itoa(f.Status), kind
	return tr
}

func labOf(r transporttest.Environment) *lab.Lab { return r.Data.(*lab.Lab) }

// newLabRig starts a lab with one VM that has the given disks, and logs in.
func newLabRig(t *testing.T, disks ...disk.Source) transporttest.Environment {
	vm := lab.VM{Name: "web 01", ChangeTracking: true}
	for _, d := range disks {
		vm.Disks = append(vm.Disks, lab.Disk{File: transporttest.SparseFile(t, d)})
	}
	return startLab(t, lab.Config{VMs: []lab.VM{vm}}, https.Options{Stall: time.Second, Sleep: fastSleep})
}

// fastSleep is a Sleep that is a hundred times shorter. It is not zero: otherwise a busy lab could refuse a
// request eleven times within a millisecond.
func fastSleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d / 100):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// startLab starts a lab, logs in, and returns an environment with the disks of the first VM. The transport does not
// wait between attempts unless opts has a Sleep.
func startLab(t *testing.T, cfg lab.Config, opts https.Options) transporttest.Environment {
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
	scheme := "esxi"
	if cfg.VCenter {
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
	vm, err := s.VM(t.Context(), cfg.VMs[0].Name)
	if err != nil {
		t.Fatal(err)
	}
	if opts.Sleep == nil {
		opts.Sleep = func(ctx context.Context, _ time.Duration) error { return ctx.Err() }
	}
	tr := https.New(s, opts)
	t.Cleanup(func() { tr.Close() })
	rig := transporttest.Environment{Transport: tr, Data: l}
	for i := range vm.Disks {
		rig.Disks = append(rig.Disks, transport.Disk{VM: vm, Disk: &vm.Disks[i]})
	}
	return rig
}

// contentOf returns the content of a lab's disk as a Source to compare with.
func contentOf(t *testing.T, l *lab.Lab, vm string) labContent {
	t.Helper()
	c, err := l.Disk(vm, 0)
	if err != nil {
		t.Fatal(err)
	}
	return labContent{disk.NewPattern(c.Size), c}
}

type labContent struct {
	*disk.Pattern // provides all methods but Size and ReadAt
	lab.DiskContent
}

func (c labContent) Size() int64 { return c.Pattern.Size() }
func (c labContent) ReadAt(_ context.Context, p []byte, off int64) error {
	_, err := c.DiskContent.ReadAt(p, off)
	return err
}

// stallNearEnd stalls each request of a full disk near its end, so that the copy is incomplete when the test
// intervenes. Without the stall, socket buffers could hold the whole disk.
var stallNearEnd = lab.Fault{Kind: lab.FaultStall, Path: flatFile, At: 8 << 20}

// copyDisk copies the first disk of an environment and compares every byte with the lab's disk. It calls at once,
// after the first progress.
func copyDisk(t *testing.T, r transporttest.Environment, vm string, at func()) error {
	t.Helper()
	check := disk.NewCheck(contentOf(t, labOf(r), vm))
	once := sync.OnceFunc(at)
	_, err := r.Transport.Transfer(t.Context(), transport.Job{
		Disk: r.Disks[0], Target: check,
		Progress: func(p blockcopy.Progress) {
			if p.Read > 0 {
				once()
			}
		},
	})
	if err != nil {
		return err
	}
	return check.Finish(t.Context())
}

func newVM(name string) lab.VM {
	return lab.VM{Name: name, ChangeTracking: true, Disks: []lab.Disk{{Capacity: 96 << 20, Fill: 60, Seed: 9}}}
}

func TestCopySurvivesHostRestart(t *testing.T) {
	var r transporttest.Environment
	var mu sync.Mutex
	var down bool
	stop := func() {
		mu.Lock()
		defer mu.Unlock()
		if err := labOf(r).Stop(); err != nil {
			t.Error(err)
		}
		down = true
	}
	back := func(ctx context.Context, _ time.Duration) error { // a back-off lasts until the host is back
		mu.Lock()
		defer mu.Unlock()
		if down {
			if err := labOf(r).Resume(); err != nil {
				t.Error(err)
			}
			down = false
		}
		return ctx.Err()
	}
	r = startLab(t, lab.Config{VMs: []lab.VM{newVM("web01")}}, https.Options{Sleep: back})
	if err := copyDisk(t, r, "web01", stop); err != nil {
		t.Fatal(err)
	}
}

func TestChangedCertificateStopsTheCopy(t *testing.T) {
	var changing sync.Mutex // held while the certificate changes; blocks retries
	after := func(ctx context.Context, _ time.Duration) error {
		changing.Lock()
		defer changing.Unlock()
		return ctx.Err()
	}
	vm := newVM("web01")
	vm.Disks[0].Fill = 100
	r := startLab(t, lab.Config{VMs: []lab.VM{vm}, Faults: []lab.Fault{stallNearEnd}}, https.Options{Sleep: after})
	err := copyDisk(t, r, "web01", func() {
		changing.Lock()
		defer changing.Unlock()
		if err := labOf(r).ChangeCertificate(); err != nil {
			t.Error(err)
		}
		labOf(r).Faults().Clear()
		if _, err := labOf(r).Faults().Add(lab.Fault{Kind: lab.FaultReset, Path: flatFile}); err != nil {
			t.Error(err)
		}
	})
	if !fault.Is(err, fault.Denied) || fault.HintOf(err) == "" {
		t.Errorf("got %v (%v), want Denied with a hint", err, fault.KindOf(err))
	}
}

func TestIncompleteHostMapLosesNoData(t *testing.T) {
	vm := newVM("web01")
	vm.Disks[0].Fill = 100
	vm.Disks[0].Hide = []lab.Span{{Offset: 40 << 20, Length: 25 << 20}}
	var seen https.Report
	r := startLab(t, lab.Config{VMs: []lab.VM{vm}}, https.Options{
		Report: func(_ transport.Disk, r https.Report) { seen = r },
	})
	if err := copyDisk(t, r, "web01", func() {}); err != nil {
		t.Fatal(err)
	}
	if seen.Map != https.MapDropped {
		t.Errorf("report %+v, want MapDropped", seen)
	}
}

func TestOnlyAllocatedBytesAreSent(t *testing.T) {
	vm := newVM("web01")
	vm.Disks[0].Capacity, vm.Disks[0].Fill = 512<<20, 25
	r := startLab(t, lab.Config{VMs: []lab.VM{vm}, CBT: lab.CBT{EmptyPages: true, MaxAreas: 3}}, https.Options{})
	labOf(r).ResetStats()
	if err := copyDisk(t, r, "web01", func() {}); err != nil {
		t.Fatal(err)
	}
	c := contentOf(t, labOf(r), "web01")
	if sent := labOf(r).Stats().BodyBytes; sent < c.Allocated || float64(sent) > 1.01*float64(c.Allocated) {
		t.Errorf("%d bytes sent, want %d to 1 %% more", sent, c.Allocated)
	}
}

func TestDatastoresWithoutAMapAreReadWhole(t *testing.T) {
	for _, kind := range []lab.MapKind{lab.MapWhole, lab.MapFault} {
		r := startLab(t, lab.Config{
			Datastores: []lab.Datastore{{Name: "nfs 1", Type: "NFS", Map: kind}},
			VMs:        []lab.VM{newVM("web01")},
		}, https.Options{})
		if err := copyDisk(t, r, "web01", func() {}); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestHostileNamesAndVCenter(t *testing.T) {
	for _, vcenter := range []bool{false, true} {
		for _, name := range []string{"100% + *'ä&=?#;", `the "old" box`, "a/b", "..."} {
			r := startLab(t, lab.Config{VCenter: vcenter, VMs: []lab.VM{newVM(name)}}, https.Options{})
			offer, err := r.Transport.Probe(t.Context(), r.Disks[0])
			if err != nil || !offer.Usable || !offer.Map {
				t.Errorf("%q, vCenter %v: offer %+v, error %v", name, vcenter, offer, err)
			}
		}
	}
}

func TestRunningVMIsRefused(t *testing.T) {
	vm := newVM("web01")
	vm.PoweredOn = true
	r := startLab(t, lab.Config{VMs: []lab.VM{vm}}, https.Options{})
	offer, err := r.Transport.Probe(t.Context(), r.Disks[0])
	if err != nil || offer.Usable || offer.Reason == "" {
		t.Errorf("running VM: offer %+v, error %v, want a reason against it", offer, err)
	}
	d := r.Disks[0]
	off := *d.VM
	off.Power = inventory.PoweredOff // state in an outdated inventory
	d.VM = &off
	offer, err = r.Transport.Probe(t.Context(), d)
	if err != nil || offer.Usable || !strings.Contains(offer.Reason, "locked") {
		t.Errorf("VM started after the inventory: offer %+v, error %v, want a locked file", offer, err)
	}
}

// Reads of an opened disk, as those of the clients of an export, succeed despite failures of connections, the
// session or the host.
func TestReadersOfAnOpenedDiskSurvive(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	var l *lab.Lab
	var down atomic.Bool
	var stopping sync.Mutex // held while the host stops, so that retries wait

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
	add := func(f lab.Fault) error {
		_, err := l.Faults().Add(f)
		return err
	}
	for name, trouble := range map[string]func() error{
		"resets":           func() error { return add(lab.Fault{Kind: lab.FaultReset, Path: flatFile, At: 10_000, Count: 8}) },
		"stalls":           func() error { return add(lab.Fault{Kind: lab.FaultStall, Path: flatFile, At: 10_000, Count: 2}) },
		"503":              func() error { return add(lab.Fault{Kind: lab.FaultStatus, Path: flatFile, Status: 503, Count: 8}) },
		"an expired login": func() error { l.KillSessions(); return nil },
		"a restart of the host": func() error {
			stopping.Lock()
			defer stopping.Unlock()
			down.Store(true)
			return l.Stop()
		},
	} {
		t.Run(name, func(t *testing.T) {
			vm := newVM("web01")
			vm.Disks[0] = lab.Disk{Capacity: 64 << 20, Fill: 100, Seed: 9}
			r := startLab(t, lab.Config{Limits: lab.Limits{DatastoreRate: 96 << 20}, VMs: []lab.VM{vm}}, https.Options{Sleep: back, Stall: 2 * time.Second})
			l = labOf(r)
			src, err := r.Transport.(*https.Transport).Open(t.Context(), r.Disks[0])
			if err != nil {
				t.Fatal(err)
			}
			logins := l.Stats().SOAP["Login"]
			transporttest.ReadThrough(t, src, contentOf(t, l, "web01"), func() {
				if err := trouble(); err != nil {
					t.Error(err)
				}
			})
			met := src.Report().Failures > 0 || l.Stats().SOAP["Login"] > logins
			if !met || down.Load() || len(l.Faults().List()) > 0 {
				t.Errorf("the trouble disturbed no read: report %+v, remaining faults %v", src.Report(), l.Faults().List())
			}
		})
	}
}
