package sched

import (
	"errors"
	"slices"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// DefaultPatience is how long a request that is first in line is passed by smaller ones
// before what it lacks is set aside for it. Transfers take minutes to hours: below that,
// resources would often drain for nothing; far above, a night would be over.
const DefaultPatience = 5 * time.Minute

// A Scheduler decides who may use what. It is not safe for concurrent use: one goroutine
// owns it. The zero value is not ready; use New.
type Scheduler struct {
	patience  time.Duration
	now       time.Time // of the last decision
	seq       uint64
	resources map[string]*resource
	plans     map[string]*plan
	runs      map[string]*run
	paused    map[string]bool // runs
	fresh     []*run
	turns     turns
	dirty     dirty
	version   uint64 // counts grants: claims worked out before are stale
}

// Options say how to decide. The zero value of each field means its default.
type Options struct {
	Patience time.Duration // default DefaultPatience
}

// New returns a scheduler without resources.
func New(o Options) *Scheduler {
	if o.Patience == 0 {
		o.Patience = DefaultPatience
	}
	return &Scheduler{
		patience:  o.Patience,
		resources: map[string]*resource{},
		plans:     map[string]*plan{},
		runs:      map[string]*run{},
		paused:    map[string]bool{},
		version:   1,
	}
}

// SetCapacity sets how many units there are of a resource: 0 closes it, Unlimited counts
// only. Below what is in use, nothing is taken away; nothing more is given out until
// there is room again.
func (s *Scheduler) SetCapacity(name string, units int64) error {
	if name == "" || units < 0 {
		return fault.New(fault.Invalid, "resource %q with %d units", name, units)
	}
	r := s.resource(name)
	r.capacity = units
	if units == 0 {
		s.letGoAt(r)
	}
	s.touch(r)
	return nil
}

// SetPlan sets the weight of a plan. A plan of weight 2 is entitled to twice the share of a plan of
// weight 1, which is the default.
func (s *Scheduler) SetPlan(name string, weight int) error {
	if name == "" || weight < 1 {
		return fault.New(fault.Invalid, "plan %q with weight %d", name, weight).WithHint("use a weight of 1, the default, or more")
	}
	p := s.plan(name)
	p.weight = float64(weight)
	s.tidy(p)
	return nil
}

// Submit asks for what the requests need, at once or as soon as Decide finds room. It is
// idempotent: a request of a run that waits takes the place of the one before, in line
// where that was; of a run that holds the same already, it changes nothing. A request
// that is wrong is left out and in the error; the others are taken.
func (s *Scheduler) Submit(now time.Time, requests ...Request) error {
	var errs []error
	for _, q := range requests {
		errs = append(errs, s.submit(now, q))
	}
	return errors.Join(errs...)
}

func (s *Scheduler) submit(now time.Time, q Request) error {
	if err := s.check(q); err != nil {
		return err
	}
	asked, seq := now, uint64(0)
	if x := s.runs[q.Run]; x != nil {
		if x.state == holding {
			return sameNeeds(x, q)
		}
		asked, seq = x.asked, x.seq
		s.Release(q.Run)
	}
	x := s.newRun(q, seq)
	x.asked = asked
	s.review(x, now)
	return nil
}

// check returns what is wrong with q here and now.
func (s *Scheduler) check(q Request) error {
	if err := q.check(); err != nil {
		return err
	}
	if len(q.Needs) == 0 {
		return fault.New(fault.Invalid, "run %s needs no resource", q.Run)
	}
	for _, n := range q.Needs {
		if s.resources[n.Resource] == nil {
			return fault.New(fault.Invalid, "run %s needs %s, which has no capacity", q.Run, n.Resource).WithHint("SetCapacity first, Unlimited for no limit")
		}
	}
	return nil
}

func sameNeeds(x *run, q Request) error {
	if q.Plan == x.req.Plan && slices.Equal(sorted(q.Needs), x.req.Needs) {
		return nil
	}
	return fault.New(fault.Conflict, "run %s holds %v and asks for %v", q.Run, x.req.Needs, q.Needs).WithHint("release what it holds first")
}

// newRun registers a run in state gone. Seq 0 is the next.
func (s *Scheduler) newRun(q Request, seq uint64) *run {
	if seq == 0 {
		s.seq++
		seq = s.seq
	}
	q.Needs, q.Windows = sorted(q.Needs), slices.Clone(q.Windows)
	x := &run{req: q, plan: s.plan(q.Plan), seq: seq, needs: make([]need, 0, len(q.Needs))}
	for _, n := range q.Needs {
		x.needs = append(x.needs, need{s.resource(n.Resource), n.Weight})
	}
	x.plan.runs++
	s.runs[q.Run] = x
	return x
}

// Release gives back all that the run holds, or takes it out of line where it waits. It
// reports whether there was anything: a second release is harmless.
func (s *Scheduler) Release(name string) bool {
	x := s.runs[name]
	if x == nil {
		return false
	}
	if x.state == holding {
		x.plan.holding--
		s.giveBack(x, x.needs)
	} else {
		s.leave(x, gone)
	}
	x.state = gone
	delete(s.runs, name)
	x.plan.runs--
	s.tidy(x.plan)
	return true
}

func (s *Scheduler) giveBack(x *run, needs []need) {
	for _, n := range needs {
		n.res.give(x, n.weight)
		s.touch(n.res)
	}
}

// Expect sets when a run that holds is now likely to end, for the estimates of the runs that
// wait for it. The zero time is unknown.
func (s *Scheduler) Expect(name string, until time.Time) {
	if x := s.runs[name]; x != nil && x.state == holding {
		x.until = until
	}
}

// Holds reports whether the run was granted what it asked for and has not released it.
func (s *Scheduler) Holds(name string) bool {
	x := s.runs[name]
	return x != nil && x.state == holding
}

// held returns what x needs, or still holds.
func (x *run) held() []Need {
	needs := make([]Need, len(x.needs))
	for i, n := range x.needs {
		needs[i] = Need{n.res.name, n.weight}
	}
	return needs
}
