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

// vimCmdTest is a host with a free licence and a running VM, and an SSH login.
type vimCmdTest struct {
	*testing.T
	lab *Lab
	ssh *ssh.Client
	vm  *object.VirtualMachine
}

func newVimCmdTest(t *testing.T, change func(*VM)) *vimCmdTest {
	t.Helper()
	spec := web01()
	spec.PoweredOn = true
	if change != nil {
		change(&spec)
	}
	l := startLab(t, withSSH(Config{ReadOnlyLicence: true, VMs: []VM{spec}}))
	vm, err := find.NewFinder(login(t, l).Client).VirtualMachine(t.Context(), "web01")
	if err != nil {
		t.Fatal(err)
	}
	return &vimCmdTest{t, l, dialSSH(t, l), vm}
}

// runVimCmd runs vim-cmd vmsvc/verb on the VM.
func (r *vimCmdTest) runVimCmd(verb, rest string) (out string, status int) {
	r.Helper()
	return runCommand(r.T, r.ssh, fmt.Sprintf("vim-cmd vmsvc/%s %s %s", verb, r.vm.Reference().Value, rest))
}

// mustRunVimCmd is runVimCmd for commands that must succeed.
func (r *vimCmdTest) mustRunVimCmd(verb, rest string) string {
	r.Helper()
	out, status := r.runVimCmd(verb, rest)
	if status != 0 {
		r.Fatalf("%s: status %d, %s", verb, status, out)
	}
	return out
}

// apiState returns the number of snapshots in the API, and whether the VM needs consolidation.
func (r *vimCmdTest) apiState() (snapshots int, consolidate bool) {
	r.Helper()
	var vm mo.VirtualMachine
	if err := r.vm.Properties(r.Context(), r.vm.Reference(), []string{"snapshot", "runtime"}, &vm); err != nil {
		r.Fatal(err)
	}
	return len(snapshotsOf(vm.Snapshot)), vm.Runtime.ConsolidationNeeded
}

func (r *vimCmdTest) addFault(f Fault) {
	r.Helper()
	if _, err := r.lab.Faults().Add(f); err != nil {
		r.Fatal(err)
	}
}

var snapshotID = regexp.MustCompile(`Snapshot Id +: (\d+)`)

// snapshotIDs returns the numbers that snapshot.get prints.
func (r *vimCmdTest) snapshotIDs() (ids []string) {
	r.Helper()
	for _, m := range snapshotID.FindAllStringSubmatch(r.mustRunVimCmd("snapshot.get", ""), -1) {
		ids = append(ids, m[1])
	}
	return ids
}

// With the free licence, vim-cmd can create and remove snapshots, and the API shows them.
func TestVimCmdSnapshotsWithFreeLicence(t *testing.T) {
	r := newVimCmdTest(t, nil)
	if _, err := r.vm.CreateSnapshot(t.Context(), "no", "", false, false); err == nil {
		t.Error("the API created a snapshot")
	}
	if out := r.mustRunVimCmd("snapshot.get", ""); out != "Get Snapshot:\n" {
		t.Errorf("%q", out)
	}
	r.mustRunVimCmd("snapshot.create", "'one two' 'its text' 0 0")
	r.mustRunVimCmd("snapshot.create", "above '' 0 0")
	out := r.mustRunVimCmd("snapshot.get", "")
	for _, line := range []string{"|-ROOT\n--Snapshot Name        : one two\n", "--Snapshot Desciption  : its text\n", "--|-CHILD\n----Snapshot Name        : above\n"} {
		if !strings.Contains(out, line) {
			t.Errorf("no %q in\n%s", line, out)
		}
	}
	if n, _ := r.apiState(); n != 2 {
		t.Errorf("the API shows %d snapshots, want 2", n)
	}
	if out := r.mustRunVimCmd("snapshot.remove", r.snapshotIDs()[0]); !strings.Contains(out, "|-ROOT\n--Snapshot Name        : above\n") {
		t.Errorf("the remaining snapshot is not printed: %s", out)
	}
	r.mustRunVimCmd("snapshot.remove", r.snapshotIDs()[0])
	if n, _ := r.apiState(); n != 0 {
		t.Errorf("%d snapshots are left", n)
	}
	if n := r.lab.Stats().VimCmd["vmsvc/snapshot.create"]; n != 2 {
		t.Errorf("%d calls were counted, want 2", n)
	}
}

func TestVimCmdPower(t *testing.T) {
	r := newVimCmdTest(t, nil)
	checkState := func(want string) {
		t.Helper()
		if out := r.mustRunVimCmd("power.getstate", ""); out != "Retrieved runtime info\n"+want+"\n" {
			t.Errorf("%q, want %s", out, want)
		}
	}
	checkState("Powered on")
	r.mustRunVimCmd("power.shutdown", "")
	for !strings.Contains(r.mustRunVimCmd("power.getstate", ""), "off") { // the command does not wait for the guest
		if t.Context().Err() != nil {
			t.Fatal("the VM stays powered on")
		}
	}
	if out, status := r.runVimCmd("power.off", ""); status == 0 || !strings.Contains(out, "failed") {
		t.Errorf("off again: %d %s", status, out)
	}
	r.mustRunVimCmd("power.on", "")
	checkState("Powered on")
	r.mustRunVimCmd("power.off", "")
	checkState("Powered off")
}

func TestVimCmdRefuses(t *testing.T) {
	r := newVimCmdTest(t, func(v *VM) { v.Guest.NoTools = true })
	if out, status := r.runVimCmd("power.shutdown", ""); status != 1 || !strings.Contains(out, "(vim.fault.ToolsUnavailable) {") {
		t.Errorf("without tools: %d %s", status, out)
	}
	if out, status := r.runVimCmd("snapshot.remove", "77"); status != 1 || !strings.Contains(out, "vim.fault.NotFound") {
		t.Errorf("no such snapshot: %d %s", status, out)
	}
	if out, status := runCommand(t, r.ssh, "vim-cmd vmsvc/power.off 4711"); status != 1 || !strings.Contains(out, "Unable to find a VM") {
		t.Errorf("no such VM: %d %s", status, out)
	}
	if out, status := runCommand(t, r.ssh, "vim-cmd vmsvc/power.off"); status != 1 || !strings.Contains(out, "Usage") {
		t.Errorf("no VM: %d %s", status, out)
	}
}

func TestVimCmdFaults(t *testing.T) {
	r := newVimCmdTest(t, nil)
	for _, f := range []Fault{{Kind: FaultSnapshotCreate, Count: 1}, {Kind: FaultVMBusy, Count: 1}} {
		r.addFault(f)
		if out, status := r.runVimCmd("snapshot.create", "one '' 0 0"); status == 0 {
			t.Errorf("%s: the command succeeds: %s", f.Kind, out)
		}
	}
	r.addFault(Fault{Kind: FaultSnapshotCreate, Count: 1})
	r.addFault(Fault{Kind: FaultVimCmdQuiet, Count: 1})
	if out := r.mustRunVimCmd("snapshot.create", "one '' 0 0"); !strings.Contains(out, "failed") {
		t.Errorf("the output does not report the failure: %s", out)
	}
	if n, _ := r.apiState(); n != 0 {
		t.Fatalf("%d snapshots", n)
	}
	r.mustRunVimCmd("snapshot.create", "one '' 0 0")
	r.addFault(Fault{Kind: FaultSnapshotRemove, Count: 1})
	if _, status := r.runVimCmd("snapshot.remove", r.snapshotIDs()[0]); status == 0 {
		t.Error("the removal succeeds")
	}
	r.addFault(Fault{Kind: FaultSnapshotConsolidate, Count: 1})
	r.mustRunVimCmd("snapshot.remove", r.snapshotIDs()[0])
	if n, consolidate := r.apiState(); n != 0 || !consolidate {
		t.Errorf("%d snapshots, consolidation needed: %v", n, consolidate)
	}
}

// If vim-cmd does not wait for its task, the snapshot appears later.
func TestVimCmdReturnsBeforeTaskEnds(t *testing.T) {
	r := newVimCmdTest(t, nil)
	r.addFault(Fault{Kind: FaultVimCmdLate, Count: 1, Delay: Duration(20 * time.Millisecond)})
	if out := r.mustRunVimCmd("snapshot.create", "one '' 0 0"); out != "" {
		t.Errorf("%q", out)
	}
	for n := 0; n == 0; n, _ = r.apiState() {
		if t.Context().Err() != nil {
			t.Fatal("the snapshot does not appear")
		}
	}
}

func TestSetSSH(t *testing.T) {
	l := startLab(t, withSSH(Config{}))
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
