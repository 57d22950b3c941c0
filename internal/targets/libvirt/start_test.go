package libvirt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"libvirt.org/go/libvirtxml"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/libvirt/rpc"
	"github.com/decamp/decamp/internal/targets/targettest"
)

// noWait returns at once.
func noWait(ctx context.Context, _ time.Duration) error { return ctx.Err() }

// newDeliveredVM returns a site with a delivered VM that has an empty disk and is off.
func newDeliveredVM(t *testing.T, d *daemon, vm *inventory.VM) (*site, targets.Definition) {
	t.Helper()
	s := newSite(t, d, false)
	s.platform.wait = noWait
	_, to, def := stageVM(t, vm, s.platform, make([]byte, 1<<20))
	if err := to.Publish(t.Context(), def); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.powerOff(t, vm) })
	return s, def
}

// vmWithoutNICs returns a VM that requires no network.
func vmWithoutNICs() *inventory.VM {
	vm := webVM(1 << 20)
	vm.NICs = nil
	return vm
}

// domainState returns libvirt's state of a domain and its ID, which a start changes.
func (s *site) domainState(t *testing.T, vm *inventory.VM) string {
	t.Helper()
	return strings.TrimSpace(s.virsh(t, "domstate", vm.UUID)) + " " + strings.TrimSpace(s.virsh(t, "domid", vm.UUID))
}

func (s *site) powerOff(t *testing.T, vm *inventory.VM) {
	t.Helper()
	if strings.HasPrefix(s.domainState(t, vm), "shut off") {
		return
	}
	s.virsh(t, "destroy", vm.UUID)
}

// Start does not start a VM again that runs, even if another client started it. It does not resume a paused VM.
func TestRunningVMIsNotStartedAgain(t *testing.T) {
	t.Parallel()
	vm := vmWithoutNICs()
	s, def := newDeliveredVM(t, ownDaemon(t), vm)
	started, err := s.platform.Start(t.Context(), def)
	if err != nil {
		t.Fatalf("%v (%s)", err, fault.HintOf(err))
	}
	if want := "virsh -c qemu:///system console 'web 01'"; started.Console != want {
		t.Errorf("got console %q, want %q", started.Console, want)
	}
	first := s.domainState(t, vm)
	if !strings.HasPrefix(first, "running") {
		t.Errorf("the VM is %s, want running", first)
	}
	again, err := s.platform.Start(t.Context(), def)
	if now := s.domainState(t, vm); err != nil || again != started || now != first {
		t.Errorf("second Start: %+v, %v; the VM is %s, before %s", again, err, now, first)
	}
	s.virsh(t, "suspend", vm.UUID)
	if _, err := s.platform.Start(t.Context(), def); !fault.Is(err, fault.Conflict) || !strings.Contains(fault.HintOf(err), "resume 'web 01'") {
		t.Errorf("Start of a paused VM: %v (%s)", err, fault.HintOf(err))
	}
	if now := s.domainState(t, vm); !strings.HasPrefix(now, "paused") {
		t.Errorf("the paused VM is %s", now)
	}
}

// A VM with Secure Boot and a TPM starts. Withdraw removes its variables and the state of its TPM.
func TestStartsWithSecureBootAndTPM(t *testing.T) {
	t.Parallel()
	vm := vmWithoutNICs()
	vm.Firmware, vm.SecureBoot, vm.VTPM = inventory.EFI, true, true
	d := ownDaemon(t)
	s := newSite(t, d, false)
	s.platform.wait = noWait
	_, to, def := stageVM(t, vm, s.platform, make([]byte, 1<<20))
	if err := to.Publish(t.Context(), def); err != nil {
		t.Fatal(err)
	}
	if _, err := s.platform.Start(t.Context(), def); err != nil {
		t.Fatalf("%v (%s)", err, fault.HintOf(err))
	}
	if now := s.domainState(t, vm); !strings.HasPrefix(now, "running") {
		t.Errorf("the VM is %s, want running", now)
	}
	if stored := d.libvirtFiles(t, "qemu/nvram", "swtpm"); len(stored) != 2 {
		t.Errorf("libvirt has %q, want variables and the state of a TPM", stored)
	}
	s.powerOff(t, vm)
	if err := to.Withdraw(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	if left := append(s.listObjects(t), d.libvirtFiles(t, "qemu/nvram", "swtpm")...); len(left) > 0 {
		t.Errorf("remaining objects: %q", left)
	}
}

// If any one call of a Start or its answer is lost, the next Start succeeds and does not start the VM again.
func TestStartSucceedsAfterLostCall(t *testing.T) {
	t.Parallel()
	const calls = 8 // number of calls until Start reads the state for the first time
	vm := vmWithoutNICs()
	s, def := newDeliveredVM(t, ownDaemon(t), vm)
	running := 0 // number of failed starts that left the VM running
	for _, outcome := range []targettest.Outcome{targettest.Lost, targettest.Unanswered} {
		for n := 1; n <= calls; n++ {
			s.hook.SetHook(func(call int) targettest.Outcome {
				if call == n {
					return outcome
				}
				return targettest.Pass
			})
			_, err := s.platform.Start(t.Context(), def)
			s.hook.SetHook(nil)
			if !fault.Is(err, fault.Transient) || fault.HintOf(err) == "" {
				t.Errorf("call %d, outcome %d: %v (%s)", n, outcome, err, fault.HintOf(err))
			}
			before := s.domainState(t, vm)
			if strings.HasPrefix(before, "shut off") {
				continue
			}
			running++
			if _, err := s.platform.Start(t.Context(), def); err != nil {
				t.Errorf("after call %d, outcome %d: %v", n, outcome, err)
			}
			if now := s.domainState(t, vm); now != before {
				t.Errorf("after call %d, outcome %d: state changes from %s to %s", n, outcome, before, now)
			}
			s.powerOff(t, vm)
		}
	}
	if running != 3 { // one unanswered start, and two lost or unanswered reads of the state
		t.Errorf("%d failed starts left the VM running, want 3", running)
	}
	if _, err := s.platform.Start(t.Context(), def); err != nil {
		t.Error(err)
	}
}

// Start fails if the VM powers off immediately after the start.
func TestStartFailsIfVMPowersOff(t *testing.T) {
	t.Parallel()
	vm := vmWithoutNICs()
	s, def := newDeliveredVM(t, ownDaemon(t), vm)
	waits := 0
	s.platform.wait = func(context.Context, time.Duration) error {
		if waits++; waits == 3 {
			s.powerOff(t, vm)
		}
		return nil
	}
	_, err := s.platform.Start(t.Context(), def)
	if !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), "destroyed") || !strings.Contains(fault.HintOf(err), "less /var/log/libvirt/qemu/'web 01.log'") {
		t.Errorf("got %v (hint %q)", err, fault.HintOf(err))
	}
	if now := s.domainState(t, vm); !strings.HasPrefix(now, "shut off") { // and still defined
		t.Errorf("the domain is %s, want shut off", now)
	}
	s.platform.wait = noWait
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.platform.Start(ctx, def); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

// If a VM cannot start, the error has a hint, and the VM stays off.
func TestFailedStartsHaveHints(t *testing.T) {
	t.Parallel()
	vm := webVM(1 << 20)
	s, def := newDeliveredVM(t, ownDaemon(t), vm)
	expect := func(cause string, kind fault.Kind, hint string) {
		t.Helper()
		_, err := s.platform.Start(t.Context(), def)
		if !fault.Is(err, kind) || !strings.Contains(fault.HintOf(err), hint) {
			t.Errorf("%s: got %v (%v, hint %q), want %v and %q", cause, err, fault.KindOf(err), fault.HintOf(err), kind, hint)
		}
		if now := s.domainState(t, vm); !strings.HasPrefix(now, "shut off") {
			t.Errorf("%s: the VM is %s, want shut off", cause, now)
		}
	}
	expect("no network", fault.Conflict, "create the network")
	file := t.TempDir() + "/network.xml"
	writeFile(t, file, "<network><name>default</name><bridge name='virbr0'/></network>")
	s.virsh(t, "net-define", file)
	expect("a network that is not active", fault.Conflict, "virsh -c qemu:///system net-start default")
	s.virsh(t, "net-start", "default")

	volume := fmt.Sprintf("%s/web_01-%s-disk0.raw", s.pool, sourceID(vm))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Rename(volume, volume+".away"))
	expect("no volume", fault.NotFound, "edit 'web 01'")
	must(os.Rename(volume+".away", volume))
	if _, err := s.platform.Start(t.Context(), def); err != nil {
		t.Errorf("Start with all that the VM requires: %v (%s)", err, fault.HintOf(err))
	}
}

func TestStartOfAMissingOrForeignVM(t *testing.T) {
	t.Parallel()
	s := newSite(t, sharedDaemon(t), false)
	vm := vmWithoutNICs()
	stage, _, def := stageVM(t, vm, s.platform, make([]byte, 1<<20))
	if _, err := s.platform.Start(t.Context(), def); !fault.Is(err, fault.NotFound) || fault.HintOf(err) == "" {
		t.Errorf("no VM: %v (%s)", err, fault.HintOf(err))
	}
	text, err := stage.Domain(def)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.DefineDomain(t.Context(), text); err != nil {
		t.Fatal(err)
	}
	if _, err := s.platform.Start(t.Context(), def); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
		t.Errorf("foreign VM: %v (%s)", err, fault.HintOf(err))
	}
	if now := s.domainState(t, vm); !strings.HasPrefix(now, "shut off") {
		t.Errorf("the foreign VM is %s", now)
	}
}

// startError finds the cause by libvirt's error number or QEMU's message. This libvirt has no KVM, and some causes
// cannot be produced here.
func TestCausesOfRefusedStarts(t *testing.T) {
	t.Parallel()
	s := newSite(t, sharedDaemon(t), false)
	bare := &libvirtxml.Domain{Type: "qemu"}
	tests := map[string]struct {
		domain *libvirtxml.Domain
		err    rpc.Error
		kind   fault.Kind
		hint   string
	}{
		"no KVM":                 {&libvirtxml.Domain{Type: "kvm"}, rpc.Error{Code: 1, Message: "KVM is not available"}, fault.Unsupported, "--domain-type qemu"},
		"no memory, by QEMU":     {bare, rpc.Error{Code: 1, Message: "cannot set up guest memory 'pc.ram': Cannot allocate memory"}, fault.Full, "reduce the VM's memory"},
		"no memory":              {bare, rpc.Error{Code: rpc.SystemError, Errno: syscall.ENOMEM}, fault.Full, "reduce the VM's memory"},
		"no access to the image": {bare, rpc.Error{Code: 1, Message: "Could not open '/srv/a.raw': Permission denied"}, fault.Denied, "AppArmor"},
		"no bridge":              {bare, rpc.Error{Code: rpc.SystemError, Errno: syscall.ENODEV}, fault.NotFound, "create the bridge"},
		"unknown cause":          {bare, rpc.Error{Code: 1, Message: "x"}, fault.Unsupported, "less /var/log/libvirt/qemu/-rf.log; virsh -c qemu:///system start -- -rf"},
	}
	for name, tt := range tests {
		err := s.platform.newStarter().startError(t.Context(), s.client, rpc.Domain{Name: "-rf"}, tt.domain, &tt.err)
		if !fault.Is(err, tt.kind) || !strings.Contains(fault.HintOf(err), tt.hint) || !errors.Is(err, &tt.err) {
			t.Errorf("%s: got %v (%v, hint %q), want %v and %q", name, err, fault.KindOf(err), fault.HintOf(err), tt.kind, tt.hint)
		}
	}
	broken := errors.New("broken")
	if err := s.platform.newStarter().startError(t.Context(), s.client, rpc.Domain{}, bare, broken); err != broken {
		t.Errorf("a broken connection: got %v", err)
	}
}

// The error for each state other than running has a hint.
func TestNonRunningStatesHaveHints(t *testing.T) {
	t.Parallel()
	p, err := New("qemu+ssh://root@kvm1/system", Options{})
	if err != nil {
		t.Fatal(err)
	}
	for state, want := range map[rpc.State]string{
		rpc.Running: "", rpc.Blocked: "", rpc.Paused: "resume", rpc.Stopping: "domstate", rpc.Crashed: "destroy", rpc.Asleep: "dompmwakeup",
	} {
		err := p.newStarter().checkRunning(rpc.Domain{Name: "web01"}, state, 0)
		if (err == nil) != (want == "") || err != nil && (!fault.Is(err, fault.Conflict) || !strings.Contains(fault.HintOf(err), "virsh -c qemu+ssh://root@kvm1/system "+want)) {
			t.Errorf("state %d: %v (%s)", state, err, fault.HintOf(err))
		}
	}
	if err := p.newStarter().checkRunning(rpc.Domain{}, rpc.Paused, rpc.PausedByIO); !strings.Contains(fault.HintOf(err), "full") {
		t.Errorf("a full pool: %v (%s)", err, fault.HintOf(err))
	}
	if err := p.newStarter().checkRunning(rpc.Domain{}, rpc.Paused, rpc.PausedToStart); !fault.Is(err, fault.Transient) {
		t.Errorf("a start in progress: %v", err)
	}
}

// The console command uses the serial port, or else the screen, or else is empty.
func TestConsole(t *testing.T) {
	t.Parallel()
	p, err := New("qemu:///session", Options{})
	if err != nil {
		t.Fatal(err)
	}
	serial := &libvirtxml.DomainDeviceList{Serials: make([]libvirtxml.DomainSerial, 1), Graphics: make([]libvirtxml.DomainGraphic, 1)}
	for want, devices := range map[string]*libvirtxml.DomainDeviceList{
		"virsh -c qemu:///session console -- -a": serial,
		"virt-viewer -c qemu:///session -- -a":   {Graphics: serial.Graphics},
		"":                                       {},
	} {
		if got := p.at.consoleCommand("-a", &libvirtxml.Domain{Devices: devices}); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
