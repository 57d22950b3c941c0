package admission

import (
	"maps"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/planfile"
)

// workers are the workers of the fleet, and the assignments of queued VMs to them.
type workers struct {
	byName   map[string]fleetdb.Worker  // last row of each worker
	names    []string                   // keys of byName, sorted
	assigned map[fleetdb.Key]assignment // assignments of queued VMs
	queued   map[string]int             // assigned VMs by worker
}

// An assignment is the worker that a queued VM waits for.
type assignment struct {
	worker       string // name of the worker
	alternatives bool   // other workers can take the VM as well
}

// newWorkers returns an empty set of workers.
func newWorkers() *workers {
	return &workers{byName: map[string]fleetdb.Worker{}, assigned: map[fleetdb.Key]assignment{}, queued: map[string]int{}}
}

// setRows sets the rows of workers. It reports whether one of them can take other VMs than before.
func (ws *workers) setRows(rows []fleetdb.Worker) (changed bool) {
	for _, w := range rows {
		old := ws.byName[w.Name]
		changed = changed || old.Alive != w.Alive || old.Drains != w.Drains || old.VMs != w.VMs || !maps.Equal(old.Offers, w.Offers)
		ws.byName[w.Name] = w
	}
	ws.names = slices.Sorted(maps.Keys(ws.byName))
	return changed
}

// chooseWorker returns the worker that v should wait for: of those that can take it, the one with the
// shortest queue relative to its slots. If no worker can take it, why is the reason.
func (ws *workers) chooseWorker(v fleetdb.VM) (to assignment, why string) {
	able := ws.candidatesFor(v)
	if len(able) == 0 {
		return assignment{}, ws.reasonForNone(v)
	}
	best := able[0]
	for _, w := range able[1:] {
		if ws.loadOf(w) < ws.loadOf(best) {
			best = w
		}
	}
	return assignment{best.Name, len(able) > 1}, ""
}

// loadOf returns the queue of a worker with one VM more, divided by its slots.
func (ws *workers) loadOf(w fleetdb.Worker) float64 {
	return float64(ws.queued[w.Name]+1) / float64(max(w.VMs, 1))
}

// candidatesFor returns the live workers that can take a VM and are not draining, by name.
func (ws *workers) candidatesFor(v fleetdb.VM) []fleetdb.Worker {
	var able []fleetdb.Worker
	for _, name := range ws.names {
		if w := ws.byName[name]; w.Alive && !w.Drains && canTake(w, v) {
			able = append(able, w)
		}
	}
	return able
}

// reasonForNone returns why no worker can take a VM.
func (ws *workers) reasonForNone(v fleetdb.VM) string {
	for _, name := range ws.names {
		w := ws.byName[name]
		switch {
		case !canTake(w, v):
		case !w.Alive:
			return "worker " + w.Name + " offers the required resources, but has ended: start it again"
		case w.Drains:
			return "worker " + w.Name + " offers the required resources, but is drained"
		}
	}
	if len(v.Storage) > 0 {
		return "no worker offers the storage with its images"
	}
	return "no worker offers " + strings.Join(v.To, ", ")
}

// assign makes a VM wait for a worker. It replaces an earlier assignment.
func (ws *workers) assign(k fleetdb.Key, to assignment) {
	ws.unassign(k)
	ws.assigned[k] = to
	ws.queued[to.worker]++
}

// unassign removes the assignment of a VM, if it has one.
func (ws *workers) unassign(k fleetdb.Key) {
	if a, ok := ws.assigned[k]; ok {
		delete(ws.assigned, k)
		ws.queued[a.worker]--
	}
}

// canTake reports whether a worker has the storage of the VM's images. For a VM without images, the
// worker must offer its destination folders.
func canTake(w fleetdb.Worker, v fleetdb.VM) bool {
	if len(v.Storage) > 0 {
		return offersIDs(w, v.Storage)
	}
	for _, to := range v.To {
		if StorageOf(w.Offers, to) == "" {
			return false
		}
	}
	return len(v.To) > 0
}

// offersIDs reports whether a worker offers all storages with these ids.
func offersIDs(w fleetdb.Worker, ids []string) bool {
	offered := slices.Collect(maps.Values(w.Offers))
	for _, id := range ids {
		if !slices.Contains(offered, id) {
			return false
		}
	}
	return true
}

// StorageOf returns the id of the storage that contains the folder of a destination such as
// dir:/srv/vm. offers are the folders that a worker offers; the deepest one that contains the folder
// counts. It returns "" if none does.
func StorageOf(offers map[string]string, to string) string {
	folder := planfile.Destination(to).Folder()
	best := ""
	for offered := range offers {
		if len(offered) > len(best) && isWithin(folder, offered) {
			best = offered
		}
	}
	return offers[best]
}

// isWithin reports whether folder is parent or below it. Both must be clean absolute paths.
func isWithin(folder, parent string) bool {
	return folder == parent || strings.HasPrefix(folder, strings.TrimSuffix(parent, "/")+"/")
}
