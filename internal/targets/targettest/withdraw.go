package targettest

import (
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
)

// withdrawsVM verifies that Withdraw removes the whole VM and nothing else, and that a second call
// succeeds.
func withdrawsVM(t *testing.T, h Harness) {
	site := h.New(t)
	other := stageVM(t, changeVM(newNamesake(), func(vm *inventory.VM) { vm.Name = "db01" }), targets.Raw)
	mustDeliver(t, site, other)
	before := site.Objects(t)
	mustWithdraw(t, site, newVM()) // the site has no such VM
	assertUnchanged(t, site, before, "Withdraw without a VM")
	d := stageVM(t, newVM(), targets.QCOW2)
	mustDeliver(t, site, d)
	mustWithdraw(t, site, d.VM)
	assertUnchanged(t, site, before, "Withdraw")
	mustWithdraw(t, site, d.VM)
	assertUnchanged(t, site, before, "the second Withdraw")
	verifyVM(t, site, other)
	d = stageVM(t, newVM(), targets.Raw) // Deliver may have moved the old images
	mustDeliver(t, site, d)
}

// leavesOthersAlone verifies that Check and Deliver report a taken name as fault.Conflict. No method
// may change the
// VM that has the name.
func leavesOthersAlone(t *testing.T, h Harness) {
	site := h.New(t)
	if site.Occupy == nil {
		return
	}
	vm := newVM()
	d := stageVM(t, vm, targets.Raw)
	site.Occupy(t, vm)
	before := site.Objects(t)
	hasRemedy(t, "Check", site.Platform.Check(t.Context(), vm), fault.Conflict)
	assertUnchanged(t, site, before, "Check")
	_, err := site.Platform.Deliver(t.Context(), d)
	hasRemedy(t, "Deliver", err, fault.Conflict)
	assertUnchanged(t, site, before, "Deliver")
	mustWithdraw(t, site, vm)
	assertUnchanged(t, site, before, "Withdraw")
}

// keepsNamesakesApart delivers VMs of the same name from two sources. The second is fault.Conflict or a
// separate
// VM; the first must stay unchanged.
func keepsNamesakesApart(t *testing.T, h Harness) {
	site := h.New(t)
	first, second := stageVM(t, newVM(), targets.Raw), stageVM(t, newNamesake(), targets.Raw)
	mustDeliver(t, site, first)
	before := site.Objects(t)
	if err := site.Platform.Check(t.Context(), second.VM); err != nil {
		hasRemedy(t, "Check", err, fault.Conflict)
		_, err := site.Platform.Deliver(t.Context(), second)
		hasRemedy(t, "Deliver", err, fault.Conflict)
	} else {
		mustDeliver(t, site, second)
	}
	verifyVM(t, site, first)
	mustWithdraw(t, site, second.VM)
	assertUnchanged(t, site, before, "Withdraw of the namesake")
}

// mustWithdraw withdraws vm and fails the test after an error.
func mustWithdraw(t *testing.T, site Site, vm *inventory.VM) {
	t.Helper()
	if err := site.Platform.Withdraw(t.Context(), vm); err != nil {
		t.Fatalf("Withdraw: %v (%s)", err, fault.HintOf(err))
	}
}
