package fleet

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
)

// The VMs of a plan begin at the same time. None waits until another one has logged in.
func TestVMsDoNotWaitForEachOthersLogins(t *testing.T) {
	const vms = 5
	r := newTestFleet(t, nil)
	m := newFakeMover(t, vmsOn(vms, 1)...)
	var begun atomic.Int32
	all := make(chan struct{})
	m.move = func(ctx context.Context, vm fleetdb.VM, d Driver) error {
		if begun.Add(1) == vms {
			close(all)
		}
		select {
		case <-all:
		case <-ctx.Done():
			return ctx.Err()
		}
		return m.transferCold(ctx, vm, d)
	}
	r.submitPlan("wave")
	r.startNode(r.nodeConfig(m, "w1"))
	r.waitForVMs("wave", fleetdb.Done, vms)
}

// A permission that is denied after the login fails one VM. It does not count as a refused login, so that the others
// continue.
func TestDeniedPermissionFailsOnlyItsVM(t *testing.T) {
	r := newTestFleet(t, nil)
	m := newFakeMover(t, vmsOn(2, 1)...)
	m.move = func(ctx context.Context, vm fleetdb.VM, d Driver) error {
		if vm.VM == "vm-1" {
			return fault.New(fault.Denied, "no permission to read the VM")
		}
		return m.transferCold(ctx, vm, d)
	}
	r.submitPlan("wave")
	r.startNode(r.nodeConfig(m, "w1"))
	r.waitForVMs("wave", fleetdb.Failed, 1)
	r.waitForVMs("wave", fleetdb.Done, 1)
}
