package fleet

import (
	"context"
	"fmt"
	"time"

	"github.com/decamp/decamp/internal/roster"
)

// reap takes VMs from workers whose lease is over: those that another one can go on with are
// queued, the others wait for their worker; also those whose worker could renew again, which
// is no new one then. Nothing is taken before this scheduler has heard from the roster for the
// length of a lease: while the database was away nobody could renew.
func (d *desk) reap(ctx context.Context) error {
	if d.now().Before(d.reapAfter) {
		return nil
	}
	queued, stranded := map[string][]roster.Key{}, map[string][]roster.Key{}
	for _, v := range d.vms {
		w := d.workers[v.Worker]
		switch {
		case v.State == roster.Queued, w.Alive && v.State != roster.Stranded:
		case len(v.Storage) == 0 || len(d.able(v)) > 0:
			queued[v.Worker] = append(queued[v.Worker], v.Key)
		case v.State != roster.Stranded:
			stranded[v.Worker] = append(stranded[v.Worker], v.Key)
		}
	}
	for worker, keys := range queued {
		d.Log.Info("VMs of a worker that is gone are queued", "worker", worker, "vms", len(keys))
		if err := d.Roster.Scheduling.Requeue(ctx, d.lease, keys, ""); err != nil {
			return err
		}
	}
	for worker, keys := range stranded {
		d.Log.Warn("VMs wait for a worker that is gone", "worker", worker, "vms", len(keys))
		if err := d.Roster.Scheduling.Strand(ctx, d.lease, keys, gone(d.workers[worker])); err != nil {
			return err
		}
	}
	return nil
}

// gone says why a VM is stranded.
func gone(w roster.Worker) string {
	since := ""
	if !w.Until.IsZero() {
		since = " since " + w.Until.UTC().Format(time.DateTime) + " UTC"
	}
	return fmt.Sprintf("worker %s is gone%s, and has its images: start it again", w.Name, since)
}
