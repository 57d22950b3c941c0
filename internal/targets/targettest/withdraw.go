package targettest

import (
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
)

// withdraws: what was made is gone, nothing else is, and twice is no error.
func withdraws(t *testing.T, h Harness) {
	site := h.New(t)
	other := staging(t, with(another(), func(vm *inventory.VM) { vm.Name = "db01" }), targets.Raw)
	deliver(t, site, other)
	before := site.Things(t)
	withdraw(t, site, newVM()) // nothing of it is there
	unchanged(t, site, before, "Withdraw of nothing")
	d := staging(t, newVM(), targets.QCOW2)
	deliver(t, site, d)
	withdraw(t, site, d.VM)
	unchanged(t, site, before, "Withdraw")
	withdraw(t, site, d.VM)
	unchanged(t, site, before, "the second Withdraw")
	verify(t, site, other)
	d = staging(t, newVM(), targets.Raw) // its old images may be gone with it
	deliver(t, site, d)
}

// leavesOthersAlone: a name that is taken is told before anything is copied, and at the latest by
// Deliver; whoever has it is not touched, not by Withdraw either.
func leavesOthersAlone(t *testing.T, h Harness) {
	site := h.New(t)
	if site.Occupy == nil {
		return
	}
	vm := newVM()
	d := staging(t, vm, targets.Raw)
	site.Occupy(t, vm)
	before := site.Things(t)
	hasRemedy(t, "Check", site.Place.Check(t.Context(), vm), fault.Conflict)
	unchanged(t, site, before, "Check")
	_, err := site.Place.Deliver(t.Context(), d)
	hasRemedy(t, "Deliver", err, fault.Conflict)
	unchanged(t, site, before, "Deliver")
	withdraw(t, site, vm)
	unchanged(t, site, before, "Withdraw")
}

// keepsNamesakesApart: two sources have a VM of the same name. The second is a conflict, or a VM of
// its own; the first stays what it is.
func keepsNamesakesApart(t *testing.T, h Harness) {
	site := h.New(t)
	first, second := staging(t, newVM(), targets.Raw), staging(t, another(), targets.Raw)
	deliver(t, site, first)
	before := site.Things(t)
	if err := site.Place.Check(t.Context(), second.VM); err != nil {
		hasRemedy(t, "Check", err, fault.Conflict)
		_, err := site.Place.Deliver(t.Context(), second)
		hasRemedy(t, "Deliver", err, fault.Conflict)
	} else {
		deliver(t, site, second)
	}
	verify(t, site, first)
	withdraw(t, site, second.VM)
	unchanged(t, site, before, "Withdraw of the namesake")
}

func withdraw(t *testing.T, site Site, vm *inventory.VM) {
	t.Helper()
	if err := site.Place.Withdraw(t.Context(), vm); err != nil {
		t.Fatalf("withdraw: %v (%s)", err, fault.HintOf(err))
	}
}
