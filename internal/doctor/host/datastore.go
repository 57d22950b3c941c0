package host

import (
	"context"
	"fmt"

	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/inventory"
)

// onStore returns the object of a finding about a datastore.
func onStore(d inventory.Datastore) string { return "datastore " + d.Name }

// forEachStore calls look for each accessible datastore. Inaccessible ones already have
// a finding of another check. A finding without Seen is omitted.
func (g *group) forEachStore(look func(inventory.Datastore) doctor.Finding) (found []doctor.Finding) {
	for _, d := range g.Datastores {
		if d.Inaccessible {
			continue
		}
		if f := look(d); f.Found != "" {
			f.On = onStore(d)
			found = append(found, f)
		}
	}
	return found
}

// checkReached reports datastores that no host can access.
func (g *group) checkReached(context.Context) (found []doctor.Finding) {
	for _, d := range g.Datastores {
		f := okFinding("accessible")
		if d.Inaccessible {
			f = doctor.Finding{
				Status: doctor.Failure, Found: "no host can access it", Want: "a datastore that at least one host can access",
				Remedy: "# on a host with a path to the datastore:\nesxcli storage core path list\nesxcli storage nfs list\nesxcli storage core adapter rescan --all",
			}
		}
		f.On = onStore(d)
		found = append(found, f)
	}
	return found
}

// checkStoreMaintenance reports datastores in maintenance mode.
func (g *group) checkStoreMaintenance(context.Context) []doctor.Finding {
	return g.forEachStore(func(d inventory.Datastore) doctor.Finding {
		if !d.Maintenance {
			return okFinding("not in maintenance mode")
		}
		return doctor.Finding{
			Status: doctor.Warning, Found: "maintenance mode is on: vSphere relocates its VMs and powers none on", Want: "maintenance mode off during the migration",
			Remedy: fmt.Sprintf("end maintenance mode in the vSphere Client: datastore %s > Maintenance Mode > Exit Maintenance Mode", d.Name),
		}
	})
}

// checkAllocationMap reports datastores without allocation maps. Only VMFS has them
// (VDDK programming guide); on other datastores the query fails or returns the whole
// disk. A landing does not need them.
func (g *group) checkAllocationMap(context.Context) []doctor.Finding {
	return g.forEachStore(func(d inventory.Datastore) doctor.Finding {
		if d.Type == "VMFS" || g.Use.Transport == "landing" {
			return okFinding(d.Type)
		}
		return doctor.Finding{
			Status: doctor.Advice, Found: d.Type + " does not report allocated areas; decamp reads and transfers complete disks", Want: "VMFS, or --transport landing, with which the host omits zeros",
			Remedy: "add --transport landing",
		}
	})
}

// Room that a datastore should have while VMs on it run on a snapshot.
const (
	leastRoom  = 10 << 30 // required free bytes of a datastore with snapshots
	deltaShare = 10       // required free space in percent of the VMs' provisioned size
)

// checkSpace reports datastores without space for snapshots. A full datastore stops all
// VMs whose disks grow there.
func (g *group) checkSpace(context.Context) []doctor.Finding {
	if !g.Use.Warm {
		return nil // nothing is written at the source
	}
	return g.forEachStore(func(d inventory.Datastore) doctor.Finding {
		// Delta disks grow with the writes during a round.
		want := max(leastRoom, g.provisionedOn(d)/100*deltaShare)
		seen := fmt.Sprintf("%d GiB free", d.Free>>30)
		if d.Free >= want {
			return okFinding(seen)
		}
		return doctor.Finding{
			Status: doctor.Warning, Found: seen + "; a full datastore stops all VMs that write to snapshots or thin disks", Want: fmt.Sprintf("%d GiB free for the snapshots of precopy rounds", want>>30),
			Remedy: "free space on the datastore, shorten the rounds with --interval 5m, or migrate its VMs powered off",
		}
	})
}

// provisionedOn returns the size of the disks on a datastore that VMs to migrate have,
// in bytes.
func (g *group) provisionedOn(store inventory.Datastore) (sum int64) {
	for i := range g.VMs {
		vm := &g.VMs[i]
		for _, d := range vm.Disks {
			if vm.Datacenter == store.Datacenter && d.Path.Datastore == store.Name {
				sum += d.Capacity
			}
		}
	}
	return sum
}
