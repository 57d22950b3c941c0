package fleet

import (
	"context"

	"github.com/decamp/decamp/internal/roster"
)

// grantsAtOnce bounds one transaction. More wait for the next, some milliseconds.
const grantsAtOnce = 1000

// grant carries out what can be decided now.
func (d *desk) grant(ctx context.Context) error {
	given := d.runErrands()
	for _, g := range d.sched.Decide(d.now()) {
		v := d.vms[keyOf(g.Plan, g.Run)]
		worker := v.Worker
		if p, ok := d.placed[v.Key]; ok {
			worker = p.worker
		}
		one := roster.Granted{Key: v.Key, Worker: worker}
		if !g.Until.IsZero() {
			one.Expected = g.Until.Sub(g.Since)
		}
		given = append(given, one)
	}
	for len(given) > 0 {
		n := min(grantsAtOnce, len(given))
		if err := d.write(ctx, given[:n]); err != nil {
			return err
		}
		given = given[n:]
	}
	return nil
}

// write puts grants on record. What is left out has changed meanwhile, and gives back what it
// was granted; its row is on its way here.
func (d *desk) write(ctx context.Context, given []roster.Granted) error {
	rows, err := d.Roster.Scheduling.Grant(ctx, d.lease, given)
	if err != nil {
		return err
	}
	came := make(map[roster.Key]bool, len(rows))
	for _, v := range rows {
		came[v.Key] = true
		d.trial(v.Host)
		d.put(v)
	}
	for _, g := range given {
		if !came[g.Key] {
			d.sched.Release(runOf(g.Key))
			d.unplace(g.Key)
			d.missed[g.Key] = true
		}
	}
	return nil
}

// runErrands gives out what is to be undone: to workers that can, as many at once as they
// transfer.
func (d *desk) runErrands() []roster.Granted {
	if len(d.errands) == 0 {
		return nil
	}
	under := d.undoing()
	var given []roster.Granted
	for key := range d.errands {
		v := d.vms[key]
		if _, refused := d.refusalFor(v); refused {
			continue
		}
		for _, w := range d.able(v) {
			if under[w.Name] < w.VMs {
				under[w.Name]++
				delete(d.errands, key)
				given = append(given, roster.Granted{Key: key, Worker: w.Name})
				break
			}
		}
	}
	return given
}

// undoing counts by worker what is being undone.
func (d *desk) undoing() map[string]int {
	under := map[string]int{}
	for _, v := range d.vms {
		if v.State != roster.Queued && undoes(d.orderOf(v)) {
			under[v.Worker]++
		}
	}
	return under
}
