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

// at once, as far as the context allows.
func atOnce(ctx context.Context, _ time.Duration) error { return ctx.Err() }

// delivered is a site where a VM with an empty disk is, off.
func delivered(t *testing.T, d *daemon, vm *inventory.VM) (*site, targets.Definition) {
	t.Helper()
	s := newSite(t, d, false)
	s.place.wait = atOnce
	_, to, def := onStage(t, vm, s.place, make([]byte, 1<<20))
	if err := to.Publish(t.Context(), def); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.powerOff(t, vm) })
	return s, def
}

// withoutCards needs no network.
func withoutCards() *inventory.VM {
	vm := webVM(1 << 20)
	vm.NICs = nil
	return vm
}

// state is what libvirt says of a domain: that it is running, and its ID, which a start changes.
func (s *site) state(t *testing.T, vm *inventory.VM) string {
	t.Helper()
	return strings.TrimSpace(s.virsh(t, "domstate", vm.UUID)) + " " + strings.TrimSpace(s.virsh(t, "domid", vm.UUID))
}

func (s *site) powerOff(t *testing.T, vm *inventory.VM) {
	t.Helper()
	if strings.HasPrefix(s.state(t, vm), "shut off") {
		return
	}
	s.virsh(t, "destroy", vm.UUID)
}

// A start that is done is not done again, whoever did it, and what somebody paused stays so.
func TestStartedVMIsLeftAsItIs(t *testing.T) {
	t.Parallel()
	vm := withoutCards()
	s, def := delivered(t, ownDaemon(t), vm)
	started, err := s.place.Start(t.Context(), def)
	if err != nil {
		t.Fatalf("%v (%s)", err, fault.HintOf(err))
	}
	if want := "virsh -c qemu:///system console 'web 01'"; started.Console != want {
		t.Errorf("console %q, want %q", started.Console, want)
	}
	first := s.state(t, vm)
	if !strings.HasPrefix(first, "running") {
		t.Errorf("it is %s", first)
	}
	again, err := s.place.Start(t.Context(), def)
	if now := s.state(t, vm); err != nil || again != started || now != first {
		t.Errorf("started again: %+v, %v, it is %s and was %s", again, err, now, first)
	}
	s.virsh(t, "suspend", vm.UUID)
	if _, err := s.place.Start(t.Context(), def); !fault.Is(err, fault.Conflict) || !strings.Contains(fault.HintOf(err), "resume 'web 01'") {
		t.Errorf("a VM that is paused: %v (%s)", err, fault.HintOf(err))
	}
	if now := s.state(t, vm); !strings.HasPrefix(now, "paused") {
		t.Errorf("what was paused is %s", now)
	}
}

// A VM with Secure Boot and a TPM starts. Neither its variables nor its TPM's state are left when it is withdrawn.
func TestStartsWithSecureBootAndTPM(t *testing.T) {
	t.Parallel()
	vm := withoutCards()
	vm.Firmware, vm.SecureBoot, vm.VTPM = inventory.EFI, true, true
	d := ownDaemon(t)
	s := newSite(t, d, false)
	s.place.wait = atOnce
	_, to, def := onStage(t, vm, s.place, make([]byte, 1<<20))
	if err := to.Publish(t.Context(), def); err != nil {
		t.Fatal(err)
	}
	if _, err := s.place.Start(t.Context(), def); err != nil {
		t.Fatalf("%v (%s)", err, fault.HintOf(err))
	}
	if now := s.state(t, vm); !strings.HasPrefix(now, "running") {
		t.Errorf("it is %s", now)
	}
	if kept := d.keeps(t, "qemu/nvram", "swtpm"); len(kept) != 2 {
		t.Errorf("libvirt keeps %q, want variables and a TPM's state", kept)
	}
	s.powerOff(t, vm)
	if err := to.Withdraw(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	if left := append(s.things(t), d.keeps(t, "qemu/nvram", "swtpm")...); len(left) > 0 {
		t.Errorf("%q is left", left)
	}
}

// Whichever call of a start is lost or not answered, the next start finds what there is.
func TestStartGoesOnWhereItWasCutOff(t *testing.T) {
	t.Parallel()
	const calls = 8 // until the domain is looked at for the first time
	vm := withoutCards()
	s, def := delivered(t, ownDaemon(t), vm)
	left := 0 // running
	for _, fate := range []targettest.Outcome{targettest.Lost, targettest.Unanswered} {
		for n := 1; n <= calls; n++ {
			s.tap.SetHook(func(call int) targettest.Outcome {
				if call == n {
					return fate
				}
				return targettest.Pass
			})
			_, err := s.place.Start(t.Context(), def)
			s.tap.SetHook(nil)
			if !fault.Is(err, fault.Transient) || fault.HintOf(err) == "" {
				t.Errorf("call %d, fate %d: %v (%s)", n, fate, err, fault.HintOf(err))
			}
			before := s.state(t, vm)
			if strings.HasPrefix(before, "shut off") {
				continue
			}
			left++
			if _, err := s.place.Start(t.Context(), def); err != nil {
				t.Errorf("after call %d, fate %d: %v", n, fate, err)
			}
			if now := s.state(t, vm); now != before {
				t.Errorf("after call %d, fate %d: it was %s and is %s", n, fate, before, now)
			}
			s.powerOff(t, vm)
		}
	}
	if left != 3 { // not answered, and twice not looked at
		t.Errorf("%d starts were done and not told", left)
	}
	if _, err := s.place.Start(t.Context(), def); err != nil {
		t.Error(err)
	}
}

// A VM that is on for a moment is not started.
func TestStartedVMThatGoesOffAtOnce(t *testing.T) {
	t.Parallel()
	vm := withoutCards()
	s, def := delivered(t, ownDaemon(t), vm)
	waits := 0
	s.place.wait = func(context.Context, time.Duration) error {
		if waits++; waits == 3 {
			s.powerOff(t, vm)
		}
		return nil
	}
	_, err := s.place.Start(t.Context(), def)
	if !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), "destroyed") || !strings.Contains(fault.HintOf(err), "less /var/log/libvirt/qemu/'web 01.log'") {
		t.Errorf("%v (%s)", err, fault.HintOf(err))
	}
	if now := s.state(t, vm); !strings.HasPrefix(now, "shut off") { // it is still defined
		t.Errorf("the domain is %s", now)
	}
	s.place.wait = atOnce
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.place.Start(ctx, def); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

// What keeps a VM from starting is told with what to do, and nothing is changed that is not ours.
func TestVMsThatDoNotStart(t *testing.T) {
	t.Parallel()
	vm := webVM(1 << 20)
	s, def := delivered(t, ownDaemon(t), vm)
	expect := func(what string, kind fault.Kind, remedy string) {
		t.Helper()
		_, err := s.place.Start(t.Context(), def)
		if !fault.Is(err, kind) || !strings.Contains(fault.HintOf(err), remedy) {
			t.Errorf("%s: %v (%v, remedy %q), want %v and %q", what, err, fault.KindOf(err), fault.HintOf(err), kind, remedy)
		}
		if now := s.state(t, vm); !strings.HasPrefix(now, "shut off") {
			t.Errorf("%s: it is %s", what, now)
		}
	}
	expect("no network", fault.Conflict, "create the network")
	file := t.TempDir() + "/network.xml"
	write(t, file, "<network><name>default</name><bridge name='virbr0'/></network>")
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
	if _, err := s.place.Start(t.Context(), def); err != nil {
		t.Errorf("with all that it needs: %v (%s)", err, fault.HintOf(err))
	}
}

func TestStartOfNobodysOrAnothersVM(t *testing.T) {
	t.Parallel()
	s := newSite(t, sharedDaemon(t), false)
	vm := withoutCards()
	stage, _, def := onStage(t, vm, s.place, make([]byte, 1<<20))
	if _, err := s.place.Start(t.Context(), def); !fault.Is(err, fault.NotFound) || fault.HintOf(err) == "" {
		t.Errorf("no VM: %v (%s)", err, fault.HintOf(err))
	}
	text, err := stage.Domain(def)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.DefineDomain(t.Context(), text); err != nil {
		t.Fatal(err)
	}
	if _, err := s.place.Start(t.Context(), def); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
		t.Errorf("another's VM: %v (%s)", err, fault.HintOf(err))
	}
	if now := s.state(t, vm); !strings.HasPrefix(now, "shut off") {
		t.Errorf("another's VM is %s", now)
	}
}

// Here libvirt has no KVM, and some causes cannot be had: those are told by libvirt's number or by QEMU's words.
func TestCausesOfRefusedStarts(t *testing.T) {
	t.Parallel()
	s := newSite(t, sharedDaemon(t), false)
	bare := &libvirtxml.Domain{Type: "qemu"}
	tests := map[string]struct {
		domain *libvirtxml.Domain
		said   rpc.Error
		kind   fault.Kind
		remedy string
	}{
		"no KVM":             {&libvirtxml.Domain{Type: "kvm"}, rpc.Error{Code: 1, Message: "KVM is not available"}, fault.Unsupported, "--domain-type qemu"},
		"no memory, by QEMU": {bare, rpc.Error{Code: 1, Message: "cannot set up guest memory 'pc.ram': Cannot allocate memory"}, fault.Full, "reduce the VM's memory"},
		"no memory":          {bare, rpc.Error{Code: rpc.SystemError, Errno: syscall.ENOMEM}, fault.Full, "reduce the VM's memory"},
		"another's image":    {bare, rpc.Error{Code: 1, Message: "Could not open '/srv/a.raw': Permission denied"}, fault.Denied, "AppArmor"},
		"no bridge":          {bare, rpc.Error{Code: rpc.SystemError, Errno: syscall.ENODEV}, fault.NotFound, "create the bridge"},
		"who knows":          {bare, rpc.Error{Code: 1, Message: "x"}, fault.Unsupported, "less /var/log/libvirt/qemu/-rf.log; virsh -c qemu:///system start -- -rf"},
	}
	for name, tt := range tests {
		err := s.place.newStarter().startError(t.Context(), s.client, rpc.Domain{Name: "-rf"}, tt.domain, &tt.said)
		if !fault.Is(err, tt.kind) || !strings.Contains(fault.HintOf(err), tt.remedy) || !errors.Is(err, &tt.said) {
			t.Errorf("%s: %v (%v, remedy %q), want %v and %q", name, err, fault.KindOf(err), fault.HintOf(err), tt.kind, tt.remedy)
		}
	}
	broken := errors.New("broken")
	if err := s.place.newStarter().startError(t.Context(), s.client, rpc.Domain{}, bare, broken); err != broken {
		t.Errorf("a connection that broke: %v", err)
	}
}

// What is no running domain is named, with what to do.
func TestStatesThatAreNotRunning(t *testing.T) {
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
		t.Errorf("under way: %v", err)
	}
}

// Who has no serial port is seen on a screen, or not at all.
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
			t.Errorf("%q, want %q", got, want)
		}
	}
}
