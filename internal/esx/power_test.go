package esx_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// reading is what the package calls as long as nobody asks for a power-off.
var reading = []string{"CreateContainerView", "DestroyView", "HasPrivilegeOnEntities", "Login", "NfcGetVmFiles", "QueryChangedDiskAreas", "QueryDateTime", "QueryOptions", "RetrieveInternalContent", "RetrievePropertiesEx", "RetrieveServiceContent"}

func TestReadingChangesNothing(t *testing.T) {
	for _, r := range []*rig{newESX(t), newVPX(t)} {
		// The simulator cannot answer these itself: package lab puts a request of its own in the
		// place of the simulator's, whose call then panics and never lets go of its lock.
		answer := nfcAnswers(t, "nfcService", "<service>nfc</service>")
		r.set(func(r *rig) { r.answer = answer })
		s := r.dial(t)
		vms, err := s.VMs(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s.Allocated(t.Context(), vms[0].Ref, "", vms[0].Disks[0].Key, whole(&vms[0].Disks[0]))
		s.NFCTicket(t.Context(), "vm-7")
		s.HostVersion(t.Context(), vms[0].Host)
		s.VMkernelNICs(t.Context(), vms[0].Host)
		s.ReadFile(t.Context(), vms[0].Datacenter, vms[0].Disks[0].Path, 1000)
		s.Condition(t.Context(), vms[0].Host)
		s.Settings(t.Context(), vms[0].Host, "Security.AccountLockFailures")
		s.HostTime(t.Context(), vms[0].Host)
		s.Sessions(t.Context())
		s.Lacking(t.Context(), inventory.OnVM, []inventory.MoRef{vms[0].Ref}, []string{"VirtualMachine.Interact.PowerOff"})
		s.Volumes(t.Context(), []inventory.MoRef{vms[0].Ref})
		cookie(t, s, "")
		if got := r.methods(); !slices.Equal(got, reading) {
			t.Errorf("called %q, want %q", got, reading)
		}
		for _, line := range r.requests() {
			login := strings.HasPrefix(line, "POST /api/session ") || strings.HasPrefix(line, "POST /rest/com/vmware/cis/session ") // for tags
			if !strings.HasPrefix(line, "GET ") && !strings.HasPrefix(line, "HEAD ") && !login {
				t.Errorf("request %q", line)
			}
		}
	}
}

// ladder is one VM and a guest that behaves as told.
type ladder struct {
	*rig
	s  *esx.Session
	vm *simulator.VirtualMachine
}

func newLadder(t *testing.T, tools bool) *ladder {
	r := newESX(t)
	r.clock.auto = true
	l := &ladder{rig: r, vm: r.model.Map().Any("VirtualMachine").(*simulator.VirtualMachine)}
	l.vm.Guest.ToolsRunningStatus = string(types.VirtualMachineToolsRunningStatusGuestToolsNotRunning)
	if tools {
		l.vm.Guest.ToolsRunningStatus = string(types.VirtualMachineToolsRunningStatusGuestToolsRunning)
	}
	l.s = r.dial(t)
	return l
}

// deafGuest accepts the request to shut down and does nothing.
func (l *ladder) deafGuest() {
	l.set(func(r *rig) {
		r.answer = func(c call, w http.ResponseWriter) bool {
			return c.method == "ShutdownGuest" && soapReply(w, c.method, "")
		}
	})
}

func (l *ladder) powerOff(ctx context.Context, o esx.PowerOffOptions) error {
	return l.s.PowerOff(ctx, inventory.MoRef(l.vm.Self.Value), o)
}

// check compares the VM's state and the calls that changed it.
func (l *ladder) check(t *testing.T, want types.VirtualMachinePowerState, writes ...string) {
	t.Helper()
	if got := l.vm.Runtime.PowerState; got != want {
		t.Errorf("VM is %s, want %s", got, want)
	}
	got := slices.DeleteFunc(l.methods(), func(m string) bool { return slices.Contains(reading, m) })
	if !slices.Equal(got, writes) {
		t.Errorf("wrote by %q, want %q", got, writes)
	}
}

const (
	on  = types.VirtualMachinePowerStatePoweredOn
	off = types.VirtualMachinePowerStatePoweredOff
)

func TestPowerOffOfAVMThatIsOff(t *testing.T) {
	l := newLadder(t, true)
	l.vm.Runtime.PowerState = off
	if err := l.powerOff(t.Context(), esx.PowerOffOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	l.check(t, off)
}

func TestPowerOffAsksTheGuest(t *testing.T) {
	l := newLadder(t, true)
	if err := l.powerOff(t.Context(), esx.PowerOffOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	l.check(t, off, "ShutdownGuest")
}

func TestGuestThatDoesNotShutDown(t *testing.T) {
	l := newLadder(t, true)
	l.deafGuest()
	before := l.clock.Now()
	err := l.powerOff(t.Context(), esx.PowerOffOptions{Wait: time.Minute})
	if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "within 1m0s") || !strings.Contains(fault.HintOf(err), "--force") {
		t.Errorf("%v; hint %q", err, fault.HintOf(err))
	}
	if waited := l.clock.Now().Sub(before); waited != time.Minute {
		t.Errorf("waited %v", waited)
	}
	l.check(t, on, "ShutdownGuest")
}

func TestGuestThatDoesNotShutDownIsForced(t *testing.T) {
	l := newLadder(t, true)
	l.deafGuest()
	if err := l.powerOff(t.Context(), esx.PowerOffOptions{Wait: time.Minute, Force: true}); err != nil {
		t.Fatal(err)
	}
	l.check(t, off, "PowerOffVM_Task", "ShutdownGuest")
}

func TestWithoutToolsTheGuestIsNotAsked(t *testing.T) {
	l := newLadder(t, false)
	err := l.powerOff(t.Context(), esx.PowerOffOptions{})
	if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "VMware Tools") {
		t.Errorf("%v", err)
	}
	l.check(t, on)
	if err := l.powerOff(t.Context(), esx.PowerOffOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	l.check(t, off, "PowerOffVM_Task")
}

func TestSuspendedVMKeepsItsMemoryWithoutForce(t *testing.T) {
	l := newLadder(t, true)
	l.vm.Runtime.PowerState = types.VirtualMachinePowerStateSuspended
	err := l.powerOff(t.Context(), esx.PowerOffOptions{})
	if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "suspended") {
		t.Errorf("%v", err)
	}
	l.check(t, types.VirtualMachinePowerStateSuspended)
}

// Tools die between the look and the request: the ladder goes on.
func TestToolsThatJustWent(t *testing.T) {
	l := newLadder(t, true)
	l.set(func(r *rig) {
		r.answer = func(c call, w http.ResponseWriter) bool {
			return c.method == "ShutdownGuest" && soapFault(w, "ToolsUnavailable", "")
		}
	})
	if err := l.powerOff(t.Context(), esx.PowerOffOptions{Wait: time.Minute, Force: true}); err != nil {
		t.Fatal(err)
	}
	l.check(t, off, "PowerOffVM_Task", "ShutdownGuest")
}

// Somebody else switches it off first.
func TestSwitchedOffMeanwhile(t *testing.T) {
	l := newLadder(t, false)
	l.set(func(r *rig) {
		r.answer = func(c call, _ http.ResponseWriter) bool {
			if c.method == "PowerOffVM_Task" {
				l.vm.Runtime.PowerState = off
			}
			return false
		}
	})
	if err := l.powerOff(t.Context(), esx.PowerOffOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	l.check(t, off, "PowerOffVM_Task")
}

func TestFreeLicenceRefusesThePowerSwitch(t *testing.T) {
	l := newLadder(t, true)
	l.set(func(r *rig) {
		r.answer = func(c call, w http.ResponseWriter) bool {
			return c.method == "ShutdownGuest" && soapFault(w, "RestrictedVersion", "")
		}
	})
	err := l.powerOff(t.Context(), esx.PowerOffOptions{})
	if !fault.Is(err, fault.Unsupported) || !strings.Contains(fault.HintOf(err), "licence") {
		t.Errorf("%v; hint %q", err, fault.HintOf(err))
	}
}

func TestCanceledPowerOffStopsWaiting(t *testing.T) {
	l := newLadder(t, true)
	l.deafGuest()
	<-l.clock.asked // the keep-alive
	l.clock.stand()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-l.clock.asked
		cancel()
	}()
	if err := l.powerOff(ctx, esx.PowerOffOptions{}); !fault.Is(err, fault.Canceled) {
		t.Fatal(err)
	}
}

func TestPowerOffOfNobody(t *testing.T) {
	if err := newLadder(t, true).s.PowerOff(t.Context(), "vm-gone", esx.PowerOffOptions{}); !fault.Is(err, fault.NotFound) {
		t.Fatal(err)
	}
}
