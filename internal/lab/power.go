package lab

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

// guests are the shutdowns that guests were asked for and have not finished.
type guests struct {
	mu      sync.Mutex
	pending int // machines with shutdownAt set
	stopped bool
	timers  []*time.Timer // real clock only: nobody may be asking
	firing  sync.WaitGroup
}

// ShutdownGuest asks the guest, which may have no tools, may ignore it, and takes its time.
func (v *virtualMachine) ShutdownGuest(ctx *simulator.Context, req *types.ShutdownGuest) soap.HasFault {
	body := &methods.ShutdownGuestBody{Fault_: v.lab.busy(v.machine)}
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
func (l *Lab) scheduleShutdown(m *machine) {
	l.guests.mu.Lock()
	defer l.guests.mu.Unlock()
	if !m.shutdownAt.IsZero() || l.guests.stopped {
		return
	}
	delay := time.Duration(m.spec.Guest.ShutdownDelay)
	m.shutdownAt = l.now().Add(delay)
	l.guests.pending++
	if l.cfg.Clock == nil {
		l.guests.firing.Add(1)
		l.guests.timers = append(l.guests.timers, time.AfterFunc(delay, func() {
			defer l.guests.firing.Done()
			l.settle()
		}))
	}
}

// Tick lets what is due on the lab's clock happen. Every request does so too; a test that
// moves an injected clock calls it to wake clients that wait without asking.
func (l *Lab) Tick() { l.settle() }

// settle powers off the guests whose shutdown is due.
func (l *Lab) settle() {
	for _, m := range l.dueShutdowns() {
		if err := l.setPower(m, false); err != nil {
			l.cfg.Log.Warn("guest shutdown", "vm", m.spec.Name, "err", err)
		}
	}
}

func (l *Lab) dueShutdowns() (due []*machine) {
	l.guests.mu.Lock()
	defer l.guests.mu.Unlock()
	if l.guests.pending == 0 || l.guests.stopped {
		return nil
	}
	for _, m := range l.machines {
		if !m.shutdownAt.IsZero() && !l.now().Before(m.shutdownAt) {
			m.shutdownAt = time.Time{}
			l.guests.pending--
			due = append(due, m)
		}
	}
	return due
}

// stop forgets pending shutdowns and waits for those under way.
func (g *guests) stop() {
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
func (l *Lab) SetPower(vm string, on bool) error {
	m, err := l.machine(vm)
	if err != nil {
		return err
	}
	return l.setPower(m, on)
}

func (l *Lab) setPower(m *machine, on bool) error {
	if m.running.Load() == on {
		return nil
	}
	b := &builder{lab: l, ctx: l.context(), reg: l.model.Map()}
	vm, ok := b.reg.Get(m.ref).(*simulator.VirtualMachine)
	if !ok {
		return fmt.Errorf("VM %q is no longer registered", m.spec.Name)
	}
	var ref types.ManagedObjectReference
	b.ctx.WithLock(vm, func() {
		if on {
			ref = vm.PowerOnVMTask(b.ctx, &types.PowerOnVM_Task{This: vm.Self}).(*methods.PowerOnVM_TaskBody).Res.Returnval
		} else {
			ref = vm.PowerOffVMTask(b.ctx, &types.PowerOffVM_Task{This: vm.Self}).(*methods.PowerOffVM_TaskBody).Res.Returnval
		}
	})
	_, err := b.wait(ref)
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
			m.switched(vm, on)
			m.setTools(vm, on)
			m.cancelShutdown(w.lab)
		case "snapshot", "snapshot.rootSnapshotList", "snapshot.currentSnapshot":
			if !followed {
				m.follow(w.lab, vm)
				followed = true
			}
		}
	}
}

// cancelShutdown forgets a pending shutdown: the VM was switched meanwhile.
func (m *machine) cancelShutdown(l *Lab) {
	l.guests.mu.Lock()
	defer l.guests.mu.Unlock()
	if !m.shutdownAt.IsZero() {
		m.shutdownAt = time.Time{}
		l.guests.pending--
	}
}

// switched is what a machine being switched on or off does to its disks. Being switched on
// opens them: a change of tracking takes effect, and an epoch of changes begins.
func (m *machine) switched(vm *mo.VirtualMachine, on bool) {
	if on == m.running.Swap(on) {
		return
	}
	if on {
		m.openDisks(vm)
	}
	m.writer.switched(on)
}

func (m *machine) openDisks(vm *mo.VirtualMachine) {
	m.writing.Lock()
	defer m.writing.Unlock()
	wanted := vm.Config.ChangeTrackingEnabled != nil && *vm.Config.ChangeTrackingEnabled
	for _, d := range m.disks {
		d.changes.stun(wanted, len(m.snaps) > 0)
		d.changes.end()
	}
	m.showBackings(vm)
}

// refresh shows the disks' ids and sizes of now in the VM's config.
func (l *Lab) refresh(m *machine) error { return l.reconfigure(m, func() error { return nil }) }

// reconfigure changes a machine's disks and shows what became of them, with no snapshot in
// between.
func (l *Lab) reconfigure(m *machine, change func() error) (err error) {
	ctx := l.context()
	vm, ok := l.model.Map().Get(m.ref).(*simulator.VirtualMachine)
	if !ok {
		return fmt.Errorf("VM %q is no longer registered", m.spec.Name)
	}
	ctx.WithLock(vm, func() {
		m.writing.Lock()
		defer m.writing.Unlock()
		if err = change(); err != nil {
			return
		}
		m.showBackings(&vm.VirtualMachine)
		for _, dev := range vm.Config.Hardware.Device {
			if disk, ok := dev.(*types.VirtualDisk); ok && m.disk(disk.Key) != nil {
				disk.CapacityInBytes = m.disk(disk.Key).size.Load()
				disk.CapacityInKB = disk.CapacityInBytes / growUnit
			}
		}
		m.setLayout(&vm.VirtualMachine)
	})
	return err
}
