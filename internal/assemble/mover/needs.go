package mover

import (
	"context"
	"maps"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/sched"
)

// Default limits of plans.
const (
	VMsPerHost   = 20       // Forklift's controller_max_vm_inflight
	disksPerHost = 40       // two for each VM: the mean of its published fleets
	nfcPerHost   = 96 << 20 // bytes that ESXi 8 has for NFC buffers; older ones refuse above 48 MiB, and then wait
	nfcPerDisk   = 4 << 20  // one session with four buffers of 1 MiB
)

// GuessedRate is the expected rate of a transfer in bytes per second before it is measured: that of one
// connection to a real host.
const GuessedRate = 100_000_000

// deltaShare is the part of a VM that a warm round is expected to copy.
const deltaShare = 0.05

// Capacities returns the capacities of the resources that a plan sets, and the defaults of the others.
// It implements fleet.Mover.
func (m *Mover) Capacities(_ context.Context, p fleetdb.Plan) (map[string]int64, error) {
	s, err := m.KnownSource(p)
	if err != nil {
		return nil, err
	}
	units := DefaultCapacities()
	maps.Copy(units, s.file.Limits.Host.Capacities("*"))
	return units, nil
}

// DefaultCapacities returns the capacities of resources that no plan sets: VMs, disks and bytes of NFC
// buffers for each host.
func DefaultCapacities() map[string]int64 {
	return map[string]int64{"host:*/vms": VMsPerHost, "host:*/disks": disksPerHost, "host:*/nfc": nfcPerHost}
}

// Needs returns the resources that a transfer of a VM occupies, and its expected duration without other
// transfers. The scheduler needs only the order of durations. It implements fleet.Mover.
func (m *Mover) Needs(row fleetdb.VM, stage fleetdb.TransferKind) ([]sched.Need, time.Duration) {
	host, disks := "host:"+row.Host, int64(max(row.Disks, 1))
	needs := []sched.Need{
		{Resource: host + "/vms", Weight: 1}, {Resource: host + "/disks", Weight: disks},
		{Resource: "datastore:" + row.Datastore + "/vms", Weight: 1},
		{Resource: "source:" + row.Source + "/vms", Weight: 1},
	}
	if m.transportOf(row) == "nfc" {
		needs = append(needs, sched.Need{Resource: host + "/nfc", Weight: disks * nfcPerDisk})
	}
	seen := map[string]bool{}
	for _, to := range row.To {
		if name := "target:" + to + "/vms"; !seen[name] {
			seen[name] = true
			needs = append(needs, sched.Need{Resource: name, Weight: 1})
		}
	}
	bytes := float64(row.Bytes)
	if stage != fleetdb.First {
		bytes *= deltaShare
	}
	return needs, time.Duration(bytes / float64(GuessedRate) * float64(time.Second))
}

// transportOf returns the transport of a VM in its plan; https if this process does not know the plan.
func (m *Mover) transportOf(row fleetdb.VM) planfile.Transport {
	m.mu.Lock()
	s := m.sources[row.Plan]
	m.mu.Unlock()
	if s == nil {
		return "https"
	}
	return s.optionsFor(row).Transport
}
