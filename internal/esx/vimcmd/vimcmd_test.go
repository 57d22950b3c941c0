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

// rig is a host with a free licence, a VM that runs, and a session and a login to it.
type rig struct {
	*testing.T
	lab  *lab.Lab
	host *Host
	sh   *shell.Shell
	vm   inventory.MoRef
}

func newRig(t *testing.T, guest lab.Guest) *rig {
	t.Helper()
	cfg := lab.Config{ReadOnlyLicence: true, SSH: lab.SSH{Enabled: true}, VMs: []lab.VM{{
		Name: "web 01", PoweredOn: true, Guest: guest, Disks: []lab.Disk{{Capacity: 1 << 20, Fill: 50, Seed: 1}},
	}}}
	l, err := lab.Start(context.Background(), cfg)
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	r := &rig{T: t, lab: l, sh: login(t, l)}
	r.host = &Host{Session: dial(t, l), Open: func(context.Context, inventory.MoRef) (*shell.Shell, error) { return r.sh, nil }}
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

// dial logs in to the API.
func dial(t *testing.T, l *lab.Lab) *esx.Session {
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

func login(t *testing.T, l *lab.Lab) *shell.Shell {
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

func (r *rig) fault(f lab.Fault) {
	r.Helper()
	_, err := r.lab.Faults().Add(f)
	must(r.T, err)
}

// our is the name of the snapshot that the tests take.
const our = "decamp web-01-3f9a1c 1"

func (r *rig) take() error {
	_, err := r.host.CreateSnapshot(r.Context(), r.vm, esx.SnapshotSpec{Name: our, Description: "it's ours; $HOME"})
	return err
}

// has checks that the VM has so many snapshots, that the host has no job of ours left, and
// that no consolidation is needed.
func (r *rig) has(snapshots int) {
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

func TestSnapshotIsTakenAndRemoved(t *testing.T) {
	r := newRig(t, lab.Guest{})
	ref, err := r.host.CreateSnapshot(t.Context(), r.vm, esx.SnapshotSpec{Name: our})
	must(t, err)
	if is, found, err := r.host.Session.FindSnapshot(t.Context(), r.vm, our); err != nil || !found || is != ref {
		t.Errorf("the API has %v, %v, %v; we %v", is, found, err, ref)
	}
	r.has(1)
	must(t, r.take()) // the one that is there
	r.has(1)
	for range 2 {
		must(t, r.host.DropSnapshot(t.Context(), r.vm, our))
		r.has(0)
	}
}

// What vim-cmd says goes for nothing if what was asked for is there, and tells why if not.
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
			r := newRig(t, lab.Guest{})
			for _, f := range c.faults {
				r.fault(f)
			}
			if err := r.take(); fault.KindOf(err) != c.kind || fault.HintOf(err) == "" {
				t.Errorf("%v, want %s with a remedy", err, c.kind)
			}
			r.has(0)
			must(t, r.take())
			r.has(1)
		})
	}
}

func TestRemovalFaults(t *testing.T) {
	for _, kind := range []lab.FaultKind{lab.FaultSnapshotRemove, lab.FaultVMBusy} {
		for _, quiet := range []bool{false, true} {
			t.Run(string(kind), func(t *testing.T) {
				r := newRig(t, lab.Guest{})
				must(t, r.take())
				r.fault(lab.Fault{Kind: kind, Count: 1})
				if quiet {
					r.fault(lab.Fault{Kind: lab.FaultVimCmdQuiet, Count: 1, Method: "snapshot.remove"})
				}
				if err := r.host.DropSnapshot(t.Context(), r.vm, our); err == nil || fault.HintOf(err) == "" {
					t.Errorf("%v", err)
				}
				r.has(1)
				must(t, r.host.DropSnapshot(t.Context(), r.vm, our))
				r.has(0)
			})
		}
	}
}

// A vim-cmd that does not wait for its task.
func TestWhatComesLaterIsWaitedFor(t *testing.T) {
	r := newRig(t, lab.Guest{})
	r.fault(lab.Fault{Kind: lab.FaultVimCmdLate, Count: 2, Delay: lab.Duration(20 * time.Millisecond)})
	must(t, r.take())
	r.has(1)
	must(t, r.host.DropSnapshot(t.Context(), r.vm, our))
	r.has(0)
}

func TestDeltaThatIsLeftIsTold(t *testing.T) {
	r := newRig(t, lab.Guest{})
	must(t, r.take())
	r.fault(lab.Fault{Kind: lab.FaultSnapshotConsolidate, Count: 1})
	for range 2 {
		err := r.host.DropSnapshot(t.Context(), r.vm, our)
		if !fault.Is(err, fault.Conflict) || !strings.Contains(fault.HintOf(err), "Consolidate") {
			t.Errorf("%v (%s)", err, fault.HintOf(err))
		}
	}
}

// Nothing of others is touched: not a snapshot of another name, and ours not while somebody's
// stands on it.
func TestSnapshotsOfOthersStay(t *testing.T) {
	r := newRig(t, lab.Guest{})
	theirs := func(verb string, words ...string) {
		t.Helper()
		out, err := r.sh.Run(t.Context(), append([]string{"vim-cmd", "vmsvc/" + verb, string(r.vm)}, words...)...)
		must(t, err)
		must(t, out.Err())
	}
	theirs("snapshot.create", "before failed upgrade", "its\nSnapshot Id : 77")
	must(t, r.take())
	theirs("snapshot.create", our+"0")
	if err := r.host.DropSnapshot(t.Context(), r.vm, our); !fault.Is(err, fault.Conflict) {
		t.Errorf("removed below another: %v", err)
	}
	r.has(3)
	entry, _, err := r.host.Session.AwaitSnapshot(t.Context(), r.vm, our+"0", true, 0)
	must(t, err)
	if err := checkSnapshot(t.Context(), r.sh, r.vm, our, entry); !fault.Is(err, fault.Conflict) {
		t.Errorf("theirs was taken for ours: %v", err)
	}
	must(t, r.host.DropSnapshot(t.Context(), r.vm, our+"0"))
	must(t, r.host.DropSnapshot(t.Context(), r.vm, our))
	r.has(1)
}

// stall has vim-cmd wait with the next snapshot, and begins to take one by a login of its own.
func (r *rig) stall(ctx context.Context) (by *shell.Shell, done chan error) {
	r.Helper()
	r.fault(lab.Fault{Kind: lab.FaultVimCmdStall, Method: "snapshot.create", Count: 1})
	by, done = login(r.T, r.lab), make(chan error, 1)
	other := &Host{Session: r.host.Session, Open: func(context.Context, inventory.MoRef) (*shell.Shell, error) { return by, nil }}
	go func() {
		_, err := other.CreateSnapshot(ctx, r.vm, esx.SnapshotSpec{Name: our})
		done <- err
	}()
	for len(r.lab.Faults().List()) > 0 { // it is told before it stalls, and what stalls later is not released
		select {
		case <-time.After(time.Millisecond):
		case <-r.Context().Done():
			r.Fatal("nothing was asked for")
		}
	}
	return by, done
}

// Whoever ordered a snapshot has died: it is waited for, and whoever comes next finds it, or
// removes it.
func TestSnapshotThatIsBeingTaken(t *testing.T) {
	for name, next := range map[string]struct {
		do   func(*rig) error
		left int
	}{
		"taken":    {(*rig).take, 1},
		"given up": {func(r *rig) error { return r.host.DropSnapshot(r.Context(), r.vm, our) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, lab.Guest{})
			by, done := r.stall(t.Context())
			must(t, by.Close())
			if err := <-done; err == nil {
				t.Error("the dead one took it")
			}
			second := make(chan error, 1)
			go func() { second <- next.do(r) }()
			r.lab.DropSSH()
			r.lab.Faults().Release()
			must(t, <-second)
			r.has(next.left)
		})
	}
}

// Whoever ordered a snapshot wants it no more: it is waited for, so that it can be removed.
func TestSnapshotThatIsNotWantedAnyMore(t *testing.T) {
	r := newRig(t, lab.Guest{})
	ctx, cancel := context.WithCancel(t.Context())
	_, done := r.stall(ctx)
	cancel()
	r.lab.Faults().Release()
	must(t, <-done)
	r.has(1)
}

// Both have to tell the same of a snapshot.
func TestNumbersOfSnapshotsAreCompared(t *testing.T) {
	r := newRig(t, lab.Guest{})
	must(t, r.take())
	entry, _, err := r.host.Session.AwaitSnapshot(t.Context(), r.vm, our, true, 0)
	must(t, err)
	must(t, checkSnapshot(t.Context(), r.sh, r.vm, our, entry))
	for _, e := range []esx.SnapshotEntry{{ID: entry.ID + 1}, {ID: entry.ID, Children: 1}} {
		if err := checkSnapshot(t.Context(), r.sh, r.vm, our, e); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
			t.Errorf("%+v: %v", e, err)
		}
	}
}

func TestPowerByVimCmd(t *testing.T) {
	r := newRig(t, lab.Guest{})
	for range 2 {
		must(t, r.host.PowerOff(t.Context(), r.vm, esx.PowerOffOptions{}))
		r.is(inventory.PoweredOff)
	}
	for range 2 {
		must(t, r.host.PowerOn(t.Context(), r.vm))
		r.is(inventory.PoweredOn)
	}
}

func (r *rig) is(want inventory.Power) {
	r.Helper()
	vm, err := r.host.Session.VMByRef(r.Context(), r.vm)
	must(r.T, err)
	if vm.Power != want {
		r.Errorf("the VM is %s, want %s", vm.Power, want)
	}
}

func TestGuestWithoutTools(t *testing.T) {
	r := newRig(t, lab.Guest{NoTools: true})
	must(t, r.host.ShutDown(t.Context(), r.vm)) // which asks nobody
	if err := r.host.PowerOff(t.Context(), r.vm, esx.PowerOffOptions{}); !fault.Is(err, fault.Conflict) {
		t.Errorf("%v", err)
	}
	r.is(inventory.PoweredOn)
	must(t, r.host.PowerOff(t.Context(), r.vm, esx.PowerOffOptions{Force: true}))
	r.is(inventory.PoweredOff)
}

func TestServersWithOtherNumbers(t *testing.T) {
	for _, about := range []inventory.About{{Version: "8.0.3", VCenter: true}, {Version: "4.1.0"}, {Version: "?"}} {
		if err := checkVersion(about); !fault.Is(err, fault.Unsupported) || fault.HintOf(err) == "" {
			t.Errorf("%+v: %v", about, err)
		}
	}
}

// A number that means another VM to vim-cmd is given no command.
func TestVMOfAnotherNumber(t *testing.T) {
	r := newRig(t, lab.Guest{})
	if err := r.sh.HasVM(t.Context(), r.vm, inventory.Path{Datastore: "datastore1", File: "other/other.vmx"}); !fault.Is(err, fault.Conflict) {
		t.Errorf("%v", err)
	}
}
