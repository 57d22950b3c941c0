package preflight

import (
	"maps"
	"slices"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/namemap"
	"github.com/decamp/decamp/internal/planfile"
)

// checkMaps notes names in the maps of the plan that the source does not have, and networks of the
// plan's VMs without an entry in the map. These are notes, because a map may serve several plans.
func (c *check) checkMaps(vms []inventory.VM, stores []inventory.Datastore) {
	haveStores, haveNets := map[string]bool{}, map[string]bool{}
	for _, d := range stores {
		haveStores[d.Name] = true
	}
	for i := range vms {
		for _, n := range vms[i].NICs {
			haveNets[n.Network] = true
		}
	}
	c.noteUnknown("maps.datastores", slices.Collect(maps.Keys(c.file.Maps.Datastores)), haveStores, "the source has no datastore called %s")
	haveVMs := map[string]bool{}
	for i := range vms {
		haveVMs[vms[i].Name] = true
	}
	c.noteUnknown("maps.networks", slices.Collect(maps.Keys(c.file.Maps.Networks)), haveNets, "no VM of the source is connected to a network called %s")
	c.noteUnknown("maps.storages", slices.Collect(maps.Keys(c.file.Maps.Storages)), haveStores, "the source has no datastore called %s")
	c.noteUnknown("maps.names", slices.Collect(maps.Keys(c.file.Maps.Names)), haveVMs, "the source has no VM called %s")
	c.noteUnmapped()
}

// noteUnknown adds a note for each name that is neither known nor a pattern. format has one %s for the
// name.
func (c *check) noteUnknown(path string, names []string, have map[string]bool, format string) {
	slices.Sort(names)
	for _, name := range names {
		if !have[name] && !namemap.IsPattern(name) {
			c.found = append(c.found, planfile.NoteFinding("map", c.file.At(path+"."+name), "", "correct the name, or remove the entry", format, name))
		}
	}
}

// noteUnmapped adds a note for each network without an entry, once per network. A plan without a map of
// networks keeps their names.
func (c *check) noteUnmapped() {
	told := map[string]bool{}
	for _, m := range c.moves {
		for _, n := range m.VM.NICs {
			if namemap.Has(c.file.Maps.Networks, n.Network) || told[n.Network] || len(c.file.Maps.Networks) == 0 {
				continue
			}
			told[n.Network] = true
			c.found = append(c.found, planfile.NoteFinding("map", c.file.At("maps.networks"), m.VM.Name, "add the network to maps: {networks: …}", "the map has no network %s", n.Network))
		}
	}
}
