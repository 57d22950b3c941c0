package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/fleet/admission"
	"github.com/decamp/decamp/internal/fleet/login"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/sched"
)

const (
	// hostHealth is the kind of the records of hosts that failed recently. Their ids are the names of the
	// hosts.
	hostHealth = "host-health"

	// snapshotEvery is how often the scheduler writes its state while a client reads it.
	snapshotEvery = 2 * time.Second

	// readerTime is how long after its last read a client counts as reading the state.
	readerTime = 10 * time.Second

	// maxGrants bounds the grants of one transaction. More wait for the next one, some milliseconds later.
	maxGrants = 1000
)

// A scheduler schedules for one term: it reads what changes in the fleet database, has its admission.Controller
// decide, and records the grants. One goroutine owns it (run). Listings and hooks of plans run beside it, and
// return their results through calls.
type scheduler struct {
	Config
	lease     fleetdb.Lease         // lease of the term, for fenced writes
	admission *admission.Controller // decides which VM may begin
	plans     *planRunner           // plans that have not ended
	calls     chan func()           // functions for the owner to call

	throttle  throttle      // limits the reads of changes
	rev       int64         // revision up to which the database was read
	skew      time.Duration // the database's clock minus the clock of this process
	ticked    time.Time     // time of the last tick
	denied    bool          // the refused logins may have changed
	grace     time.Duration // how long workers may take to return when the term begins
	lostAfter time.Time     // end of grace: no VM is taken from a worker before
	writtenAt time.Time     // when the state may be written again
}

// newScheduler returns the scheduler of a term. g runs its listings and hooks.
func newScheduler(c Config, l fleetdb.Lease, grace time.Duration, g *errgroup.Group) *scheduler {
	s := &scheduler{Config: c, lease: l, grace: grace, calls: make(chan func())}
	s.admission = admission.New(admission.Options{
		Needs: func(v fleetdb.VM, stage fleetdb.TransferKind) ([]sched.Need, time.Duration) {
			return c.Mover.Needs(v, stage)
		},
		Now: s.databaseNow, Log: c.Log,
	})
	s.plans = &planRunner{
		Config: c, now: s.databaseNow, admission: s.admission, group: g, calls: s.calls, plans: map[string]*activePlan{},
		loginDenied: func() { s.denied = true },
	}
	return s
}

// run schedules until an error occurs or ctx ends. It returns the error.
func (s *scheduler) run(ctx context.Context) error {
	if err := s.loadAll(ctx); err != nil {
		return err
	}
	for {
		if err := s.readChanges(ctx); err != nil {
			return err
		}
		if now := s.databaseNow(); now.Before(s.ticked) || !now.Before(s.nextTick()) { // before: our clock was set back
			if err := s.runTick(ctx); err != nil {
				return err
			}
		}
		if err := s.recordGrants(ctx); err != nil {
			return err
		}
		if err := s.saveHosts(ctx); err != nil {
			return err
		}
		s.plans.advanceAll(ctx)
		if err := s.waitForChange(ctx, s.nextWake()); err != nil {
			return err
		}
	}
}

// databaseNow returns the time by the database's clock, as far as our clock has kept pace since it was
// read. It has no monotonic reading, which does not include that difference.
func (s *scheduler) databaseNow() time.Time { return s.Now().Round(0).Add(s.skew) }

// loadAll reads the whole database. All holders are counted, and all requests submitted, before the
// first decision.
func (s *scheduler) loadAll(ctx context.Context) error {
	if err := errors.Join(s.readOthers(ctx), s.readHosts(ctx)); err != nil {
		return err
	}
	s.lostAfter = s.databaseNow().Add(s.grace) // the database may have been away for all workers
	if err := s.readChanges(ctx); err != nil {
		return err
	}
	s.admission.Start()
	return nil
}

// readOthers reads the inputs of decisions that have no revision: live workers, the time, and refused
// logins.
func (s *scheduler) readOthers(ctx context.Context) error {
	workers, err := s.Database.Workers.List(ctx)
	if err != nil {
		return err
	}
	now, err := s.Database.Now(ctx)
	if err != nil {
		return err
	}
	s.skew = now.Sub(s.Now().Round(0))
	s.admission.SetWorkers(workers)
	return s.readRefusals(ctx)
}

// readRefusals reads the refused logins, and shows them as failures of the plans that wait for them.
func (s *scheduler) readRefusals(ctx context.Context) error {
	s.denied = false
	refusals, err := login.Refusals(ctx, s.Database)
	if err != nil {
		return err
	}
	for _, r := range s.admission.SetRefusals(refusals) {
		s.Log.Warn("login refused: no process logs in there until a plan is resumed", "source", login.RecordID(r.Source, r.Host), "err", r.Text)
	}
	return s.plans.showRefusals(ctx)
}

// readChanges reads and applies all changes since the last call.
func (s *scheduler) readChanges(ctx context.Context) error {
	for {
		c, err := s.Database.Feed.Changes(ctx, s.rev)
		if err != nil {
			return err
		}
		if err := s.applyChanges(ctx, c); err != nil {
			return err
		}
		if c.Rev <= s.rev {
			break
		}
		s.rev = c.Rev
	}
	if !s.denied {
		return nil
	}
	return s.readRefusals(ctx)
}

// applyChanges passes changes to the admission and the plans. Dropped plans are first: a plan may exist
// again under its name.
func (s *scheduler) applyChanges(ctx context.Context, c fleetdb.Changes) error {
	for _, name := range c.Dropped {
		s.plans.dropPlan(name)
	}
	for _, l := range c.Limits {
		s.admission.SetLimit(l)
	}
	s.admission.SetWorkers(c.Workers)
	for _, p := range c.Plans {
		if err := s.plans.setPlan(ctx, p); err != nil {
			return err
		}
	}
	for _, v := range c.VMs {
		if s.admission.SetVM(v) {
			s.denied = true
		}
	}
	return nil
}

// runTick does the work that depends on the time and not on changes.
func (s *scheduler) runTick(ctx context.Context) error {
	if err := s.readOthers(ctx); err != nil {
		return err
	}
	s.ticked = s.databaseNow()
	if err := s.takeFromLostWorkers(ctx); err != nil {
		return err
	}
	s.admission.Tick()
	if err := s.updateEstimates(ctx); err != nil {
		return err
	}
	return s.writeSnapshot(ctx)
}

// takeFromLostWorkers takes VMs from workers with an expired lease. VMs that another worker can
// continue are queued; the others wait for their worker. No VM is taken before the scheduler was in
// contact with the database for the length of a lease: while the database was away, no worker could
// renew.
func (s *scheduler) takeFromLostWorkers(ctx context.Context) error {
	if s.databaseNow().Before(s.lostAfter) {
		return nil
	}
	queue, strand := s.admission.VMsOfEndedWorkers()
	for worker, keys := range queue {
		s.Log.Info("VMs of a worker that has ended are queued", "worker", worker, "vms", len(keys))
		if err := s.Database.Scheduling.Requeue(ctx, s.lease, keys, ""); err != nil {
			return err
		}
	}
	for worker, keys := range strand {
		s.Log.Warn("VMs wait for a worker that has ended", "worker", worker, "vms", len(keys))
		if err := s.Database.Scheduling.MarkStranded(ctx, s.lease, keys, lostReason(s.admission.Worker(worker))); err != nil {
			return err
		}
	}
	return nil
}

// lostReason returns why the VMs of a lost worker wait.
func lostReason(w fleetdb.Worker) string {
	since := ""
	if !w.Until.IsZero() {
		since = " since " + w.Until.UTC().Format(time.DateTime) + " UTC"
	}
	return fmt.Sprintf("worker %s has ended%s and has the images of the VM: start it again", w.Name, since)
}

// updateEstimates sets the expected end of active transfers by their progress. A round of a warm VM
// keeps its estimate, because its progress counts the whole disks.
func (s *scheduler) updateEstimates(ctx context.Context) error {
	all, err := s.Database.Progress.List(ctx, "")
	if err != nil {
		return err
	}
	for _, p := range all {
		v, known := s.admission.VM(p.Key)
		if !known || !v.Granted || v.State != fleetdb.Running || p.Round > 0 || p.Rate <= 0 {
			continue
		}
		left := min(leftToMove(v, p), max(p.Total-p.Done, 0))
		s.admission.SetExpectedEnd(p.Key, p.At.Add(time.Duration(float64(left)/float64(p.Rate)*float64(time.Second))))
	}
	return nil
}

// writeSnapshot writes the state of the scheduler if a client reads it.
func (s *scheduler) writeSnapshot(ctx context.Context) error {
	if s.databaseNow().Before(s.writtenAt) {
		return nil
	}
	ago, err := s.Database.SchedulerState.Requested(ctx)
	if err != nil || ago > readerTime {
		return err
	}
	s.writtenAt = s.databaseNow().Add(snapshotEvery)
	text, err := json.Marshal(s.admission.Snapshot())
	if err != nil {
		return err
	}
	return s.Database.SchedulerState.Write(ctx, s.lease, text)
}

// recordGrants records the possible grants, in transactions of maxGrants.
func (s *scheduler) recordGrants(ctx context.Context) error {
	for all := s.admission.Decide(); len(all) > 0; {
		n := min(maxGrants, len(all))
		rows, err := s.Database.Scheduling.Grant(ctx, s.lease, all[:n])
		if err != nil {
			return err
		}
		s.admission.Recorded(all[:n], rows)
		all = all[n:]
	}
	return nil
}

// readHosts reads the health of hosts that an earlier scheduler recorded.
func (s *scheduler) readHosts(ctx context.Context) error {
	records, err := s.Database.Records.List(ctx, hostHealth)
	if err != nil {
		return err
	}
	for _, rec := range records {
		if err := s.admission.Hosts().Restore(rec.ID, rec.Doc); err != nil {
			s.Log.Warn("record of a failed host not readable", "host", rec.ID, "err", err)
		}
	}
	return nil
}

// saveHosts records the health of hosts where it has changed.
func (s *scheduler) saveHosts(ctx context.Context) error {
	return s.admission.Hosts().Save(func(host string, record []byte) error {
		if record == nil {
			return s.Database.Records.Drop(ctx, hostHealth, host)
		}
		return s.Database.Records.Put(ctx, hostHealth, host, record)
	})
}

// nextTick returns when the next tick is due: three times in the length of a lease, and earlier if a
// worker's lease, the grace, a host's rest or the pause of a listing ends. So a lost worker is noticed
// at once.
func (s *scheduler) nextTick() time.Time {
	next := s.ticked.Add(s.TTL / renewals)
	sooner := func(t time.Time) {
		if t.After(s.ticked) && t.Before(next) {
			next = t
		}
	}
	sooner(s.lostAfter)
	s.admission.EachDeadline(sooner)
	s.plans.eachDeadline(sooner)
	return next
}

// nextWake returns when to continue although nothing has changed.
func (s *scheduler) nextWake() time.Time {
	next := s.nextTick()
	if at, ok := s.admission.NextChange(); ok && at.Before(next) {
		return at
	}
	return next
}

// waitForChange returns when the database has changed, at t, or after a call.
func (s *scheduler) waitForChange(ctx context.Context, t time.Time) error {
	ctx, end := context.WithCancel(ctx)
	changed, slept := make(chan error, 1), make(chan error, 1)
	go func() { changed <- s.Database.Feed.WaitForChange(ctx, s.rev) }()
	go func() { slept <- s.Sleep(ctx, t.Sub(s.databaseNow())) }()
	var err error
	select {
	case err = <-changed:
		if err == nil {
			err = s.throttle.wait(ctx)
		}
		end()
		<-slept
		return err
	case err = <-slept:
	case f := <-s.calls:
		f()
	}
	end()
	<-changed
	return err
}
