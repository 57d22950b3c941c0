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

// guestPower switches VMs on and off, at once or when the shutdown of a guest is due.
type guestPower struct {
	cfg       *Config
	inventory *inventory

	mu      sync.Mutex
	pending int // machines with shutdownAt set
	stopped bool
	timers  []*time.Timer // timers of the real clock: a request may never come
	firing  sync.WaitGroup
}

// ShutdownGuest requests a shutdown from the guest, which may have no tools, may ignore it, and takes
// time.
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

func (v *virtualMachine) canShutDown() types.BaseMethodFault {
	switch {
	case v.Runtime.PowerState != types.VirtualMachinePowerStatePoweredOn:
		return &types.InvalidPowerState{RequestedState: types.VirtualMachinePowerStatePoweredOn, ExistingState: v.Runtime.PowerState}
	case v.machine == nil || v.machine.spec.Guest.NoTools:
		return &types.ToolsUnavailable{}
	}
	return nil
}

// scheduleShutdown makes m power off after its delay on the lab's clock.
func (g *guestPower) scheduleShutdown(m *machine) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !m.shutdownAt.IsZero() || g.stopped {
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

// Tick executes the events that are due on the lab's clock. Each request does so too; a test that moves
// an injected clock calls it to wake clients that wait without requests.
func (g *guestPower) Tick() { g.powerOffDue() }

// powerOffDue powers off the guests whose shutdown is due.
func (g *guestPower) powerOffDue() {
	for _, m := range g.dueShutdowns() {
		if err := g.setPower(m, false); err != nil {
			g.cfg.Log.Warn("guest shutdown", "vm", m.spec.Name, "err", err)
		}
	}
}

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

// stopTimers forgets pending shutdowns and waits for those under way.
func (g *guestPower) stopTimers() {
	g.mu.Lock()
	g.stopped = true
	for _, t := range g.timers {
		if t.Stop() {
			g.firing.Done()
		}
	}
	g.mu.Unlock()
	g.firing.Wait()
}

// SetPower turns a VM on or off from outside, as an administrator at another console would.
func (g *guestPower) SetPower(vm string, on bool) error {
	m, err := g.inventory.findMachine(vm)
	if err != nil {
		return err
	}
	return g.setPower(m, on)
}

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

// watcher follows the simulator's VMs: which are running, and when the simulator has put
// its own idea of a file layout in place of the lab's.
type watcher struct{ lab *Lab }

// Reference names the watcher in the registry; it is no object of the inventory.
func (w *watcher) Reference() types.ManagedObjectReference {
	return types.ManagedObjectReference{Type: "LabWatcher", Value: "lab-watcher"}
}

// PutObject is part of simulator.RegisterObject.
func (w *watcher) PutObject(*simulator.Context, mo.Reference) {}

// RemoveObject is part of simulator.RegisterObject.
func (w *watcher) RemoveObject(*simulator.Context, types.ManagedObjectReference) {}

// UpdateObject is called with the VM's lock held.
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

// cancelShutdown forgets a pending shutdown: the VM was switched meanwhile.
func (g *guestPower) cancelShutdown(m *machine) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !m.shutdownAt.IsZero() {
		m.shutdownAt = time.Time{}
		g.pending--
	}
}

// onPower is what a machine being switched on or off does to its disks. Being switched on
// opens them: a change of tracking takes effect, and an epoch of changes begins.
func (m *machine) onPower(vm *mo.VirtualMachine, on bool) {
	if on == m.running.Swap(on) {
		return
	}
	if on {
		m.openDisks(vm)
	}
	m.writer.onPower(on)
}

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
