package fleet

import (
	"maps"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/roster"
)

// A placement is the worker that a VM in line is to be given to.
type placement struct {
	worker string
	others bool // there are more that could take it
}

// choose returns the worker that v is to wait for: of those that can take it, the one with the
// shortest queue for what it takes at once. If nobody can, it says why.
func (d *desk) choose(v roster.VM) (placement, string) {
	able := d.able(v)
	if len(able) == 0 {
		return placement{}, d.nobody(v)
	}
	best := able[0]
	for _, w := range able[1:] {
		if d.crowd(w) < d.crowd(best) {
			best = w
		}
	}
	return placement{best.Name, len(able) > 1}, ""
}

// crowd is how many would wait for a worker, over how many it takes.
func (d *desk) crowd(w roster.Worker) float64 {
	return float64(d.queues[w.Name]+1) / float64(max(w.VMs, 1))
}

// able returns the workers that can take a VM on, by name.
func (d *desk) able(v roster.VM) []roster.Worker {
	var able []roster.Worker
	for _, name := range d.roll {
		if w := d.workers[name]; w.Alive && !w.Drains && offers(w, v) {
			able = append(able, w)
		}
	}
	return able
}

// offers reports whether a worker has what the VM's images are on, or, if there are none yet,
// the folders that they are to come to.
func offers(w roster.Worker, v roster.VM) bool {
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

func offersIDs(w roster.Worker, ids []string) bool {
	for _, id := range ids {
		if !slices.Contains(slices.Collect(maps.Values(w.Offers)), id) {
			return false
		}
	}
	return true
}

// StorageOf returns the id of the storage that the folder of a destination such as dir:/srv/vm is
// on, by what a worker offers: of its folders, the one nearest above counts. "" is none.
func StorageOf(offers map[string]string, to string) string {
	folder := planfile.Destination(to).Folder()
	best := ""
	for offered := range offers {
		if len(offered) > len(best) && within(folder, offered) {
			best = offered
		}
	}
	return offers[best]
}

func within(folder, parent string) bool {
	return folder == parent || strings.HasPrefix(folder, strings.TrimSuffix(parent, "/")+"/")
}

// nobody says why no worker can take a VM.
func (d *desk) nobody(v roster.VM) string {
	for _, name := range d.roll {
		w := d.workers[name]
		switch {
		case !offers(w, v):
		case !w.Alive:
			return "worker " + w.Name + " offers what it needs, and is gone: start it again"
		case w.Drains:
			return "worker " + w.Name + " offers what it needs, and is drained"
		}
	}
	if len(v.Storage) > 0 {
		return "no worker offers the storage that its images are on"
	}
	return "no worker offers " + strings.Join(v.To, ", ")
}

// place and unplace keep count of who waits for which worker.
func (d *desk) place(k roster.Key, p placement) {
	d.unplace(k)
	d.placed[k] = p
	d.queues[p.worker]++
}

func (d *desk) unplace(k roster.Key) {
	if p, ok := d.placed[k]; ok {
		delete(d.placed, k)
		d.queues[p.worker]--
	}
}

// setWorkers takes in who there is. When that changed, all that wait for a worker choose
// anew; they keep their place in line.
func (d *desk) setWorkers(workers []roster.Worker) {
	changed := false
	for _, w := range workers {
		old := d.workers[w.Name]
		changed = changed || old.Alive != w.Alive || old.Drains != w.Drains || old.VMs != w.VMs || !maps.Equal(old.Offers, w.Offers)
		d.workers[w.Name] = w
		d.capacity(turnsOf(w.Name))
	}
	d.roll = slices.Sorted(maps.Keys(d.workers))
	if changed && d.loaded {
		d.chooseAnew(func(roster.VM) bool { return true })
	}
}

func (d *desk) chooseAnew(which func(roster.VM) bool) {
	for _, v := range d.vms {
		if v.State == roster.Queued && !v.Holds && which(v) {
			d.settle(v)
		}
	}
}

// rebalance gives a worker that nobody waits for, and that has room, some of those that wait
// for others.
func (d *desk) rebalance() {
	held := map[string]int{}
	for _, v := range d.vms {
		if v.Holds {
			held[v.Worker]++
		}
	}
	for _, name := range d.roll {
		w := d.workers[name]
		if !w.Alive || w.Drains || d.queues[name] > 0 || held[name] >= w.VMs {
			continue
		}
		moved := 0
		d.chooseAnew(func(v roster.VM) bool {
			p := d.placed[v.Key]
			if moved >= w.VMs || !p.others || !offers(w, v) {
				return false
			}
			moved++
			return true
		})
	}
}
