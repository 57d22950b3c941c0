package cli

import (
	"os"
	"testing"

	"github.com/decamp/decamp/internal/inventory"
)

// decamp rollback --withdraw removes a published VM and starts it at the source again if it was running there.
func TestRollbackOfAPublishedVM(t *testing.T) {
	t.Parallel()
	cfg := smallLab()
	cfg.VMs[0].PoweredOn = true
	r := newRig(t, cfg).withFingerprint()
	r.migrate("web01", "--power-off").wantExit(0)
	run := r.onlyRun()
	r.runOnSource("rollback", run).wantExit(6).wantOutput("VM web01", "is published", "--withdraw removes it from dir:")
	r.runOnSource("cancel", run).wantExit(6).wantOutput("run "+run+" is done and its VM is published", "decamp rollback "+run+" --withdraw removes it from dir:")
	r.run("rollback", "nothing-000000").wantExit(3).wantOutput("plan or run", "decamp runs")
	if power := r.sourceVM("web01").Power; power != inventory.PoweredOff {
		t.Errorf("the VM at the source is %s before the rollback", power)
	}
	r.runOnSource("rollback", run, "--withdraw").wantExit(0).wantOutput("is rolled back")
	if left, err := os.ReadDir(r.vmsDir()); err != nil || len(left) > 0 {
		t.Errorf("the target contains %v, %v, want nothing", left, err)
	}
	if power := r.sourceVM("web01").Power; power != inventory.PoweredOn {
		t.Errorf("the VM at the source is %s", power)
	}
	r.run("runs").wantExit(0).wantOutput("No runs")
	r.migrate("web01", "--power-off").wantExit(0) // the VM can be migrated again
}
