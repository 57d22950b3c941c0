package sched

import (
	"errors"
	"slices"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// DefaultReserveAfter is how long smaller requests may pass the first one in a queue before its missing
// units are reserved. Transfers take minutes to hours: with less, resources would often drain without
// need; with much more, a night would be over.
const DefaultReserveAfter = 5 * time.Minute

// A Scheduler decides which run may use which resources. It is not safe for concurrent use: one goroutine owns it. The
// zero value is not ready; use New.
type Scheduler struct {
	registry *registry       // resources, plans and runs by name
	queue    *queue          // waiting runs
	paused   map[string]bool // names of runs that PauseRun paused, also before their first request
}

// Options configure a Scheduler. The zero value of each field means its default.
type Options struct {
	ReserveAfter time.Duration // how long a run may be passed before its missing units are reserved; default DefaultReserveAfter
}

// New returns a scheduler without resources.
func New(o Options) *Scheduler {
	if o.ReserveAfter == 0 {
		o.ReserveAfter = DefaultReserveAfter
	}
	q := &queue{patience: o.ReserveAfter, version: 1}
	return &Scheduler{registry: newRegistry(&q.now), queue: q, paused: map[string]bool{}}
}

// SetCapacity sets the number of units of a resource: 0 closes it, Unlimited only counts. Below the
// current use, nothing is taken away; nothing is granted until units are free again.
func (s *Scheduler) SetCapacity(name string, units int64) error {
	if name == "" || units < 0 {
		return fault.New(fault.Invalid, "resource %q with %d units", name, units)
	}
	r := s.registry.resourceNamed(name)
	r.capacity = units
	if units == 0 { // runs that wait for it keep others from nothing
		for _, other := range s.registry.resources {
			if x := other.reservedFor; x != nil && x.weightOf(r) > 0 {
				s.queue.dropReservations(x)
			}
		}
	}
	s.queue.markDirty(r)
	return nil
}

// SetPlan sets the weight of a plan. A plan of weight 2 is entitled to twice the share of a plan of
// weight 1, which is the default.
func (s *Scheduler) SetPlan(name string, weight int) error {
	if name == "" || weight < 1 {
		return fault.New(fault.Invalid, "plan %q with weight %d", name, weight).WithHint("use a weight of 1, the default, or more")
	}
	p := s.registry.planNamed(name)
	p.weight = float64(weight)
	s.registry.dropIdlePlan(p)
	return nil
}

// Submit requests resources, granted at once or as soon as Decide finds free ones. It is idempotent: a
// request of a waiting run replaces the previous one at the same position; a request equal to the run's
// grant changes nothing. Invalid requests are left out and are in the error; the others are accepted.
func (s *Scheduler) Submit(now time.Time, requests ...Request) error {
	var errs []error
	for _, q := range requests {
		errs = append(errs, s.submitRequest(now, q))
	}
	return errors.Join(errs...)
}

// submitRequest handles one request of Submit. A waiting run keeps its position and the time of its
// first request.
func (s *Scheduler) submitRequest(now time.Time, q Request) error {
	if err := s.registry.checkRequest(q); err != nil {
		return err
	}
	asked, seq := now, uint64(0)
	if x := s.registry.runs[q.Run]; x != nil {
		if x.state == holding {
			return sameNeeds(x, q)
		}
		asked, seq = x.asked, x.seq
		s.Release(q.Run)
	}
	x := s.registry.addRun(q, seq)
	x.asked = asked
	s.reviewState(x, now)
	return nil
}

// reviewState moves a waiting run into the queue, or out of it while it is paused or outside its
// windows.
func (s *Scheduler) reviewState(x *run, now time.Time) {
	s.queue.windows.noteChange(x, now)
	switch {
	case s.paused[x.req.Run] || x.plan.paused:
		s.queue.removeRun(x, stopped)
	case !x.mayBegin(now):
		s.queue.removeRun(x, shut)
	case x.state != fresh && x.state != parked:
		s.queue.addRun(x)
	}
}

// sameNeeds returns nil if q is the request that x holds already, and fault.Conflict otherwise.
func sameNeeds(x *run, q Request) error {
	if q.Plan == x.req.Plan && slices.Equal(sortNeeds(q.Needs), x.req.Needs) {
		return nil
	}
	return fault.New(fault.Conflict, "run %s holds %v and requests %v", q.Run, x.req.Needs, q.Needs).WithHint("release its resources first")
}

// Release ends the grant of a run, or removes the run from the queue. It reports whether the run was
// known: a second release is harmless.
func (s *Scheduler) Release(name string) bool {
	x := s.registry.runs[name]
	if x == nil {
		return false
	}
	if x.state == holding {
		s.queue.releaseResources(x)
	} else {
		s.queue.removeRun(x, gone)
	}
	s.registry.removeRun(x)
	return true
}

// Decide returns the possible grants in the order of the decisions. Call it after any change, or after
// several, and at the time of Wake: it checks changes only. Without a change it returns nothing.
func (s *Scheduler) Decide(now time.Time) []Grant {
	s.queue.now = now
	for x := s.queue.windows.pop(now); x != nil; x = s.queue.windows.pop(now) {
		s.reviewState(x, now)
	}
	return s.queue.decideGrants()
}

// NextChange returns when to call Decide although nothing changed, because a window opens or closes. It
// returns false if no such time is known.
func (s *Scheduler) NextChange() (time.Time, bool) { return s.queue.windows.nextChange() }

// SetExpectedEnd sets when a run that holds resources is now likely to end, for the estimates of the runs that
// wait for it. The zero time is unknown. Other runs are left unchanged.
func (s *Scheduler) SetExpectedEnd(name string, until time.Time) {
	if x := s.registry.runs[name]; x != nil && x.state == holding {
		x.until = until
	}
}

// HasGrant reports whether the run was granted its request and has not released it.
func (s *Scheduler) HasGrant(name string) bool {
	x := s.registry.runs[name]
	return x != nil && x.state == holding
}

// heldNeeds returns what x needs, sorted by name, in a new slice.
func (x *run) heldNeeds() []Need {
	needs := make([]Need, len(x.needs))
	for i, n := range x.needs {
		needs[i] = Need{n.res.name, n.weight}
	}
	return needs
}
