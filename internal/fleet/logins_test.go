package fleet

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
)

// VMs of a plan come together: none waits for another, whoever of them logs in.
func TestVMsDoNotWaitForEachOthersLogins(t *testing.T) {
	const vms = 5
	r := newRig(t, nil)
	m := newMover(t, vmsOn(vms, 1)...)
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
		return m.transfer(ctx, vm, d)
	}
	r.submit("wave")
	r.start(r.config(m, "w1"))
	r.waitFor("wave", fleetdb.Done, vms)
}

// What a session refuses is no refused login: the others go on.
func TestWhatASessionRefusesIsNoRefusedLogin(t *testing.T) {
	r := newRig(t, nil)
	m := newMover(t, vmsOn(2, 1)...)
	m.move = func(ctx context.Context, vm fleetdb.VM, d Driver) error {
		if vm.VM == "vm-1" {
			return fault.New(fault.Denied, "no permission to read the VM")
		}
		return m.transfer(ctx, vm, d)
	}
	r.submit("wave")
	r.start(r.config(m, "w1"))
	r.waitFor("wave", fleetdb.Failed, 1)
	r.waitFor("wave", fleetdb.Done, 1)
}
