package vm_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/doctor/vm"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/inventory"
)

// guestFindings returns the findings about the guests.
func guestFindings(t *testing.T, o vm.Options) []doctor.Finding {
	t.Helper()
	found := doctor.Examine(t.Context(), vm.Checks(o), doctor.Options{})
	return slices.DeleteFunc(found, func(f doctor.Finding) bool { return f.Code != "vm-guest" })
}

// The checks inspect the guests of VMs that are powered off. Each finding has a remedy.
func TestGuestsAreInspected(t *testing.T) {
	newNamedVM := func(name string) inventory.VM {
		v := newVM()
		v.Name, v.Ref = name, inventory.MoRef(name)
		return v
	}
	runs := newNamedVM("runs")
	runs.Power = inventory.PoweredOn
	vms := []inventory.VM{newNamedVM("asleep"), newNamedVM("empty"), newNamedVM("locked"), runs}
	inspect := func(_ context.Context, v *inventory.VM) ([]guest.Report, error) {
		switch v.Name {
		case "asleep":
			return []guest.Report{{Verdict: "Windows 10: boots"}, {Warnings: []guest.Warning{{Code: "hibernated", Text: "it hibernated"}, {Code: "gpt-backup", Text: "half a table"}}}}, nil
		case "locked":
			return nil, fault.New(fault.Conflict, "the file is locked").WithHint("wait")
		case "runs":
			t.Error("a running VM is inspected")
		}
		return []guest.Report{{}}, nil
	}
	found := guestFindings(t, vm.Options{VMs: vms, Inspect: inspect})
	var got []string
	for _, f := range found {
		got = append(got, f.On+": "+f.Status.String()+": "+f.Found)
		if f.Status != doctor.OK && f.Remedy == "" {
			t.Errorf("the finding has no remedy: %+v", f)
		}
	}
	slices.Sort(got)
	want := []string{
		"VM asleep: ok: Windows 10: boots",
		"VM asleep: warning: disk 2: half a table (gpt-backup)",
		"VM asleep: warning: disk 2: it hibernated (hibernated)",
		"VM empty: ok: no known operating system on the disks",
		"VM locked: unknown: the file is locked",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got findings\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if found := guestFindings(t, vm.Options{VMs: vms}); len(found) > 0 {
		t.Errorf("without Inspect: got findings %+v", found)
	}
	broken := func(context.Context, *inventory.VM) ([]guest.Report, error) { return nil, errors.New("reset") }
	if found := guestFindings(t, vm.Options{VMs: vms[:1], Inspect: broken}); len(found) != 1 || found[0].Status != doctor.Unknown {
		t.Errorf("an inspection that fails: got findings %+v", found)
	}
}
