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

func power(t *testing.T, c *vim25.Client, name string) string {
	t.Helper()
	return string(allVMs(t, c)[name].Runtime.PowerState)
}

func running(g Guest) VM {
	vm := web01()
	vm.PoweredOn, vm.Guest = true, g
	return vm
}

func TestGuestObeysAfterItsDelay(t *testing.T) {
	now := newClock()
	l := start(t, Config{Clock: now.Now, VMs: []VM{running(Guest{ShutdownDelay: Duration(time.Minute)})}})
	c := login(t, l)
	vm := object.NewVirtualMachine(c.Client, allVMs(t, c.Client)["web01"].Self)
	if err := vm.ShutdownGuest(t.Context()); err != nil {
		t.Fatal(err)
	}
	now.advance(59 * time.Second)
	if got := power(t, c.Client, "web01"); got != "poweredOn" {
		t.Errorf("%s before its minute", got)
	}
	now.advance(time.Second)
	if got := power(t, c.Client, "web01"); got != "poweredOff" {
		t.Errorf("%s after its minute", got)
	}
	if got := status(t, client(t, l), request(t, l, "HEAD", folderURL(l, flat))); got != 200 {
		t.Errorf("the disk of the VM that was shut down: %d", got)
	}
}

// A client that waits for a property change asks nothing meanwhile.
func TestGuestObeysOnTheRealClock(t *testing.T) {
	l := start(t, Config{VMs: []VM{running(Guest{ShutdownDelay: Duration(50 * time.Millisecond)})}})
	c := login(t, l)
	vm := object.NewVirtualMachine(c.Client, allVMs(t, c.Client)["web01"].Self)
	if err := vm.ShutdownGuest(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), waitMost)
	defer cancel()
	if err := vm.WaitForPowerState(ctx, types.VirtualMachinePowerStatePoweredOff); err != nil {
		t.Error(err)
	}
}

func TestGuestIgnoresShutdown(t *testing.T) {
	now := newClock()
	l := start(t, Config{Clock: now.Now, VMs: []VM{running(Guest{IgnoresShutdown: true})}})
	c := login(t, l)
	vm := object.NewVirtualMachine(c.Client, allVMs(t, c.Client)["web01"].Self)
	if err := vm.ShutdownGuest(t.Context()); err != nil {
		t.Fatal(err)
	}
	now.advance(20 * time.Minute)
	if got := power(t, c.Client, "web01"); got != "poweredOn" {
		t.Error(got)
	}
	task, err := vm.PowerOff(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := task.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := status(t, client(t, l), request(t, l, "HEAD", folderURL(l, flat))); got != 200 {
		t.Errorf("the disk after power off: %d", got)
	}
}

func TestShutdownRefusals(t *testing.T) {
	off := web01()
	off.Name = "off"
	l := start(t, Config{VMs: []VM{running(Guest{NoTools: true}), off}})
	c := login(t, l)
	vms := allVMs(t, c.Client)
	if err := object.NewVirtualMachine(c.Client, vms["web01"].Self).ShutdownGuest(t.Context()); !fault.Is(err, &types.ToolsUnavailable{}) {
		t.Errorf("without tools: %v", err)
	}
	if err := object.NewVirtualMachine(c.Client, vms["off"].Self).ShutdownGuest(t.Context()); !fault.Is(err, &types.InvalidPowerState{}) {
		t.Errorf("powered off: %v", err)
	}
}

func TestPowerSwitchesLocks(t *testing.T) {
	l := start(t, Config{VMs: []VM{web01()}})
	c := client(t, l)
	for _, tc := range []struct {
		on   bool
		want int
	}{{true, 500}, {true, 500}, {false, 200}, {true, 500}} {
		if err := l.SetPower("web01", tc.on); err != nil {
			t.Fatal(err)
		}
		if got := status(t, c, request(t, l, "HEAD", folderURL(l, flat))); got != tc.want {
			t.Errorf("on=%v: %d, want %d", tc.on, got, tc.want)
		}
	}
	if err := l.SetPower("nobody", true); err == nil {
		t.Error("a VM that is not there was powered on")
	}
}

func TestReadOnlyLicence(t *testing.T) {
	l := start(t, Config{ReadOnlyLicence: true, VMs: []VM{tracked()}})
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
	if _, err := query(c.Client, vm, 2000, 0, "*", nil); err != nil {
		t.Errorf("query: %v", err)
	}
	if got := status(t, client(t, l), request(t, l, "HEAD", folderURL(l, flat))); got != 200 {
		t.Errorf("/folder: %d", got)
	}
	if err := c.Logout(t.Context()); err != nil {
		t.Errorf("logout: %v", err)
	}
}

// A client that goes away in the middle of WaitForUpdates must not keep the lab busy. The
// check is start's: no goroutine is left.
func TestAbandonedWaitEnds(t *testing.T) {
	l := start(t, Config{VMs: []VM{running(Guest{})}})
	c := login(t, l)
	vm := object.NewVirtualMachine(c.Client, allVMs(t, c.Client)["web01"].Self)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := vm.WaitForPowerState(ctx, types.VirtualMachinePowerStatePoweredOff); err == nil {
		t.Error("the wait ended without a change")
	}
	c.CloseIdleConnections()
	for end := time.Now().Add(waitMost); time.Now().Before(end); {
		l.waits.mu.Lock()
		n := len(l.waits.open)
		l.waits.mu.Unlock()
		if n == 0 {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Error("the wait goes on")
}
