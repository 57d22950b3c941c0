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

// readMethods are the API methods that the package calls to read only.
var readMethods = []string{"CreateContainerView", "DestroyView", "HasPrivilegeOnEntities", "Login", "NfcGetVmFiles", "QueryChangedDiskAreas", "QueryDateTime", "QueryOptions", "RetrieveInternalContent", "RetrievePropertiesEx", "RetrieveServiceContent"}

func TestReadCallsChangeNothingOnTheHost(t *testing.T) {
	for _, r := range []*simServer{newESX(t), newVPX(t)} {
		// The simulator cannot answer the NFC calls: package lab replaces its request types, so
		// the simulator's call panics and keeps its lock.
		answer := nfcAnswers(t, "nfcService", "<service>nfc</service>")
		r.set(func(r *simServer) { r.answer = answer })
		s := r.dial(t)
		vms, err := s.VMs(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s.Allocated(t.Context(), vms[0].Ref, "", vms[0].Disks[0].Key, wholeDisk(&vms[0].Disks[0]))
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
		sessionCookie(t, s, "")
		if got := r.calledMethods(); !slices.Equal(got, readMethods) {
			t.Errorf("called %q, want %q", got, readMethods)
		}
		for _, line := range r.requests() {
			login := strings.HasPrefix(line, "POST /api/session ") || strings.HasPrefix(line, "POST /rest/com/vmware/cis/session ") // login for tags
			if !strings.HasPrefix(line, "GET ") && !strings.HasPrefix(line, "HEAD ") && !login {
				t.Errorf("request %q", line)
			}
		}
	}
}

// powerTest is a simulated host with one VM for tests of PowerOff.
type powerTest struct {
	*simServer
	s  *esx.Session
	vm *simulator.VirtualMachine
}

func newPowerTest(t *testing.T, tools bool) *powerTest {
	r := newESX(t)
	r.clock.auto = true
	l := &powerTest{simServer: r, vm: r.model.Map().Any("VirtualMachine").(*simulator.VirtualMachine)}
	l.vm.Guest.ToolsRunningStatus = string(types.VirtualMachineToolsRunningStatusGuestToolsNotRunning)
	if tools {
		l.vm.Guest.ToolsRunningStatus = string(types.VirtualMachineToolsRunningStatusGuestToolsRunning)
	}
	l.s = r.dial(t)
	return l
}

// ignoreShutdown makes the guest accept the request to shut down and do nothing.
func (l *powerTest) ignoreShutdown() {
	l.set(func(r *simServer) {
		r.answer = func(c call, w http.ResponseWriter) bool {
			return c.method == "ShutdownGuest" && soapReply(w, c.method, "")
		}
	})
}

func (l *powerTest) powerOff(ctx context.Context, o esx.PowerOffOptions) error {
	return l.s.PowerOff(ctx, inventory.MoRef(l.vm.Self.Value), o)
}

// checkState compares the VM's power state and the methods that changed the host.
func (l *powerTest) checkState(t *testing.T, want types.VirtualMachinePowerState, writes ...string) {
	t.Helper()
	if got := l.vm.Runtime.PowerState; got != want {
		t.Errorf("VM is %s, want %s", got, want)
	}
	got := slices.DeleteFunc(l.calledMethods(), func(m string) bool { return slices.Contains(readMethods, m) })
	if !slices.Equal(got, writes) {
		t.Errorf("changed the host with %q, want %q", got, writes)
	}
}

const (
	on  = types.VirtualMachinePowerStatePoweredOn
	off = types.VirtualMachinePowerStatePoweredOff
)

func TestPowerOffOfAPoweredOffVM(t *testing.T) {
	l := newPowerTest(t, true)
	l.vm.Runtime.PowerState = off
	if err := l.powerOff(t.Context(), esx.PowerOffOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	l.checkState(t, off)
}

func TestPowerOffShutsDownTheGuest(t *testing.T) {
	l := newPowerTest(t, true)
	if err := l.powerOff(t.Context(), esx.PowerOffOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	l.checkState(t, off, "ShutdownGuest")
}

func TestShutdownTimeoutIsAConflict(t *testing.T) {
	l := newPowerTest(t, true)
	l.ignoreShutdown()
	before := l.clock.Now()
	err := l.powerOff(t.Context(), esx.PowerOffOptions{Wait: time.Minute})
	if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "within 1m0s") || !strings.Contains(fault.HintOf(err), "--force") {
		t.Errorf("%v; hint %q", err, fault.HintOf(err))
	}
	if waited := l.clock.Now().Sub(before); waited != time.Minute {
		t.Errorf("waited %v", waited)
	}
	l.checkState(t, on, "ShutdownGuest")
}

func TestForcePowersOffAfterShutdownTimeout(t *testing.T) {
	l := newPowerTest(t, true)
	l.ignoreShutdown()
	if err := l.powerOff(t.Context(), esx.PowerOffOptions{Wait: time.Minute, Force: true}); err != nil {
		t.Fatal(err)
	}
	l.checkState(t, off, "PowerOffVM_Task", "ShutdownGuest")
}

func TestPowerOffWithoutTools(t *testing.T) {
	l := newPowerTest(t, false)
	err := l.powerOff(t.Context(), esx.PowerOffOptions{})
	if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "VMware Tools") {
		t.Errorf("%v", err)
	}
	l.checkState(t, on)
	if err := l.powerOff(t.Context(), esx.PowerOffOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	l.checkState(t, off, "PowerOffVM_Task")
}

func TestSuspendedVMKeepsItsMemoryWithoutForce(t *testing.T) {
	l := newPowerTest(t, true)
	l.vm.Runtime.PowerState = types.VirtualMachinePowerStateSuspended
	err := l.powerOff(t.Context(), esx.PowerOffOptions{})
	if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "suspended") {
		t.Errorf("%v", err)
	}
	l.checkState(t, types.VirtualMachinePowerStateSuspended)
}

// If VMware Tools stop between the check and the request, PowerOff goes on to the next step.
func TestToolsStopBeforeTheShutdown(t *testing.T) {
	l := newPowerTest(t, true)
	l.set(func(r *simServer) {
		r.answer = func(c call, w http.ResponseWriter) bool {
			return c.method == "ShutdownGuest" && soapFault(w, "ToolsUnavailable", "")
		}
	})
	if err := l.powerOff(t.Context(), esx.PowerOffOptions{Wait: time.Minute, Force: true}); err != nil {
		t.Fatal(err)
	}
	l.checkState(t, off, "PowerOffVM_Task", "ShutdownGuest")
}

// PowerOff succeeds if another client powers off the VM first.
func TestPowerOffToleratesConcurrentPowerOff(t *testing.T) {
	l := newPowerTest(t, false)
	l.set(func(r *simServer) {
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
	l.checkState(t, off, "PowerOffVM_Task")
}

func TestPowerOffWithFreeLicence(t *testing.T) {
	l := newPowerTest(t, true)
	l.set(func(r *simServer) {
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
	l := newPowerTest(t, true)
	l.ignoreShutdown()
	<-l.clock.timers // timer of the keep-alive
	l.clock.disableAuto()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-l.clock.timers
		cancel()
	}()
	if err := l.powerOff(ctx, esx.PowerOffOptions{}); !fault.Is(err, fault.Canceled) {
		t.Fatal(err)
	}
}

func TestPowerOffOfAMissingVM(t *testing.T) {
	if err := newPowerTest(t, true).s.PowerOff(t.Context(), "vm-gone", esx.PowerOffOptions{}); !fault.Is(err, fault.NotFound) {
		t.Fatal(err)
	}
}
