package fleet

import (
	"testing"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab"
)

// A snapshot of one VM of a plan fails. The other VMs end, the host's error is reported, and a retry after the repair
// completes the VM.
func TestSnapshotOfOneVMFails(t *testing.T) {
	t.Parallel()
	cfg := labOf(2)
	cfg.VMs = append(cfg.VMs, runningVM("warm1", 101), runningVM("warm2", 102))
	cfg.Faults = []lab.Fault{{Kind: lab.FaultSnapshotCreate, Path: "warm1"}}
	cfg.Locks = lab.LockActive
	r := newTestEnv(t, cfg)
	file := r.writePlan("snaps", "defaults: {to: [dir:"+r.vmFolder()+"], warm: {interval: 10m}}\nselect: name ~ *\nvms:\n"+
		"  - {vm: warm1, mode: warm}\n  - {vm: warm2, mode: warm}\n")
	p := r.startCommand("plan", "run", file)
	r.waitFor("snaps", "warm2 waits for its cutover, and warm1 failed", func(v view) bool {
		return v.vms["warm2"].Step == "wait" && v.count(fleetdb.Done) == 2 && v.vms["warm1"].State == fleetdb.Failed
	})
	r.run("status", "snaps/warm1").wantExit(0).wantOutput("Failed to quiesce the virtual machine")
	r.run("cutover", "snaps").wantExit(0)
	p.wantExit(6).wantOutput("1 of 4 VMs failed")
	r.lab.Faults().Clear()
	r.run("retry", "snaps/warm1").wantExit(0)
	r.run("plan", "run", file).wantExit(0).wantOutput("4 done") // the cutover was requested for the whole plan
	r.checkAllPublished(r.vmFolder(), "vm01", "vm02", "warm1", "warm2")
	r.checkSourceClean(inventory.PoweredOff, "warm1", "warm2")
}
