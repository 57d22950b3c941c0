package vimcmd

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/esx/shell"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab"
)

// testHost is a host with a free licence and a running VM, with an API session and an SSH login.
type testHost struct {
	*testing.T
	lab  *lab.Lab
	host *Host
	sh   *shell.Shell
	vm   inventory.MoRef
}

func newTestHost(t *testing.T, guest lab.Guest) *testHost {
	t.Helper()
	cfg := lab.Config{ReadOnlyLicence: true, SSH: lab.SSH{Enabled: true}, VMs: []lab.VM{{
		Name: "web 01", PoweredOn: true, Guest: guest, Disks: []lab.Disk{{Capacity: 1 << 20, Fill: 50, Seed: 1}},
	}}}
	l, err := lab.Start(context.Background(), cfg)
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	r := &testHost{T: t, lab: l, sh: dialShell(t, l)}
	r.host = &Host{Session: dialAPI(t, l), Open: func(context.Context, inventory.MoRef) (*shell.Shell, error) { return r.sh, nil }}
	vm, err := r.host.Session.VM(t.Context(), "web 01")
	must(t, err)
	r.vm = vm.Ref
	must(t, r.host.Ready(t.Context(), r.vm))
	return r
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v (remedy: %s)", err, fault.HintOf(err))
	}
}

// dialAPI logs in to the API.
func dialAPI(t *testing.T, l *lab.Lab) *esx.Session {
	t.Helper()
	u, err := url.Parse("esxi://root@" + l.Addr())
	must(t, err)
	s, err := esx.Dial(t.Context(), esx.Config{
		URL: u, Fingerprint: l.Fingerprint(),
		Password: func(context.Context) (esx.Secret, error) { return esx.Secret(l.Password()), nil },
	})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

func dialShell(t *testing.T, l *lab.Lab) *shell.Shell {
	t.Helper()
	key, err := shell.FingerprintOf([]byte(l.SSHHostKey("")))
	must(t, err)
	s, err := shell.Dial(t.Context(), shell.Config{
		Addr: l.SSHAddr(""), User: "root", HostKey: key.Fingerprint, Poll: 5 * time.Millisecond,
		Password: func(context.Context) (esx.Secret, error) { return esx.Secret(l.Password()), nil },
	})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

func (r *testHost) addFault(f lab.Fault) {
	r.Helper()
	_, err := r.lab.Faults().Add(f)
	must(r.T, err)
}

// snapshotName is the name of the snapshot that the tests create.
const snapshotName = "decamp web-01-3f9a1c 1"

func (r *testHost) createSnapshot() error {
	_, err := r.host.CreateSnapshot(r.Context(), r.vm, esx.SnapshotSpec{Name: snapshotName, Description: "it's ours; $HOME"})
	return err
}

// checkSnapshots checks the number of the VM's snapshots, that the host has no jobs, and that
// the VM needs no consolidation.
func (r *testHost) checkSnapshots(snapshots int) {
	r.Helper()
	vm, err := r.host.Session.VMByRef(r.Context(), r.vm)
	must(r.T, err)
	if vm.Snapshots != snapshots || vm.ConsolidationNeeded {
		r.Errorf("%d snapshots, consolidation needed: %v; want %d", vm.Snapshots, vm.ConsolidationNeeded, snapshots)
	}
	out, err := r.sh.Run(r.Context(), "ls", shell.DefaultJobs)
	must(r.T, err)
	if len(out.Stdout) > 0 {
		r.Errorf("jobs are left: %s", out.Stdout)
	}
}

func TestSnapshotIsCreatedAndRemovedByVimCmd(t *testing.T) {
	r := newTestHost(t, lab.Guest{})
	ref, err := r.host.CreateSnapshot(t.Context(), r.vm, esx.SnapshotSpec{Name: snapshotName})
	must(t, err)
	if is, found, err := r.host.Session.FindSnapshot(t.Context(), r.vm, snapshotName); err != nil || !found || is != ref {
		t.Errorf("FindSnapshot: %v, %v, %v; want %v", is, found, err, ref)
	}
	r.checkSnapshots(1)
	must(t, r.createSnapshot()) // returns the existing snapshot
	r.checkSnapshots(1)
	for range 2 {
		must(t, r.host.DropSnapshot(t.Context(), r.vm, snapshotName))
		r.checkSnapshots(0)
	}
}

// If vim-cmd creates no snapshot, the error has its kind and a remedy, and a second try succeeds.
func TestSnapshotFaults(t *testing.T) {
	for name, c := range map[string]struct {
		faults []lab.Fault
		kind   fault.Kind
	}{
		"fails":          {[]lab.Fault{{Kind: lab.FaultSnapshotCreate, Count: 1}}, fault.Conflict},
		"fails, quietly": {[]lab.Fault{{Kind: lab.FaultSnapshotCreate, Count: 1}, {Kind: lab.FaultVimCmdQuiet, Count: 1}}, fault.Conflict},
		"busy":           {[]lab.Fault{{Kind: lab.FaultVMBusy, Count: 1}}, fault.Transient},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTestHost(t, lab.Guest{})
			for _, f := range c.faults {
				r.addFault(f)
			}
			if err := r.createSnapshot(); fault.KindOf(err) != c.kind || fault.HintOf(err) == "" {
				t.Errorf("%v, want %s with a remedy", err, c.kind)
			}
			r.checkSnapshots(0)
			must(t, r.createSnapshot())
			r.checkSnapshots(1)
		})
	}
}

func TestRemovalFaults(t *testing.T) {
	for _, kind := range []lab.FaultKind{lab.FaultSnapshotRemove, lab.FaultVMBusy} {
		for _, quiet := range []bool{false, true} {
			t.Run(string(kind), func(t *testing.T) {
				r := newTestHost(t, lab.Guest{})
				must(t, r.createSnapshot())
				r.addFault(lab.Fault{Kind: kind, Count: 1})
				if quiet {
					r.addFault(lab.Fault{Kind: lab.FaultVimCmdQuiet, Count: 1, Method: "snapshot.remove"})
				}
				if err := r.host.DropSnapshot(t.Context(), r.vm, snapshotName); err == nil || fault.HintOf(err) == "" {
					t.Errorf("%v", err)
				}
				r.checkSnapshots(1)
				must(t, r.host.DropSnapshot(t.Context(), r.vm, snapshotName))
				r.checkSnapshots(0)
			})
		}
	}
}

// If vim-cmd does not wait for its task, CreateSnapshot and DropSnapshot wait for it.
func TestVimCmdTasksAreAwaited(t *testing.T) {
	r := newTestHost(t, lab.Guest{})
	r.addFault(lab.Fault{Kind: lab.FaultVimCmdLate, Count: 2, Delay: lab.Duration(20 * time.Millisecond)})
	must(t, r.createSnapshot())
	r.checkSnapshots(1)
	must(t, r.host.DropSnapshot(t.Context(), r.vm, snapshotName))
	r.checkSnapshots(0)
}

func TestLeftoverDeltaIsReported(t *testing.T) {
	r := newTestHost(t, lab.Guest{})
	must(t, r.createSnapshot())
	r.addFault(lab.Fault{Kind: lab.FaultSnapshotConsolidate, Count: 1})
	for range 2 {
		err := r.host.DropSnapshot(t.Context(), r.vm, snapshotName)
		if !fault.Is(err, fault.Conflict) || !strings.Contains(fault.HintOf(err), "Consolidate") {
			t.Errorf("%v (%s)", err, fault.HintOf(err))
		}
	}
}

// DropSnapshot leaves snapshots with other names. It does not remove a snapshot that has
// children.
func TestDropSnapshotKeepsOtherSnapshots(t *testing.T) {
	r := newTestHost(t, lab.Guest{})
	vimCmd := func(verb string, words ...string) {
		t.Helper()
		out, err := r.sh.Run(t.Context(), append([]string{"vim-cmd", "vmsvc/" + verb, string(r.vm)}, words...)...)
		must(t, err)
		must(t, out.Err())
	}
	vimCmd("snapshot.create", "before failed upgrade", "its\nSnapshot Id : 77")
	must(t, r.createSnapshot())
	vimCmd("snapshot.create", snapshotName+"0")
	if err := r.host.DropSnapshot(t.Context(), r.vm, snapshotName); !fault.Is(err, fault.Conflict) {
		t.Errorf("a snapshot with a child: %v", err)
	}
	r.checkSnapshots(3)
	entry, _, err := r.host.Session.AwaitSnapshot(t.Context(), r.vm, snapshotName+"0", true, 0)
	must(t, err)
	if err := checkSnapshot(t.Context(), r.sh, r.vm, snapshotName, entry); !fault.Is(err, fault.Conflict) {
		t.Errorf("a snapshot with another name: %v", err)
	}
	must(t, r.host.DropSnapshot(t.Context(), r.vm, snapshotName+"0"))
	must(t, r.host.DropSnapshot(t.Context(), r.vm, snapshotName))
	r.checkSnapshots(1)
}

// stallCreate makes vim-cmd stall in the next snapshot.create, and starts one with a new login.
func (r *testHost) stallCreate(ctx context.Context) (by *shell.Shell, done chan error) {
	r.Helper()
	r.addFault(lab.Fault{Kind: lab.FaultVimCmdStall, Method: "snapshot.create", Count: 1})
	by, done = dialShell(r.T, r.lab), make(chan error, 1)
	other := &Host{Session: r.host.Session, Open: func(context.Context, inventory.MoRef) (*shell.Shell, error) { return by, nil }}
	go func() {
		_, err := other.CreateSnapshot(ctx, r.vm, esx.SnapshotSpec{Name: snapshotName})
		done <- err
	}()
	for len(r.lab.Faults().List()) > 0 { // the fault disappears when vim-cmd reaches it; Release affects only a stalled vim-cmd
		select {
		case <-time.After(time.Millisecond):
		case <-r.Context().Done():
			r.Fatal("vim-cmd was not called")
		}
	}
	return by, done
}

// If the process that creates a snapshot dies, the next process waits for the snapshot, and
// then returns or removes it.
func TestSnapshotInProgressIsAwaited(t *testing.T) {
	for name, next := range map[string]struct {
		do   func(*testHost) error
		left int
	}{
		"taken":   {(*testHost).createSnapshot, 1},
		"dropped": {func(r *testHost) error { return r.host.DropSnapshot(r.Context(), r.vm, snapshotName) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTestHost(t, lab.Guest{})
			by, done := r.stallCreate(t.Context())
			must(t, by.Close())
			if err := <-done; err == nil {
				t.Error("the first login created the snapshot")
			}
			second := make(chan error, 1)
			go func() { second <- next.do(r) }()
			r.lab.DropSSH()
			r.lab.Faults().Release()
			must(t, <-second)
			r.checkSnapshots(next.left)
		})
	}
}

// CreateSnapshot waits for the snapshot even if its context ends, so that the caller can remove it.
func TestCanceledCreateAwaitsSnapshot(t *testing.T) {
	r := newTestHost(t, lab.Guest{})
	ctx, cancel := context.WithCancel(t.Context())
	_, done := r.stallCreate(ctx)
	cancel()
	r.lab.Faults().Release()
	must(t, <-done)
	r.checkSnapshots(1)
}

// checkSnapshot requires the same number from the API and from vim-cmd, and no children.
func TestNumbersOfSnapshotsAreCompared(t *testing.T) {
	r := newTestHost(t, lab.Guest{})
	must(t, r.createSnapshot())
	entry, _, err := r.host.Session.AwaitSnapshot(t.Context(), r.vm, snapshotName, true, 0)
	must(t, err)
	must(t, checkSnapshot(t.Context(), r.sh, r.vm, snapshotName, entry))
	for _, e := range []esx.SnapshotEntry{{ID: entry.ID + 1}, {ID: entry.ID, Children: 1}} {
		if err := checkSnapshot(t.Context(), r.sh, r.vm, snapshotName, e); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
			t.Errorf("%+v: %v", e, err)
		}
	}
}

func TestPowerByVimCmd(t *testing.T) {
	r := newTestHost(t, lab.Guest{})
	for range 2 {
		must(t, r.host.PowerOff(t.Context(), r.vm, esx.PowerOffOptions{}))
		r.checkPower(inventory.PoweredOff)
	}
	for range 2 {
		must(t, r.host.PowerOn(t.Context(), r.vm))
		r.checkPower(inventory.PoweredOn)
	}
}

func (r *testHost) checkPower(want inventory.Power) {
	r.Helper()
	vm, err := r.host.Session.VMByRef(r.Context(), r.vm)
	must(r.T, err)
	if vm.Power != want {
		r.Errorf("the VM is %s, want %s", vm.Power, want)
	}
}

func TestGuestWithoutTools(t *testing.T) {
	r := newTestHost(t, lab.Guest{NoTools: true})
	must(t, r.host.ShutDown(t.Context(), r.vm)) // no effect without tools
	if err := r.host.PowerOff(t.Context(), r.vm, esx.PowerOffOptions{}); !fault.Is(err, fault.Conflict) {
		t.Errorf("%v", err)
	}
	r.checkPower(inventory.PoweredOn)
	must(t, r.host.PowerOff(t.Context(), r.vm, esx.PowerOffOptions{Force: true}))
	r.checkPower(inventory.PoweredOff)
}

func TestUnsupportedServers(t *testing.T) {
	for _, about := range []inventory.About{{Version: "8.0.3", VCenter: true}, {Version: "4.1.0"}, {Version: "?"}} {
		if err := checkVersion(about); !fault.Is(err, fault.Unsupported) || fault.HintOf(err) == "" {
			t.Errorf("%+v: %v", about, err)
		}
	}
}

// A number that identifies another VM in vim-cmd is refused.
func TestMismatchedVMNumberIsRefused(t *testing.T) {
	r := newTestHost(t, lab.Guest{})
	if err := r.sh.HasVM(t.Context(), r.vm, inventory.Path{Datastore: "datastore1", File: "other/other.vmx"}); !fault.Is(err, fault.Conflict) {
		t.Errorf("%v", err)
	}
}
