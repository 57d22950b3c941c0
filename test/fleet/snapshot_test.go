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
	cfg := many(2)
	cfg.VMs = append(cfg.VMs, running("warm1", 101), running("warm2", 102))
	cfg.Faults = []lab.Fault{{Kind: lab.FaultSnapshotCreate, Path: "warm1"}}
	cfg.Locks = lab.LockActive
	r := newRig(t, cfg)
	file := r.plan("snaps", "defaults: {to: [dir:"+r.vms()+"], warm: {interval: 10m}}\nselect: name ~ *\nvms:\n"+
		"  - {vm: warm1, mode: warm}\n  - {vm: warm2, mode: warm}\n")
	p := r.begin("plan", "run", file)
	r.until("snaps", "warm2 waits for its cutover, and warm1 failed", func(v view) bool {
		return v.vms["warm2"].Step == "wait" && v.count(fleetdb.Done) == 2 && v.vms["warm1"].State == fleetdb.Failed
	})
	r.run("status", "snaps/warm1").ends(0).says("Failed to quiesce the virtual machine")
	r.run("cutover", "snaps").ends(0)
	p.ends(6).says("1 of 4 VMs failed")
	r.lab.Faults().Clear()
	r.run("retry", "snaps/warm1").ends(0)
	r.run("plan", "run", file).ends(0).says("4 done") // the cutover was ordered for all of it
	r.allPublished(r.vms(), "vm01", "vm02", "warm1", "warm2")
	r.asFound(inventory.PoweredOff, "warm1", "warm2")
}
