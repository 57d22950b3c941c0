package vsphere

import (
	"fmt"
	"sync"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// guestPower switches VMs on and off, at once or at the time of a guest shutdown.
type guestPower struct {
	cfg       *Config    // configuration with defaults
	inventory *inventory // VMs

	mu      sync.Mutex     // guards the fields below and machine.shutdownAt
	pending int            // number of machines with a pending shutdown
	stopped bool           // whether the emulator is closing
	timers  []*time.Timer  // timers of the real clock, for clients that wait without requests
	firing  sync.WaitGroup // timers that have not run
}

// ShutdownGuest requests a shutdown of the guest, which may have no tools, may ignore the request, and
// takes time.
func (v *virtualMachine) ShutdownGuest(ctx *simulator.Context, req *types.ShutdownGuest) soap.HasFault {
	body := &methods.ShutdownGuestBody{Fault_: v.lab.busyFault(v.machine)}
	if body.Fault_ != nil {
		return body
	}
	fault := v.canShutDown()
	if fault != nil {
		body.Fault_ = simulator.Fault("", fault)
		return body
	}
	body.Res = &types.ShutdownGuestResponse{}
	if v.machine == nil || !v.machine.spec.Guest.IgnoresShutdown {
		v.lab.scheduleShutdown(v.machine)
	}
	return body
}

// canShutDown returns a fault unless the VM is on and its guest runs VMware Tools.
func (v *virtualMachine) canShutDown() types.BaseMethodFault {
	switch {
	case v.Runtime.PowerState != types.VirtualMachinePowerStatePoweredOn:
		return &types.InvalidPowerState{RequestedState: types.VirtualMachinePowerStatePoweredOn, ExistingState: v.Runtime.PowerState}
	case v.machine == nil || v.machine.spec.Guest.NoTools:
		return &types.ToolsUnavailable{}
	}
	return nil
}

// scheduleShutdown powers m off after its delay on the emulator's clock.
func (g *guestPower) scheduleShutdown(m *machine) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !m.shutdownAt.IsZero() || g.stopped { // pending already, or too late
		return
	}
	delay := time.Duration(m.spec.Guest.ShutdownDelay)
	m.shutdownAt = g.inventory.now().Add(delay)
	g.pending++
	if g.cfg.Clock == nil {
		g.firing.Add(1)
		g.timers = append(g.timers, time.AfterFunc(delay, func() {
			defer g.firing.Done()
			g.powerOffDue()
		}))
	}
}

// Tick executes the events that are due on the emulator's clock. Each request does so as well; a test
// that advances an injected clock calls Tick to wake clients that wait without requests.
func (g *guestPower) Tick() { g.powerOffDue() }

// powerOffDue powers off the VMs whose shutdown is due.
func (g *guestPower) powerOffDue() {
	for _, m := range g.dueShutdowns() {
		if err := g.setPower(m, false); err != nil {
			g.cfg.Log.Warn("guest shutdown", "vm", m.spec.Name, "err", err)
		}
	}
}

// dueShutdowns removes the shutdowns that are due, and returns their machines.
func (g *guestPower) dueShutdowns() (due []*machine) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pending == 0 || g.stopped {
		return nil
	}
	for _, m := range g.inventory.machines {
		if !m.shutdownAt.IsZero() && !g.inventory.now().Before(m.shutdownAt) {
			m.shutdownAt = time.Time{}
			g.pending--
			due = append(due, m)
		}
	}
	return due
}

// stopTimers cancels pending shutdowns and waits for those in progress.
func (g *guestPower) stopTimers() {
	g.mu.Lock()
	g.stopped = true
	for _, t := range g.timers {
		if t.Stop() { // the timer will not run
			g.firing.Done()
		}
	}
	g.mu.Unlock()
	g.firing.Wait()
}

// SetPower switches a VM on or off, as an administrator at another console does.
func (g *guestPower) SetPower(vm string, on bool) error {
	m, err := g.inventory.findMachine(vm)
	if err != nil {
		return err
	}
	return g.setPower(m, on)
}

// setPower switches a VM on or off and waits for the task. It does nothing if the state is the
// requested one.
func (g *guestPower) setPower(m *machine, on bool) error {
	if m.running.Load() == on {
		return nil
	}
	ctx, reg := g.inventory.newContext(), g.inventory.model.Map()
	vm, ok := reg.Get(m.ref).(*simulator.VirtualMachine)
	if !ok {
		return fmt.Errorf("VM %q is no longer registered", m.spec.Name)
	}
	var ref types.ManagedObjectReference
	ctx.WithLock(vm, func() {
		if on {
			ref = vm.PowerOnVMTask(ctx, &types.PowerOnVM_Task{This: vm.Self}).(*methods.PowerOnVM_TaskBody).Res.Returnval
		} else {
			ref = vm.PowerOffVMTask(ctx, &types.PowerOffVM_Task{This: vm.Self}).(*methods.PowerOffVM_TaskBody).Res.Returnval
		}
	})
	_, err := waitForTask(reg, ref)
	return err
}

// A watcher observes the simulator's VMs: power states, and changes of snapshots, after which the
// simulator has replaced the file layout.
type watcher struct{ lab *Lab }

// Reference returns a reference for the registry; the watcher is not in the inventory.
func (w *watcher) Reference() types.ManagedObjectReference {
	return types.ManagedObjectReference{Type: "LabWatcher", Value: "lab-watcher"}
}

// PutObject implements simulator.RegisterObject.
func (w *watcher) PutObject(*simulator.Context, mo.Reference) {}

// RemoveObject implements simulator.RegisterObject.
func (w *watcher) RemoveObject(*simulator.Context, types.ManagedObjectReference) {}

// UpdateObject implements simulator.RegisterObject. The simulator holds the VM's lock.
func (w *watcher) UpdateObject(_ *simulator.Context, obj mo.Reference, changes []types.PropertyChange) {
	vm, ok := obj.(*mo.VirtualMachine)
	if !ok {
		return
	}
	m := w.lab.machines[vm.Self]
	if m == nil {
		return
	}
	followed := false // several changes tell of one snapshot
	for _, c := range changes {
		switch c.Name {
		case "runtime.powerState":
			on := vm.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn
			m.onPower(vm, on)
			m.setTools(vm, on)
			w.lab.cancelShutdown(m)
		case "snapshot", "snapshot.rootSnapshotList", "snapshot.currentSnapshot":
			if !followed {
				m.syncChains(w.lab, vm)
				followed = true
			}
		}
	}
}

// cancelShutdown cancels a pending shutdown after another change of the power state.
func (g *guestPower) cancelShutdown(m *machine) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !m.shutdownAt.IsZero() {
		m.shutdownAt = time.Time{}
		g.pending--
	}
}

// onPower applies a change of the power state to the disks. Power-on opens them: a change of tracking
// takes effect, and an epoch begins.
func (m *machine) onPower(vm *mo.VirtualMachine, on bool) {
	if on == m.running.Swap(on) {
		return
	}
	if on {
		m.openDisks(vm)
	}
	m.writer.onPower(on)
}

// openDisks applies the setting for change tracking and starts an epoch. The VM's lock must be held.
func (m *machine) openDisks(vm *mo.VirtualMachine) {
	m.writing.Lock()
	defer m.writing.Unlock()
	wanted := vm.Config.ChangeTrackingEnabled != nil && *vm.Config.ChangeTrackingEnabled
	for _, d := range m.disks {
		d.changes.reopenDisk(wanted, len(m.snaps) > 0)
		d.changes.endEpoch()
	}
	m.showBackings(vm)
}
