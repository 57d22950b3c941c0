package cli

import (
	"os"
	"testing"

	"github.com/decamp/decamp/internal/inventory"
)

// A VM that ran is moved, and taken back: it runs at the source again, and nothing is left of it here.
func TestRollbackOfAPublishedVM(t *testing.T) {
	t.Parallel()
	cfg := small()
	cfg.VMs[0].PoweredOn = true
	r := newRig(t, cfg).trusting()
	r.migrate("web01", "--power-off").ends(0)
	run := r.onlyRun()
	r.source("rollback", run).ends(6).says("VM web01", "is published", "--withdraw removes it from dir:")
	r.source("cancel", run).ends(6).says("run "+run+" is done and its VM is published", "decamp rollback "+run+" --withdraw removes it from dir:")
	r.run("rollback", "nothing-000000").ends(3).says("plan or run", "decamp runs")
	if power := r.vm("web01").Power; power != inventory.PoweredOff {
		t.Errorf("before it is taken back, the source is %s", power)
	}
	r.source("rollback", run, "--withdraw").ends(0).says("is rolled back")
	if left, err := os.ReadDir(r.vms()); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if power := r.vm("web01").Power; power != inventory.PoweredOn {
		t.Errorf("the source is %s", power)
	}
	r.run("runs").ends(0).says("No runs")
	r.migrate("web01", "--power-off").ends(0) // as if nothing had been
}
