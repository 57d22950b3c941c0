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

// PowerOffOptions say how far PowerOff may go.
type PowerOffOptions struct {
	Wait  time.Duration // for the guest to shut down; 0 means 5 minutes
	Force bool          // then cut the power, as pulling the plug does
	By    Switch        // where the API may not switch; nil is the API
}

// A Switch changes the power of VMs. A guest that cannot be asked is no error, and what goes
// wrong counts only if the API does not show the VM as it is to be.
type Switch interface {
	ShutDown(ctx context.Context, vm inventory.MoRef) error // asks the guest
	CutPower(ctx context.Context, vm inventory.MoRef) error
	Start(ctx context.Context, vm inventory.MoRef) error
}

const (
	guestWait = 5 * time.Minute // default time for a guest to shut down
	taskWait  = 5 * time.Minute
	pollFirst = 100 * time.Millisecond // most tasks are done at once, and some are part of an outage
	pollEvery = 2 * time.Second        // later
)

// PowerOff brings a VM to power-off: nothing if it is off; else a shutdown by the guest,
// where VMware Tools run, and a wait; and only with Force the switch. Without Force a
// VM that stays on is fault.Conflict. A suspended VM has no guest to ask.
func (s *vmController) PowerOff(ctx context.Context, ref inventory.MoRef, o PowerOffOptions) error {
	if err := s.powerOff(ctx, ref, o); err != nil {
		return fmt.Errorf("power off VM %s: %w", ref, classify(err))
	}
	return nil
}

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

func stillOnError(now vmState, asked bool, wait time.Duration) error {
	switch {
	case now.power == types.VirtualMachinePowerStateSuspended:
		return fault.New(fault.Conflict, "it is suspended").WithHint("resume it and shut the guest down, or use --force and lose its memory")
	case asked:
		return fault.New(fault.Conflict, "the guest did not shut down within %v", wait).WithHint("shut it down from within, wait longer, or use --force")
	}
	return fault.New(fault.Conflict, "VMware Tools do not run, so the guest cannot be asked to shut down").
		WithHint("shut it down from within, or use --force, which is like pulling the plug")
}

// shutDown asks the guest and waits. It reports whether the VM is off.
func (s *vmController) shutDown(ctx context.Context, vm types.ManagedObjectReference, o PowerOffOptions) (bool, error) {
	if err := o.By.ShutDown(ctx, inventory.MoRef(vm.Value)); err != nil {
		return false, err
	}
	s.cfg.Log.Info("guest asked to shut down", "vm", vm.Value)
	return s.waitOff(ctx, vm, o.Wait)
}

// cutPower switches the VM off. A VM that went off in the meantime is off.
func (s *vmController) cutPower(ctx context.Context, vm types.ManagedObjectReference, by Switch) error {
	s.cfg.Log.Info("power is cut", "vm", vm.Value)
	refused := by.CutPower(ctx, inventory.MoRef(vm.Value))
	off, err := s.waitOff(ctx, vm, waitAfter(refused))
	switch {
	case off:
		return nil
	case refused != nil:
		return refused
	case err == nil:
		err = fault.New(fault.Conflict, "it is still on after the power was cut")
	}
	return err
}

// waitAfter is how long to wait for a switch: one that complains may have been too late, so
// the state of now tells.
func waitAfter(refused error) time.Duration {
	if refused != nil {
		return 0
	}
	return taskWait
}

// PowerOn starts a VM. One that runs is no error.
func (s *vmController) PowerOn(ctx context.Context, ref inventory.MoRef) error {
	return s.PowerOnBy(ctx, ref, apiSwitch{s})
}

// PowerOnBy is PowerOn with another switch than the API.
func (s *vmController) PowerOnBy(ctx context.Context, ref inventory.MoRef, by Switch) error {
	if err := s.powerOn(ctx, ref, by); err != nil {
		return fmt.Errorf("power on VM %s: %w", ref, classify(err))
	}
	return nil
}

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
	refused := by.Start(ctx, ref)
	on, err := s.pollUntil(ctx, waitAfter(refused), isOn)
	switch {
	case on:
		return nil
	case refused != nil:
		return refused
	case err == nil:
		err = fault.New(fault.Conflict, "it is still off after it was switched on").WithHint("see the VM's recent tasks, and whether it asks a question")
	}
	return err
}

// vmState is what the ladder looks at.
type vmState struct {
	power types.VirtualMachinePowerState
	tools bool
}

func (s *vmController) powerState(ctx context.Context, vm types.ManagedObjectReference) (vmState, error) {
	var v mo.VirtualMachine
	if err := s.readProperties(ctx, vm, &v, "runtime.powerState", "guest.toolsRunningStatus"); err != nil {
		return vmState{}, err
	}
	tools := v.Guest != nil && v.Guest.ToolsRunningStatus == string(types.VirtualMachineToolsRunningStatusGuestToolsRunning)
	return vmState{v.Runtime.PowerState, tools}, nil
}

func (s *vmController) waitOff(ctx context.Context, vm types.ManagedObjectReference, wait time.Duration) (bool, error) {
	return s.pollUntil(ctx, wait, func() (bool, error) {
		now, err := s.powerState(ctx, vm)
		return now.power == types.VirtualMachinePowerStatePoweredOff, err
	})
}

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

func taskDone(info types.TaskInfo) (bool, error) {
	switch info.State {
	case types.TaskInfoStateSuccess:
		return true, nil
	case types.TaskInfoStateError:
		if info.Error == nil || info.Error.Fault == nil {
			return false, errors.New("the task ended with an error it does not name")
		}
		return false, fmt.Errorf("%s: %w", taskErrorText(info.Error), soap.WrapVimFault(info.Error.Fault))
	}
	return false, nil
}

// taskErrorText is what a host says of a task's error. Why a change of a VM failed may be in the fault alone.
func taskErrorText(e *types.LocalizedMethodFault) string {
	f, is := e.Fault.(*types.GenericVmConfigFault)
	if is && f.Reason != "" && !strings.Contains(e.LocalizedMessage, f.Reason) {
		return f.Reason
	}
	return e.LocalizedMessage
}

// pollUntil calls done until it says so or wait has passed, soon at first and then less often. Polling survives a session that
// is renewed in between, which a property filter would not.
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

// readProperties reads some properties of one object into dst. A server may answer who is not
// logged in, and name "not authenticated" as what each property lacks: RoundTrip cannot see
// that the session ended.
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
