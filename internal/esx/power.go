package esx

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// PowerOffOptions limit PowerOff.
type PowerOffOptions struct {
	Wait  time.Duration // time for the guest to shut down; 5 minutes if 0
	Force bool          // cut the power if the guest does not shut down in time
	By    Switch        // switch to use instead of the API; the API if nil
}

// A Switch changes the power state of VMs. ShutDown returns nil if the guest has no
// VMware Tools. The caller ignores errors if the API shows that the VM has the wanted
// state.
type Switch interface {
	ShutDown(ctx context.Context, vm inventory.MoRef) error // requests a shutdown by the guest
	CutPower(ctx context.Context, vm inventory.MoRef) error // turns the VM off at once
	Start(ctx context.Context, vm inventory.MoRef) error    // turns the VM on
}

const (
	guestWait = 5 * time.Minute        // default time for a guest to shut down
	taskWait  = 5 * time.Minute        // limit for power tasks and their effects
	pollFirst = 100 * time.Millisecond // first interval; most tasks end at once, and some are part of an outage
	pollEvery = 2 * time.Second        // longest interval
)

// PowerOff turns a VM off. If VMware Tools run, it requests a shutdown by the guest and
// waits. With Force it then cuts the power. Without Force, a VM that remains on is
// fault.Conflict. A suspended VM has no running guest, so only Force turns it off. A VM
// that is off already is no error.
func (s *vmController) PowerOff(ctx context.Context, ref inventory.MoRef, o PowerOffOptions) error {
	if err := s.powerOff(ctx, ref, o); err != nil {
		return fmt.Errorf("power off VM %s: %w", ref, classify(err))
	}
	return nil
}

// powerOff does the work of PowerOff without the context of errors.
func (s *vmController) powerOff(ctx context.Context, ref inventory.MoRef, o PowerOffOptions) error {
	vm := moRef("VirtualMachine", ref)
	now, err := s.powerState(ctx, vm)
	if err != nil || now.power == types.VirtualMachinePowerStatePoweredOff {
		return err
	}
	if o.Wait == 0 {
		o.Wait = guestWait
	}
	if o.By == nil {
		o.By = apiSwitch{s}
	}
	// A suspended VM does not run, so it cannot shut down.
	asked := now.power == types.VirtualMachinePowerStatePoweredOn && now.tools
	if asked {
		off, err := s.shutDown(ctx, vm, o)
		if off || err != nil {
			return err
		}
	}
	if !o.Force {
		return stillOnError(now, asked, o.Wait)
	}
	return s.cutPower(ctx, vm, o.By)
}

// stillOnError returns the error for a VM that remains on. asked is true if the guest
// was asked to shut down.
func stillOnError(now vmState, asked bool, wait time.Duration) error {
	switch {
	case now.power == types.VirtualMachinePowerStateSuspended:
		return fault.New(fault.Conflict, "it is suspended").WithHint("resume it and shut the guest down, or add --force, which discards its memory")
	case asked:
		return fault.New(fault.Conflict, "the guest did not shut down within %v", wait).WithHint("shut it down in the guest, set a longer --shutdown-wait, or add --force")
	}
	return fault.New(fault.Conflict, "VMware Tools do not run, so decamp cannot shut the guest down").
		WithHint("shut it down in the guest, or add --force, which powers it off without a shutdown")
}

// shutDown requests a shutdown of the guest and waits for at most o.Wait. It reports
// whether the VM is off.
func (s *vmController) shutDown(ctx context.Context, vm types.ManagedObjectReference, o PowerOffOptions) (bool, error) {
	if err := o.By.ShutDown(ctx, inventory.MoRef(vm.Value)); err != nil {
		return false, err
	}
	s.cfg.Log.Info("guest asked to shut down", "vm", vm.Value)
	return s.waitOff(ctx, vm, o.Wait)
}

// cutPower turns the VM off without the guest. It returns nil if the VM is off in the
// end, even if by failed.
func (s *vmController) cutPower(ctx context.Context, vm types.ManagedObjectReference, by Switch) error {
	s.cfg.Log.Info("power is cut", "vm", vm.Value)
	// An error of the switch is only returned if the VM is still on: it may have been
	// off already.
	refused := by.CutPower(ctx, inventory.MoRef(vm.Value))
	off, err := s.waitOff(ctx, vm, waitAfter(refused))
	switch {
	case off:
		return nil
	case refused != nil:
		return refused
	case err == nil:
		err = fault.New(fault.Conflict, "it is still on after the power-off")
	}
	return err
}

// waitAfter returns how long to wait for the effect of a switch. After an error, the
// current state decides, so the wait is 0.
func waitAfter(refused error) time.Duration {
	if refused != nil {
		return 0
	}
	return taskWait
}

// PowerOn starts a VM. It returns nil if the VM runs already.
func (s *vmController) PowerOn(ctx context.Context, ref inventory.MoRef) error {
	return s.PowerOnBy(ctx, ref, apiSwitch{s})
}

// PowerOnBy is PowerOn with a switch other than the API.
func (s *vmController) PowerOnBy(ctx context.Context, ref inventory.MoRef, by Switch) error {
	if err := s.powerOn(ctx, ref, by); err != nil {
		return fmt.Errorf("power on VM %s: %w", ref, classify(err))
	}
	return nil
}

// powerOn does the work of PowerOnBy without the context of errors.
func (s *vmController) powerOn(ctx context.Context, ref inventory.MoRef, by Switch) error {
	vm := moRef("VirtualMachine", ref)
	isOn := func() (bool, error) {
		now, err := s.powerState(ctx, vm)
		return now.power == types.VirtualMachinePowerStatePoweredOn, err
	}
	if on, err := isOn(); on || err != nil {
		return err
	}
	s.cfg.Log.Info("power on", "vm", vm.Value)
	// An error of the switch is only returned if the VM does not run: it may have been
	// on already.
	refused := by.Start(ctx, ref)
	on, err := s.pollUntil(ctx, waitAfter(refused), isOn)
	switch {
	case on:
		return nil
	case refused != nil:
		return refused
	case err == nil:
		err = fault.New(fault.Conflict, "it is still off after the power-on").WithHint("check the VM's recent tasks, and answer its question in the vSphere Client if it has one")
	}
	return err
}

// vmState contains the properties that PowerOff depends on.
type vmState struct {
	power types.VirtualMachinePowerState // power state of the VM
	tools bool                           // true if VMware Tools run in the guest
}

// powerState reads the power state of a VM and the status of its VMware Tools.
func (s *vmController) powerState(ctx context.Context, vm types.ManagedObjectReference) (vmState, error) {
	var v mo.VirtualMachine
	if err := s.readProperties(ctx, vm, &v, "runtime.powerState", "guest.toolsRunningStatus"); err != nil {
		return vmState{}, err
	}
	tools := v.Guest != nil && v.Guest.ToolsRunningStatus == string(types.VirtualMachineToolsRunningStatusGuestToolsRunning)
	return vmState{v.Runtime.PowerState, tools}, nil
}

// waitOff waits until a VM is off, for at most wait. It reports whether it is off.
func (s *vmController) waitOff(ctx context.Context, vm types.ManagedObjectReference, wait time.Duration) (bool, error) {
	return s.pollUntil(ctx, wait, func() (bool, error) {
		now, err := s.powerState(ctx, vm)
		return now.power == types.VirtualMachinePowerStatePoweredOff, err
	})
}

// waitTask waits until a task ends. A task that runs for longer than wait is
// fault.Transient; it continues on the host.
func (s *vmController) waitTask(ctx context.Context, ref types.ManagedObjectReference, wait time.Duration) error {
	done, err := s.pollUntil(ctx, wait, func() (bool, error) {
		var task mo.Task
		if err := s.readProperties(ctx, ref, &task, "info"); err != nil {
			return false, err
		}
		return taskDone(task.Info)
	})
	if err == nil && !done {
		err = fault.New(fault.Transient, "task %s is not done after %v", ref.Value, wait)
	}
	return err
}

// taskDone reports whether a task succeeded. It returns the task's error if it failed.
func taskDone(info types.TaskInfo) (bool, error) {
	switch info.State {
	case types.TaskInfoStateSuccess:
		return true, nil
	case types.TaskInfoStateError:
		if info.Error == nil || info.Error.Fault == nil {
			return false, errors.New("the task ended with an error without a name")
		}
		return false, fmt.Errorf("%s: %w", taskErrorText(info.Error), soap.WrapVimFault(info.Error.Fault))
	}
	return false, nil
}

// taskErrorText returns the message of a failed task. For a change of a VM's
// configuration the cause may only be in the fault.
func taskErrorText(e *types.LocalizedMethodFault) string {
	f, is := e.Fault.(*types.GenericVmConfigFault)
	if is && f.Reason != "" && !strings.Contains(e.LocalizedMessage, f.Reason) {
		return f.Reason
	}
	return e.LocalizedMessage
}

// pollUntil calls done until it returns true or an error, or until wait has passed. It
// calls done at least once. The interval grows from 100 ms to 2 s. Polling continues
// after a renewed login; a property filter would be lost with its session.
func (s *connection) pollUntil(ctx context.Context, wait time.Duration, done func() (bool, error)) (bool, error) {
	deadline := s.cfg.Now().Add(wait)
	for pause := pollFirst; ; pause = min(2*pause, pollEvery) {
		if ok, err := done(); ok || err != nil {
			return ok, err
		}
		if !s.cfg.Now().Before(deadline) {
			return false, nil
		}
		select {
		case <-s.cfg.After(min(pause, deadline.Sub(s.cfg.Now()))):
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// readProperties reads some properties of one object into dst. If the session has
// ended, some servers return a response in which each property is missing because of
// NotAuthenticated. RoundTrip does not detect that, so readProperties logs in and reads
// again.
func (s *connection) readProperties(ctx context.Context, ref types.ManagedObjectReference, dst any, paths ...string) error {
	seen := s.pass.get()
	err := s.retrieveProperties(ctx, ref, dst, paths)
	if !isSessionEnded(err) {
		return err
	}
	if err := s.renewSession(ctx, seen); err != nil {
		return err
	}
	return s.retrieveProperties(ctx, ref, dst, paths)
}

// retrieveProperties reads properties with one call and does not renew the session.
func (s *connection) retrieveProperties(ctx context.Context, ref types.ManagedObjectReference, dst any, paths []string) error {
	objects, err := mo.RetrievePropertiesEx(ctx, s, types.RetrievePropertiesEx{
		This: s.vim.ServiceContent.PropertyCollector,
		SpecSet: []types.PropertyFilterSpec{{
			ObjectSet: []types.ObjectSpec{{Obj: ref}},
			PropSet:   []types.PropertySpec{{Type: ref.Type, PathSet: paths}},
		}},
	})
	if err != nil {
		return err
	}
	return mo.LoadObjectContent(objects, dst)
}
