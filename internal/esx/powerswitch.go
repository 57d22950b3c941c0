package esx

import (
	"context"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/inventory"
)

// apiSwitch is the Switch that uses the API.
type apiSwitch struct{ s *vmController }

// ShutDown is part of Switch. It ignores the faults for a VM that is off and for a
// guest without VMware Tools; the caller polls the state.
func (a apiSwitch) ShutDown(ctx context.Context, vm inventory.MoRef) error {
	_, err := methods.ShutdownGuest(ctx, a.s, &types.ShutdownGuest{This: moRef("VirtualMachine", vm)})
	switch vimFault(err).(type) {
	case *types.ToolsUnavailable, *types.InvalidPowerState:
		return nil
	}
	return err
}

// CutPower is part of Switch. A VM that is off already is no error.
func (a apiSwitch) CutPower(ctx context.Context, vm inventory.MoRef) error {
	res, err := methods.PowerOffVM_Task(ctx, a.s, &types.PowerOffVM_Task{This: moRef("VirtualMachine", vm)})
	if err == nil {
		err = a.s.waitTask(ctx, res.Returnval, taskWait)
	}
	if _, gone := vimFault(err).(*types.InvalidPowerState); gone {
		return nil
	}
	return err
}

// Start is part of Switch. It waits until the task ends.
func (a apiSwitch) Start(ctx context.Context, vm inventory.MoRef) error {
	res, err := methods.PowerOnVM_Task(ctx, a.s, &types.PowerOnVM_Task{This: moRef("VirtualMachine", vm)})
	if err != nil {
		return err
	}
	return a.s.waitTask(ctx, res.Returnval, taskWait)
}
