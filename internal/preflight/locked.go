package preflight

import (
	"strconv"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/planfile"
)

// firstLockingRelease is the first ESXi release with reports that https cannot read the disks of
// running VMs on VMFS, with or without a snapshot (reports of three projects, for ESXi 7 and 8 with
// VMFS6). Older releases permit reading the disk below a snapshot. There are no reports for other types
// of datastores.
const firstLockingRelease = 7

// checkWarmHTTPS reports running VMs that https cannot read, and notes those that it may not be able to
// read.
func (c *check) checkWarmHTTPS(i int) {
	m := c.moves[i]
	if m.Options.Transport != "https" || m.VM.Power != inventory.PoweredOn {
		return
	}
	remedy := "set transport: nfc, which can read running VMs"
	h := c.hosts[m.VM.Host]
	if majorVersion(h.Version) >= firstLockingRelease && c.onVMFS(m.VM) {
		c.addFinding(i, planfile.ErrorFinding("warm-https", m.Pos, m.VM.Name, fault.New(fault.Unsupported,
			"https cannot read this running VM: host %s (ESXi %s) locks the disks of running VMs, also with a snapshot", h.Name, h.Version).
			WithHint("%s, or set mode: cold", remedy)))
		return
	}
	c.addFinding(i, planfile.NoteFinding("warm-https", m.Pos, m.VM.Name, remedy, "most hosts refuse to read the disks of a running VM over https"))
}

// majorVersion returns the first number of a version; otherwise 0.
func majorVersion(version string) int {
	first, _, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(first)
	if err != nil {
		return 0
	}
	return n
}

// onVMFS reports whether a disk of the VM is on VMFS.
func (c *check) onVMFS(vm *inventory.VM) bool {
	for _, d := range vm.Disks {
		if c.datastoreTypes[datastoreName{vm.Datacenter, d.Base.Datastore}] == "VMFS" {
			return true
		}
	}
	return false
}

// A datastoreName identifies a datastore: names are unique within a datacenter.
type datastoreName struct {
	datacenter string // inventory path of the datacenter; "ha-datacenter" on an ESXi host
	name       string // name of the datastore
}
