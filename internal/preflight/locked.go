package preflight

import (
	"strconv"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/planfile"
)

// firstLocking is the first ESXi release whose running VMs' disks on VMFS were reported as unreadable
// over https, with or without a snapshot (reports of three projects, of ESXi 7 and 8 with VMFS6). Older
// releases permit reading the disk below a snapshot. Other datastores have no reports.
const firstLocking = 7

// overHTTPS looks for VMs that https is to read while they run.
func (c *check) overHTTPS(i int) {
	m := c.moves[i]
	if m.Options.Transport != "https" || m.VM.Power != inventory.PoweredOn {
		return
	}
	remedy := "say transport: nfc, which reads every running VM"
	h := c.hosts[m.VM.Host]
	if major(h.Version) >= firstLocking && c.onVMFS(m.VM) {
		c.add(i, planfile.Found("warm-https", m.Pos, m.VM.Name, fault.New(fault.Unsupported,
			"it runs, and https cannot read it: host %s (ESXi %s) locks the disks of a running VM, also below a snapshot", h.Name, h.Version).
			WithHint("%s; or have it shut down: mode: cold", remedy)))
		return
	}
	c.add(i, planfile.Noted("warm-https", m.Pos, m.VM.Name, remedy, "most hosts do not let the disks of a running VM be read over https"))
}

// major is the first number of a version; 0 of none.
func major(version string) int {
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
		if c.stores[store{vm.Datacenter, d.Base.Datastore}] == "VMFS" {
			return true
		}
	}
	return false
}

// A store is a datastore by its names.
type store struct{ datacenter, name string }
