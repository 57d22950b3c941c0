package sched

import (
	"errors"
	"slices"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// A RestoredGrant is a grant from before a crash, as the caller's journal records it.
type RestoredGrant struct {
	Run   string       `json:"run"`            // run that holds the resources
	Plan  string       `json:"plan"`           // plan of the run
	Kind  TransferKind `json:"stage"`          // kind of the transfer
	Needs []Need       `json:"needs"`          // resources that the run holds
	Since time.Time    `json:"since"`          // time of the grant
	Until time.Time    `json:"until,omitzero"` // expected end of the transfer; zero if unknown
}

// Restore counts resources that were held before a crash. It is a fact and not a request: capacities,
// pauses and unknown resources do not matter. It is idempotent, and must precede Submit: a waiting run
// is a conflict.
func (s *Scheduler) Restore(holdings ...RestoredGrant) error {
	var errs []error
	for _, h := range holdings {
		errs = append(errs, s.restoreGrant(h))
	}
	return errors.Join(errs...)
}

// restoreGrant counts one grant. It returns fault.Conflict if the run waits, or holds other
// resources.
func (s *Scheduler) restoreGrant(h RestoredGrant) error {
	q := Request{Run: h.Run, Plan: h.Plan, Kind: h.Kind, Needs: h.Needs}
	if err := q.check(); err != nil {
		return err
	}
	if x := s.registry.runs[h.Run]; x != nil {
		if x.state != holding || x.plan.name != h.Plan || !slices.Equal(sortNeeds(h.Needs), x.heldNeeds()) {
			return fault.New(fault.Conflict, "run %s is there already, and holds something else", h.Run)
		}
		return nil
	}
	x := s.registry.addRun(q, 0)
	s.queue.holdResources(x)
	x.state, x.since, x.until = holding, h.Since, h.Until
	return nil
}
