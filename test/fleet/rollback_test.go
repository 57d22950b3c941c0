package fleet

import (
	"testing"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab"
)

// A published VM of a plan is taken back as one that decamp migrate moved is: not without --withdraw,
// and then wholly. Its name and its run are the same.
func TestRollbackOfAPublishedVMOfAPlan(t *testing.T) {
	t.Parallel()
	cfg := slow(2)
	cfg.Limits = lab.Limits{}
	for i := range cfg.VMs {
		cfg.VMs[i].PoweredOn = true
	}
	r := newRig(t, cfg)
	file := r.plan("wave", "defaults: {to: [dir:"+r.vms()+"], mode: cold, powerOff: guest}\nselect: name ~ *\n")
	r.run("plan", "run", file).ends(0).says("2 done")
	v := r.until("wave", "all are done", func(v view) bool { return v.count(fleetdb.Done) == 2 })
	all := names(2)
	run := v.vms[all[1]].Runs[0]

	r.run("rollback", "wave/"+all[0]).ends(6).says("VM "+all[0], "is published", "rollback wave/", "--withdraw removes it from dir:")
	r.run("rollback", run).ends(6).says("VM "+all[1], "is published", "rollback wave/", "--withdraw removes it from dir:")
	r.run("rollback", "wave", "--withdraw").ends(2).says("requires one VM")
	r.run("rollback", "wave").ends(6).says("has ended")
	r.onlyPublished(r.vms(), all...)

	r.run("rollback", "wave/"+all[0], "--withdraw").ends(0).says("rollback --withdraw is queued", "decamp plan run FILE", "decamp serve")
	r.run("plan", "run", file).ends(0).says("1 done", "1 canceled", "1 VM withdrawn by command")
	r.onlyPublished(r.vms(), all[1])
	r.asFound(inventory.PoweredOn, all[0])
	r.asFound(inventory.PoweredOff, all[1])

	r.run("rollback", run, "--withdraw").ends(0)
	r.run("plan", "run", file).ends(0).says("2 canceled", "2 VMs withdrawn by command")
	r.onlyPublished(r.vms())
	r.asFound(inventory.PoweredOn, all...)
}
