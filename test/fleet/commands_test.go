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
	r := newTestEnv(t, slowLabOf(6))
	file := r.writePlan("orders", "defaults: {to: [dir:"+r.vmFolder()+"]}\nlimits: {host: {vms: 4}}\nselect: name ~ *\n")
	p := r.startCommand("plan", "run", file)
	v := r.waitFor("orders", "four VMs are running", func(v view) bool { return v.count(fleetdb.Running) == 4 && v.count(fleetdb.Queued) == 2 })
	begun, waiting := "", ""
	for name, vm := range v.vms {
		if vm.State == fleetdb.Queued {
			waiting = name
		} else {
			begun = name
		}
	}
	r.waitForSent(slowRate)
	p.kill()
	r.run("cancel", "orders/"+begun).wantExit(0)
	r.run("pause", "orders/"+waiting).wantExit(0)
	r.run("status", "orders").wantExit(0).wantOutput("6 VMs")
	r.run("cancel", "orders/vm77").wantExit(3).wantOutput("vm77", "Remedy: ")
	r.lab.SetLimits(lab.Limits{})
	p = r.startCommand("plan", "run", file)
	r.waitFor("orders", "all VMs except the paused one have ended", func(v view) bool {
		return v.count(fleetdb.Done) == 4 && v.vms[begun].State == fleetdb.Canceled && v.vms[waiting].State == fleetdb.Queued
	})
	r.run("resume", "orders/"+waiting).wantExit(0)
	p.waitForExit()
	p.waitForOutput(p.out, "5 done")
	p.waitForOutput(p.errs, "1 of 6 VMs was canceled") // not an interruption of the command
	left := slices.DeleteFunc(vmNames(6), func(name string) bool { return name == begun })
	for _, vm := range left {
		r.checkPublished(r.vmFolder(), vm, "raw", 1)
	}
	r.checkOnlyPublished(r.vmFolder(), left...)
}
