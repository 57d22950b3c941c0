package cli

import (
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

var unsupported = fault.ExitCode(fault.New(fault.Unsupported, ""))

// A host with a free licence takes no snapshots: that is said before anything is done, where the
// licence can be read; else with the first thing that it refuses, whether changes were tracked
// before or not. Nothing is changed, nothing is left, and the remedies work.
func TestWarmWithAFreeLicence(t *testing.T) {
	for name, c := range map[string]struct {
		edition string
		tracked bool
		step    string // that is refused
	}{
		"known":            {"", false, "prepare"},
		"unknown":          {"esxNew", false, "track"},
		"unknown, tracked": {"esxNew", true, "freeze"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := free(writing())
			cfg.LicenceEdition, cfg.VMs[0].ChangeTracking = c.edition, c.tracked
			r := newRig(t, cfg).trusting()
			res := r.migrate("web01", "--warm", "--transport", "nfc").ends(unsupported).
				says("licence (free ESXi)", "Remedy: ", "shut the VM down", "without --warm", "paid licence")
			if contains(res.stderr, "no-change-tracking") {
				t.Errorf("it went on without change tracking: %s", res.stderr)
			}
			if run := r.run("runs").ends(0); !contains(run.stdout, c.step) {
				t.Errorf("it was not refused at %s: %s", c.step, run.stdout)
			}
			r.untouched(c.tracked)
			must(t, r.lab.SetPower("web01", false)) // by hand, as was said
			if c.step != "prepare" {
				r.migrate("web01", "--transport", "https").ends(conflict).says("--discard")
				r.source("cancel", r.onlyRun()).ends(0)
			}
			r.migrate("web01", "--transport", "https").ends(0).says("is moved, proven and published")
		})
	}
}

// untouched checks that the VM runs as before, and that nobody thinks that something is left.
func (r *rig) untouched(tracked bool) {
	r.t.Helper()
	vm := r.vm("web01")
	if vm.Power != inventory.PoweredOn || vm.Snapshots > 0 || vm.ChangeTracking != tracked {
		r.t.Errorf("the VM is %s with %d snapshots, tracking %v", vm.Power, vm.Snapshots, vm.ChangeTracking)
	}
	for call, n := range r.lab.Stats().SOAP {
		if strings.HasPrefix(call, "CreateSnapshot") && n > 1 || strings.HasPrefix(call, "ReconfigVM") && n > 1 {
			r.t.Errorf("%d calls of %s", n, call)
		}
	}
	if left := r.run("runs").ends(0).stdout; contains(left, "snapshot \"") {
		r.t.Errorf("on record: %s", left)
	}
}
