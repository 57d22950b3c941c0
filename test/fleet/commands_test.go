package fleet

import (
	"slices"
	"testing"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/lab"
)

// Commands that are sent while no process executes the plan take effect when one does.
func TestCommandsWithoutAServer(t *testing.T) {
	t.Parallel()
	r := newRig(t, slow(6))
	file := r.plan("orders", "defaults: {to: [dir:"+r.vms()+"]}\nlimits: {host: {vms: 4}}\nselect: name ~ *\n")
	p := r.begin("plan", "run", file)
	v := r.until("orders", "four are under way", func(v view) bool { return v.count(fleetdb.Running) == 4 && v.count(fleetdb.Queued) == 2 })
	begun, waits := "", ""
	for name, vm := range v.vms {
		if vm.State == fleetdb.Queued {
			waits = name
		} else {
			begun = name
		}
	}
	r.sent(slowRate)
	p.kill()
	r.run("cancel", "orders/"+begun).ends(0)
	r.run("pause", "orders/"+waits).ends(0)
	r.run("status", "orders").ends(0).says("6 VMs")
	r.run("cancel", "orders/vm77").ends(3).says("vm77", "Remedy: ")
	r.lab.SetLimits(lab.Limits{})
	p = r.begin("plan", "run", file)
	r.until("orders", "all but the paused one are over", func(v view) bool {
		return v.count(fleetdb.Done) == 4 && v.vms[begun].State == fleetdb.Canceled && v.vms[waits].State == fleetdb.Queued
	})
	r.run("resume", "orders/"+waits).ends(0)
	p.finished()
	p.says(p.out, "5 done")
	p.says(p.errs, "1 of 6 VMs were canceled") // and not that the command was interrupted
	left := slices.DeleteFunc(names(6), func(name string) bool { return name == begun })
	for _, vm := range left {
		r.published(r.vms(), vm, "raw", 1)
	}
	r.onlyPublished(r.vms(), left...)
}
