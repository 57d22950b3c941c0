package preflight

import (
	"strconv"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/planfile"
)

// firstLockingRelease is the first ESXi release whose running VMs' disks on VMFS were reported as unreadable
// over https, with or without a snapshot (reports of three projects, of ESXi 7 and 8 with VMFS6). Older
// releases permit reading the disk below a snapshot. Other datastores have no reports.
const firstLockingRelease = 7

// checkWarmHTTPS looks for VMs that https is to read while they run.
func (c *check) checkWarmHTTPS(i int) {
	m := c.moves[i]
	if m.Options.Transport != "https" || m.VM.Power != inventory.PoweredOn {
		return
	}
	remedy := "say transport: nfc, which reads every running VM"
	h := c.hosts[m.VM.Host]
	if majorVersion(h.Version) >= firstLockingRelease && c.onVMFS(m.VM) {
		c.addFinding(i, planfile.Found("warm-https", m.Pos, m.VM.Name, fault.New(fault.Unsupported,
			"it runs, and https cannot read it: host %s (ESXi %s) locks the disks of a running VM, also below a snapshot", h.Name, h.Version).
			WithHint("%s; or have it shut down: mode: cold", remedy)))
		return
	}
	c.addFinding(i, planfile.Noted("warm-https", m.Pos, m.VM.Name, remedy, "most hosts do not let the disks of a running VM be read over https"))
}

// majorVersion is the first number of a version; 0 of none.
func majorVersion(version string) int {
	first, _, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(first)
	if err != nil {
		return 0
	}
	return n
}

// onVMFS reports whether a disk of a VM is on a VMFS.
func (c *check) onVMFS(vm *inventory.VM) bool {
	for _, d := range vm.Disks {
		if c.datastoreTypes[datastoreName{vm.Datacenter, d.Base.Datastore}] == "VMFS" {
			return true
		}
	}
	return false
}

// A store is a datastore by its names.
type datastoreName struct{ datacenter, name string }
