package admission

import (
	"github.com/decamp/decamp/internal/fleetdb"
)

// Decide returns the possible grants: VMs to undo first, then transfers. The caller records the grants
// and passes the resulting rows to Recorded.
func (c *Controller) Decide() []fleetdb.Granted {
	grants := c.grantUndo()
	for _, g := range c.sched.Decide(c.Now()) {
		v := c.vms[keyOf(g.Plan, g.Run)]
		worker := v.Worker
		if a, ok := c.workers.assigned[v.Key]; ok {
			worker = a.worker
		}
		granted := fleetdb.Granted{Key: v.Key, Worker: worker}
		if !g.Until.IsZero() {
			granted.Expected = g.Until.Sub(g.Since)
		}
		grants = append(grants, granted)
	}
	return grants
}

// Recorded passes in the rows of the grants that the fleet database recorded. The other VMs changed
// meanwhile: they release their grants, and Tick submits them again.
func (c *Controller) Recorded(grants []fleetdb.Granted, rows []fleetdb.VM) {
	recorded := make(map[fleetdb.Key]bool, len(rows))
	for _, v := range rows {
		recorded[v.Key] = true
		c.hosts.recordBegin(v.Host)
		c.SetVM(v)
	}
	for _, g := range grants {
		if !recorded[g.Key] {
			c.sched.Release(runOf(g.Key))
			c.workers.unassign(g.Key)
			c.unrecorded[g.Key] = true
		}
	}
}

// grantUndo grants VMs to undo to workers that can take them, within the slots of each worker.
func (c *Controller) grantUndo() []fleetdb.Granted {
	if len(c.undo) == 0 {
		return nil
	}
	undoing := map[string]int{}
	for _, v := range c.vms {
		if v.State != fleetdb.Queued && c.orderOf(v).Undoes() {
			undoing[v.Worker]++
		}
	}
	var grants []fleetdb.Granted
	for key := range c.undo {
		v := c.vms[key]
		if _, refused := c.refusals.forVM(v); refused {
			continue
		}
		for _, w := range c.workers.candidatesFor(v) {
			if undoing[w.Name] < w.VMs {
				undoing[w.Name]++
				delete(c.undo, key)
				grants = append(grants, fleetdb.Granted{Key: key, Worker: w.Name})
				break
			}
		}
	}
	return grants
}

// VMsOfEndedWorkers returns the VMs of each worker that has ended. queue are the VMs that another worker, or their
// own one if it is back, can continue. strand are the VMs that must wait for their worker, without
// those that wait already.
func (c *Controller) VMsOfEndedWorkers() (queue, strand map[string][]fleetdb.Key) {
	queue, strand = map[string][]fleetdb.Key{}, map[string][]fleetdb.Key{}
	for _, v := range c.vms {
		w := c.workers.byName[v.Worker]
		switch {
		case v.State == fleetdb.Queued, w.Alive && v.State != fleetdb.Stranded:
		case len(v.Storage) == 0 || len(c.workers.candidatesFor(v)) > 0:
			queue[v.Worker] = append(queue[v.Worker], v.Key)
		case v.State != fleetdb.Stranded:
			strand[v.Worker] = append(strand[v.Worker], v.Key)
		}
	}
	return queue, strand
}

// Worker returns the last row of a worker; the zero value if it is unknown.
func (c *Controller) Worker(name string) fleetdb.Worker { return c.workers.byName[name] }
