package vsphere

import (
	"context"
	"testing"
	"time"

	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/types"
)

func createSnapshot(t *testing.T, c *vim25.Client, ref types.ManagedObjectReference) {
	t.Helper()
	task, err := object.NewVirtualMachine(c, ref).CreateSnapshot(context.Background(), "s", "", false, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := task.Wait(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func powerStateOf(t *testing.T, c *vim25.Client, name string) string {
	t.Helper()
	return string(allVMs(t, c)[name].Runtime.PowerState)
}

func runningVM(g Guest) VM {
	vm := web01()
	vm.PoweredOn, vm.Guest = true, g
	return vm
}

func TestGuestShutsDownAfterItsDelay(t *testing.T) {
	now := newClock()
	l := startLab(t, Config{Clock: now.Now, VMs: []VM{runningVM(Guest{ShutdownDelay: Duration(time.Minute)})}})
	c := login(t, l)
	vm := object.NewVirtualMachine(c.Client, allVMs(t, c.Client)["web01"].Self)
	if err := vm.ShutdownGuest(t.Context()); err != nil {
		t.Fatal(err)
	}
	now.advance(59 * time.Second)
	if got := powerStateOf(t, c.Client, "web01"); got != "poweredOn" {
		t.Errorf("%s before the delay", got)
	}
	now.advance(time.Second)
	if got := powerStateOf(t, c.Client, "web01"); got != "poweredOff" {
		t.Errorf("%s after the delay", got)
	}
	if got := fetchStatus(t, newClient(t, l), folderRequest(t, l, "HEAD", folderURL(l, flat))); got != 200 {
		t.Errorf("the disk of the VM that was shut down: %d", got)
	}
}

// The guest shuts down after its delay even if the client only waits for a property change.
func TestGuestShutsDownOnTheRealClock(t *testing.T) {
	l := startLab(t, Config{VMs: []VM{runningVM(Guest{ShutdownDelay: Duration(50 * time.Millisecond)})}})
	c := login(t, l)
	vm := object.NewVirtualMachine(c.Client, allVMs(t, c.Client)["web01"].Self)
	if err := vm.ShutdownGuest(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), maxWait)
	defer cancel()
	if err := vm.WaitForPowerState(ctx, types.VirtualMachinePowerStatePoweredOff); err != nil {
		t.Error(err)
	}
}

func TestGuestIgnoresShutdown(t *testing.T) {
	now := newClock()
	l := startLab(t, Config{Clock: now.Now, VMs: []VM{runningVM(Guest{IgnoresShutdown: true})}})
	c := login(t, l)
	vm := object.NewVirtualMachine(c.Client, allVMs(t, c.Client)["web01"].Self)
	if err := vm.ShutdownGuest(t.Context()); err != nil {
		t.Fatal(err)
	}
	now.advance(20 * time.Minute)
	if got := powerStateOf(t, c.Client, "web01"); got != "poweredOn" {
		t.Error(got)
	}
	task, err := vm.PowerOff(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := task.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := fetchStatus(t, newClient(t, l), folderRequest(t, l, "HEAD", folderURL(l, flat))); got != 200 {
		t.Errorf("the disk after power off: %d", got)
	}
}

func TestShutdownRefusals(t *testing.T) {
	off := web01()
	off.Name = "off"
	l := startLab(t, Config{VMs: []VM{runningVM(Guest{NoTools: true}), off}})
	c := login(t, l)
	vms := allVMs(t, c.Client)
	if err := object.NewVirtualMachine(c.Client, vms["web01"].Self).ShutdownGuest(t.Context()); !fault.Is(err, &types.ToolsUnavailable{}) {
		t.Errorf("without tools: %v", err)
	}
	if err := object.NewVirtualMachine(c.Client, vms["off"].Self).ShutdownGuest(t.Context()); !fault.Is(err, &types.InvalidPowerState{}) {
		t.Errorf("powered off: %v", err)
	}
}

func TestPowerChangesLocks(t *testing.T) {
	l := startLab(t, Config{VMs: []VM{web01()}})
	c := newClient(t, l)
	for _, tc := range []struct {
		on   bool
		want int
	}{{true, 500}, {true, 500}, {false, 200}, {true, 500}} {
		if err := l.SetPower("web01", tc.on); err != nil {
			t.Fatal(err)
		}
		if got := fetchStatus(t, c, folderRequest(t, l, "HEAD", folderURL(l, flat))); got != tc.want {
			t.Errorf("on=%v: %d, want %d", tc.on, got, tc.want)
		}
	}
	if err := l.SetPower("nobody", true); err == nil {
		t.Error("an unknown VM was powered on")
	}
}

func TestReadOnlyLicence(t *testing.T) {
	l := startLab(t, Config{ReadOnlyLicence: true, VMs: []VM{trackedVM()}})
	c := login(t, l)
	vm := allVMs(t, c.Client)["web01"]
	o := object.NewVirtualMachine(c.Client, vm.Self)
	_, err := o.PowerOn(t.Context())
	if !fault.Is(err, &types.RestrictedVersion{}) {
		t.Errorf("power on: %v", err)
	}
	if _, err = o.CreateSnapshot(t.Context(), "s", "", false, false); !fault.Is(err, &types.RestrictedVersion{}) {
		t.Errorf("snapshot: %v", err)
	}
	if _, err = o.Destroy(t.Context()); !fault.Is(err, &types.RestrictedVersion{}) {
		t.Errorf("destroy: %v", err)
	}
	if _, err := queryAreas(c.Client, vm, 2000, 0, "*", nil); err != nil {
		t.Errorf("query: %v", err)
	}
	if got := fetchStatus(t, newClient(t, l), folderRequest(t, l, "HEAD", folderURL(l, flat))); got != 200 {
		t.Errorf("/folder: %d", got)
	}
	if err := c.Logout(t.Context()); err != nil {
		t.Errorf("logout: %v", err)
	}
}

// If a client disconnects during WaitForUpdates, the lab ends the wait. startLab checks that
// no goroutine is left.
func TestAbandonedWaitEnds(t *testing.T) {
	l := startLab(t, Config{VMs: []VM{runningVM(Guest{})}})
	c := login(t, l)
	vm := object.NewVirtualMachine(c.Client, allVMs(t, c.Client)["web01"].Self)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := vm.WaitForPowerState(ctx, types.VirtualMachinePowerStatePoweredOff); err == nil {
		t.Error("the wait ended without a change")
	}
	c.CloseIdleConnections()
	for end := time.Now().Add(maxWait); time.Now().Before(end); {
		l.waits.mu.Lock()
		n := len(l.waits.open)
		l.waits.mu.Unlock()
		if n == 0 {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Error("the wait did not end")
}
