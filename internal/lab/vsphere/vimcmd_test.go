package vsphere

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/mo"
	"golang.org/x/crypto/ssh"
)

// vimCmdRig is a host with a free licence, a VM that runs, and a login by SSH.
type vimCmdRig struct {
	*testing.T
	lab *Lab
	ssh *ssh.Client
	vm  *object.VirtualMachine
}

func newVimCmdRig(t *testing.T, change func(*VM)) *vimCmdRig {
	t.Helper()
	spec := web01()
	spec.PoweredOn = true
	if change != nil {
		change(&spec)
	}
	l := start(t, withSSH(Config{ReadOnlyLicence: true, VMs: []VM{spec}}))
	vm, err := find.NewFinder(login(t, l).Client).VirtualMachine(t.Context(), "web01")
	if err != nil {
		t.Fatal(err)
	}
	return &vimCmdRig{t, l, dialSSH(t, l), vm}
}

// do runs vmsvc/VERB on the VM.
func (r *vimCmdRig) do(verb, rest string) (out string, status int) {
	r.Helper()
	return do(r.T, r.ssh, fmt.Sprintf("vim-cmd vmsvc/%s %s %s", verb, r.vm.Reference().Value, rest))
}

// ok is do for commands that succeed.
func (r *vimCmdRig) ok(verb, rest string) string {
	r.Helper()
	out, status := r.do(verb, rest)
	if status != 0 {
		r.Fatalf("%s: status %d, %s", verb, status, out)
	}
	return out
}

// shown is how many snapshots the API tells of, and whether the VM needs consolidation.
func (r *vimCmdRig) shown() (snapshots int, consolidate bool) {
	r.Helper()
	var vm mo.VirtualMachine
	if err := r.vm.Properties(r.Context(), r.vm.Reference(), []string{"snapshot", "runtime"}, &vm); err != nil {
		r.Fatal(err)
	}
	return len(snapshotsOf(vm.Snapshot)), vm.Runtime.ConsolidationNeeded
}

func (r *vimCmdRig) fault(f Fault) {
	r.Helper()
	if _, err := r.lab.Faults().Add(f); err != nil {
		r.Fatal(err)
	}
}

var snapshotID = regexp.MustCompile(`Snapshot Id +: (\d+)`)

// ids are the numbers that snapshot.get shows.
func (r *vimCmdRig) ids() (ids []string) {
	r.Helper()
	for _, m := range snapshotID.FindAllStringSubmatch(r.ok("snapshot.get", ""), -1) {
		ids = append(ids, m[1])
	}
	return ids
}

// A licence that lets the API change nothing does not stop vim-cmd; the API shows what it did.
func TestVimCmdTakesSnapshotsWithAFreeLicence(t *testing.T) {
	r := newVimCmdRig(t, nil)
	if _, err := r.vm.CreateSnapshot(t.Context(), "no", "", false, false); err == nil {
		t.Error("the API took one")
	}
	if out := r.ok("snapshot.get", ""); out != "Get Snapshot:\n" {
		t.Errorf("%q", out)
	}
	r.ok("snapshot.create", "'one two' 'its text' 0 0")
	r.ok("snapshot.create", "above '' 0 0")
	out := r.ok("snapshot.get", "")
	for _, line := range []string{"|-ROOT\n--Snapshot Name        : one two\n", "--Snapshot Desciption  : its text\n", "--|-CHILD\n----Snapshot Name        : above\n"} {
		if !strings.Contains(out, line) {
			t.Errorf("no %q in\n%s", line, out)
		}
	}
	if n, _ := r.shown(); n != 2 {
		t.Errorf("the API shows %d", n)
	}
	if out := r.ok("snapshot.remove", r.ids()[0]); !strings.Contains(out, "|-ROOT\n--Snapshot Name        : above\n") {
		t.Errorf("what is left is not shown: %s", out)
	}
	r.ok("snapshot.remove", r.ids()[0])
	if n, _ := r.shown(); n != 0 {
		t.Errorf("%d are left", n)
	}
	if n := r.lab.Stats().VimCmd["vmsvc/snapshot.create"]; n != 2 {
		t.Errorf("%d were counted", n)
	}
}

func TestVimCmdSwitches(t *testing.T) {
	r := newVimCmdRig(t, nil)
	states := func(want string) {
		t.Helper()
		if out := r.ok("power.getstate", ""); out != "Retrieved runtime info\n"+want+"\n" {
			t.Errorf("%q, want %s", out, want)
		}
	}
	states("Powered on")
	r.ok("power.shutdown", "")
	for !strings.Contains(r.ok("power.getstate", ""), "off") { // the guest takes no time, but is no part of the command
		if t.Context().Err() != nil {
			t.Fatal("it stays on")
		}
	}
	if out, status := r.do("power.off", ""); status == 0 || !strings.Contains(out, "failed") {
		t.Errorf("off again: %d %s", status, out)
	}
	r.ok("power.on", "")
	states("Powered on")
	r.ok("power.off", "")
	states("Powered off")
}

func TestVimCmdRefuses(t *testing.T) {
	r := newVimCmdRig(t, func(v *VM) { v.Guest.NoTools = true })
	if out, status := r.do("power.shutdown", ""); status != 1 || !strings.Contains(out, "(vim.fault.ToolsUnavailable) {") {
		t.Errorf("without tools: %d %s", status, out)
	}
	if out, status := r.do("snapshot.remove", "77"); status != 1 || !strings.Contains(out, "vim.fault.NotFound") {
		t.Errorf("no such snapshot: %d %s", status, out)
	}
	if out, status := do(t, r.ssh, "vim-cmd vmsvc/power.off 4711"); status != 1 || !strings.Contains(out, "Unable to find a VM") {
		t.Errorf("no such VM: %d %s", status, out)
	}
	if out, status := do(t, r.ssh, "vim-cmd vmsvc/power.off"); status != 1 || !strings.Contains(out, "Usage") {
		t.Errorf("no VM: %d %s", status, out)
	}
}

func TestVimCmdFaults(t *testing.T) {
	r := newVimCmdRig(t, nil)
	for _, f := range []Fault{{Kind: FaultSnapshotCreate, Count: 1}, {Kind: FaultVMBusy, Count: 1}} {
		r.fault(f)
		if out, status := r.do("snapshot.create", "one '' 0 0"); status == 0 {
			t.Errorf("%s: it succeeds: %s", f.Kind, out)
		}
	}
	r.fault(Fault{Kind: FaultSnapshotCreate, Count: 1})
	r.fault(Fault{Kind: FaultVimCmdQuiet, Count: 1})
	if out := r.ok("snapshot.create", "one '' 0 0"); !strings.Contains(out, "failed") {
		t.Errorf("it says nothing of its failure: %s", out)
	}
	if n, _ := r.shown(); n != 0 {
		t.Fatalf("%d snapshots", n)
	}
	r.ok("snapshot.create", "one '' 0 0")
	r.fault(Fault{Kind: FaultSnapshotRemove, Count: 1})
	if _, status := r.do("snapshot.remove", r.ids()[0]); status == 0 {
		t.Error("the removal succeeds")
	}
	r.fault(Fault{Kind: FaultSnapshotConsolidate, Count: 1})
	r.ok("snapshot.remove", r.ids()[0])
	if n, consolidate := r.shown(); n != 0 || !consolidate {
		t.Errorf("%d snapshots, consolidation needed: %v", n, consolidate)
	}
}

// A vim-cmd that does not wait for its task: what it asked for comes later.
func TestVimCmdThatDoesNotWait(t *testing.T) {
	r := newVimCmdRig(t, nil)
	r.fault(Fault{Kind: FaultVimCmdLate, Count: 1, Delay: Duration(20 * time.Millisecond)})
	if out := r.ok("snapshot.create", "one '' 0 0"); out != "" {
		t.Errorf("%q", out)
	}
	for n := 0; n == 0; n, _ = r.shown() {
		if t.Context().Err() != nil {
			t.Fatal("it never comes")
		}
	}
}

func TestSSHIsSwitchedFromOutside(t *testing.T) {
	l := start(t, withSSH(Config{}))
	for range 2 {
		if err := l.SetSSH(false); err != nil || l.SSHAddr("") != "" {
			t.Fatalf("%v, SSH at %q", err, l.SSHAddr(""))
		}
		if err := l.SetSSH(true); err != nil {
			t.Fatal(err)
		}
		dialSSH(t, l)
	}
}
