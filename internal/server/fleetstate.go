package server

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/fleet"
	"github.com/decamp/decamp/internal/fleetdb"
)

// Ages at which progress and scheduler state are read again. Earlier requests get the last result.
const (
	progressAge  = 400 * time.Millisecond // maximum age of cached progress
	schedulerAge = time.Second            // maximum age of the cached scheduler state
)

// fleetCache reads progress and scheduler state once for all clients that request them at the same time. It is
// safe for concurrent use.
type fleetCache struct {
	control Control          // source of progress and scheduler state
	now     func() time.Time // clock of the cache

	mu       sync.Mutex          // guards the fields below; held during a read, so that other callers wait for its result
	progress []fleetdb.Progress  // last progress
	at       time.Time           // when progress was read
	byVM     map[fleetdb.Key]int // indexes into progress by VM; nil before the first read

	schedulerAt time.Time              // when the scheduler state was read
	raw         json.RawMessage        // last scheduler state as JSON
	scheduler   SchedulerState         // last scheduler state
	why         map[fleetdb.Key]string // reasons of waits in the scheduler state, by VM
}

// newFleetCache returns an empty cache.
func newFleetCache(c Control) *fleetCache { return &fleetCache{control: c, now: time.Now} }

// fleetState is the state of VMs besides their rows at one point in time. It is immutable.
type fleetState struct {
	progress  []fleetdb.Progress     // last reports of the workers
	byVM      map[fleetdb.Key]int    // indexes into progress by VM
	scheduler SchedulerState         // last state of the scheduler
	why       map[fleetdb.Key]string // reasons of waits, by VM
}

// readState returns the current state, at most schedulerAge old.
func (c *fleetCache) readState(ctx context.Context) (*fleetState, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.readProgress(ctx); err != nil {
		return nil, err
	}
	if err := c.readSchedulerState(ctx); err != nil {
		return nil, err
	}
	return &fleetState{c.progress, c.byVM, c.scheduler, c.why}, nil
}

// readProgress reads the progress if the cached one is too old. mu must be held.
func (c *fleetCache) readProgress(ctx context.Context) error {
	if c.byVM != nil && c.now().Sub(c.at) < progressAge {
		return nil
	}
	progress, err := c.control.Progress(ctx, "")
	if err != nil {
		return err
	}
	byVM := make(map[fleetdb.Key]int, len(progress))
	for i, p := range progress {
		byVM[p.Key] = i
	}
	c.progress, c.byVM, c.at = progress, byVM, c.now()
	return nil
}

// readSchedulerState reads the scheduler state if the cached one is too old. mu must be held.
func (c *fleetCache) readSchedulerState(ctx context.Context) error {
	if !c.schedulerAt.IsZero() && c.now().Sub(c.schedulerAt) < schedulerAge {
		return nil
	}
	raw, at, err := c.control.SchedulerState(ctx)
	if err != nil {
		return err
	}
	c.schedulerAt = c.now()
	if at.Equal(c.scheduler.At) && c.why != nil {
		return nil
	}
	return c.decodeSchedulerState(raw, at)
}

// decodeSchedulerState decodes a scheduler state that was written at that time. mu must be held.
func (c *fleetCache) decodeSchedulerState(raw json.RawMessage, at time.Time) error {
	scheduler := SchedulerState{}
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &scheduler); err != nil {
			return err
		}
	}
	scheduler.At, scheduler.common = at, commonReason(scheduler.Waiting)
	why := make(map[fleetdb.Key]string, len(scheduler.Waiting))
	for _, w := range scheduler.Waiting {
		why[w.Key] = w.Reason
	}
	c.raw, c.scheduler, c.why = raw, scheduler, why
	return nil
}

// itemOf returns a VM with its state. A VM with slots or an end has no reason of a wait: the scheduler state may
// be older than its row.
func (b *fleetState) itemOf(vm fleetdb.VM) vmItem {
	it := vmItem{VM: vm, Reason: b.why[vm.Key]}
	if i, ok := b.byVM[vm.Key]; ok && !vm.State.IsFinal() {
		it.Progress = &b.progress[i]
	}
	if vm.Granted || vm.State.IsFinal() {
		it.Reason = "" // the scheduler state is of a moment ago
	}
	return it
}

// commonReason returns the most frequent reason of waits that no resource's queue shows, such as a
// missing worker or a window.
func commonReason(waiting []Waiting) string {
	counts := map[string]int{}
	most := ""
	for _, w := range waiting {
		counts[w.Reason]++
		if n := counts[w.Reason]; n > counts[most] || n == counts[most] && w.Reason < most {
			most = w.Reason
		}
	}
	if most == "" {
		return ""
	}
	return fmt.Sprintf("%d VMs wait: %s", counts[most], most)
}

// SchedulerState is the scheduler's state. The scheduler writes it while clients read it.
type SchedulerState struct {
	At        time.Time  `json:"at,omitzero"`        // zero if no scheduler runs, or no client has read it yet
	Resources []Resource `json:"resources"`          // resources that VMs need to begin
	Waiting   []Waiting  `json:"waiting"`            // waiting VMs
	Breakers  []Breaker  `json:"breakers,omitempty"` // sources and hosts where no VM begins

	common string // most frequent reason of waits, with its number; empty if no VM waits
}

// Breaker is a source or a host where no VM begins for a while, or until an operator resumes a plan.
type Breaker struct {
	Object string `json:"object"` // source or host: "source vc1:443"
	Reason string `json:"reason"` // why no VM begins there
}

// Resource is a resource that VMs need units of to begin.
type Resource struct {
	Name     string `json:"name"`     // name, such as "host:esx1/vms"
	Capacity int64  `json:"capacity"` // all units; 0 is closed
	Used     int64  `json:"used"`     // units in use
	Waiting  int    `json:"waiting"`  // VMs that wait for it
}

// Waiting is why a VM waits, for users.
type Waiting struct {
	fleetdb.Key
	Reason   string `json:"reason"`             // reason of the wait
	Position int    `json:"position,omitempty"` // position in its plan, from 1; 0 if no worker can take it
}

// vmItem is a VM with its state besides its row.
type vmItem struct {
	fleetdb.VM
	// last report of its worker; nil if none exists or the VM has ended
	Progress *fleetdb.Progress `json:"progress,omitempty"`
	Reason   string            `json:"reason,omitempty" doc:"reason of its wait for a transfer slot"`
}

// silenceText returns fleet.SilenceText of the VM, for templates.
func silenceText(it vmItem) string { return fleet.SilenceText(it.VM, it.Progress) }

// withCounts returns p with empty Counts instead of nil, which JSON shows as null.
func withCounts(p fleetdb.Plan) fleetdb.Plan {
	if p.Counts == nil {
		p.Counts = fleetdb.Counts{}
	}
	return p
}
