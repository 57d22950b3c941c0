package fleet

import (
	"testing"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab"
)

// decamp rollback removes a published VM of a plan only with --withdraw, as for a VM of decamp migrate. The VM is given
// by its name or by the ID of its run.
func TestRollbackOfAPublishedVMOfAPlan(t *testing.T) {
	t.Parallel()
	cfg := slowLabOf(2)
	cfg.Limits = lab.Limits{}
	for i := range cfg.VMs {
		cfg.VMs[i].PoweredOn = true
	}
	r := newTestEnv(t, cfg)
	file := r.writePlan("wave", "defaults: {to: [dir:"+r.vmFolder()+"], mode: cold, powerOff: guest}\nselect: name ~ *\n")
	r.run("plan", "run", file).wantExit(0).wantOutput("2 done")
	v := r.waitFor("wave", "all are done", func(v view) bool { return v.count(fleetdb.Done) == 2 })
	all := vmNames(2)
	run := v.vms[all[1]].Runs[0]

	r.run("rollback", "wave/"+all[0]).wantExit(6).wantOutput("VM "+all[0], "is published", "rollback wave/", "--withdraw removes it from dir:")
	r.run("rollback", run).wantExit(6).wantOutput("VM "+all[1], "is published", "rollback wave/", "--withdraw removes it from dir:")
	r.run("rollback", "wave", "--withdraw").wantExit(2).wantOutput("requires one VM")
	r.run("rollback", "wave").wantExit(6).wantOutput("has ended")
	r.checkOnlyPublished(r.vmFolder(), all...)

	r.run("rollback", "wave/"+all[0], "--withdraw").wantExit(0).wantOutput("rollback --withdraw is queued", "decamp plan run FILE", "decamp serve")
	r.run("plan", "run", file).wantExit(0).wantOutput("1 done", "1 canceled", "1 VM withdrawn by command")
	r.checkOnlyPublished(r.vmFolder(), all[1])
	r.checkSourceClean(inventory.PoweredOn, all[0])
	r.checkSourceClean(inventory.PoweredOff, all[1])

	r.run("rollback", run, "--withdraw").wantExit(0)
	r.run("plan", "run", file).wantExit(0).wantOutput("2 canceled", "2 VMs withdrawn by command")
	r.checkOnlyPublished(r.vmFolder())
	r.checkSourceClean(inventory.PoweredOn, all...)
}
