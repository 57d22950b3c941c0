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

// ofGuests are the findings of what is on disks.
func ofGuests(t *testing.T, o vm.Options) []doctor.Finding {
	t.Helper()
	found := doctor.Examine(t.Context(), vm.Checks(o), doctor.Options{})
	return slices.DeleteFunc(found, func(f doctor.Finding) bool { return f.Code != "vm-guest" })
}

// Guests are looked into before they are copied, if they are off; each thing in their way has what to
// type.
func TestGuestsAreLookedInto(t *testing.T) {
	named := func(name string) inventory.VM {
		v := plain()
		v.Name, v.Ref = name, inventory.MoRef(name)
		return v
	}
	runs := named("runs")
	runs.Power = inventory.PoweredOn
	vms := []inventory.VM{named("asleep"), named("empty"), named("locked"), runs}
	look := func(_ context.Context, v *inventory.VM) ([]guest.Report, error) {
		switch v.Name {
		case "asleep":
			return []guest.Report{{Verdict: "Windows 10: boots"}, {Warnings: []guest.Warning{{Code: "hibernated", Text: "it hibernated"}, {Code: "gpt-backup", Text: "half a table"}}}}, nil
		case "locked":
			return nil, fault.New(fault.Conflict, "the file is locked").WithHint("wait")
		case "runs":
			t.Error("one that runs is looked into")
		}
		return []guest.Report{{}}, nil
	}
	found := ofGuests(t, vm.Options{VMs: vms, Inspect: look})
	var told []string
	for _, f := range found {
		told = append(told, f.On+": "+f.Status.String()+": "+f.Found)
		if f.Status != doctor.OK && f.Remedy == "" {
			t.Errorf("no remedy: %+v", f)
		}
	}
	slices.Sort(told)
	want := []string{
		"VM asleep: ok: Windows 10: boots",
		"VM asleep: warning: disk 2: half a table (gpt-backup)",
		"VM asleep: warning: disk 2: it hibernated (hibernated)",
		"VM empty: ok: no known operating system on the disks",
		"VM locked: unknown: the file is locked",
	}
	if !slices.Equal(told, want) {
		t.Errorf("told\n%s\nwant\n%s", strings.Join(told, "\n"), strings.Join(want, "\n"))
	}
	if found := ofGuests(t, vm.Options{VMs: vms}); len(found) > 0 {
		t.Errorf("without a look: %+v", found)
	}
	broken := func(context.Context, *inventory.VM) ([]guest.Report, error) { return nil, errors.New("reset") }
	if found := ofGuests(t, vm.Options{VMs: vms[:1], Inspect: broken}); len(found) != 1 || found[0].Status != doctor.Unknown {
		t.Errorf("of a look that fails: %+v", found)
	}
}
