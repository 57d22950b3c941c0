package sched

import (
	"cmp"
	"slices"
	"time"
)

// Reason is why a run waits.
type Reason uint8

const (
	Undecided      Reason = iota // submitted or released since the last Decide
	Full                         // too few units of a required resource are free
	Reserved                     // the free units are reserved for a run that waited too long
	Closed                       // it requires a resource of capacity 0
	Paused                       // the run or its plan is paused
	OutsideWindows               // outside its windows
)

// reasonNames are the fixed names of the reasons, by Reason.
var reasonNames = [...]string{"undecided", "full", "aside", "closed", "paused", "shut"}

// String returns the reason's fixed name.
func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return "unknown"
}

// MarshalText writes the fixed name, for JSON.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Waiting is why one run has not begun, as data. Text returns it as one line for users.
type Waiting struct {
	Run       string       `json:"run"`                // run that waits
	Plan      string       `json:"plan"`               // plan of the run
	Kind      TransferKind `json:"stage"`              // kind of the requested transfer
	Priority  int          `json:"priority,omitempty"` // Request.Priority; higher values go first
	Requested time.Time    `json:"requested"`          // time of the first request; later requests of the run keep it
	Reason    Reason       `json:"reason"`             // reason of the wait; the fields below depend on it

	// Blocks are the resources that the run lacks now. The resource that becomes free last is first, and
	// unknown times precede known ones. It is empty unless Reason is Full, Reserved or Closed.
	Blocks []Block `json:"blocks,omitempty"`

	Paused string    `json:"paused,omitempty"` // paused object: "run r1", "plan p1"
	Opens  time.Time `json:"opens,omitzero"`   // start of the next window; zero if no window follows
}

// A Block is one resource that a run lacks.
type Block struct {
	Resource    string `json:"resource"`              // name of the resource, such as "host:esx3/vms"
	Needs       int64  `json:"needs"`                 // units that the run requires
	Used        int64  `json:"used"`                  // units in use; more than Capacity after a limit was lowered
	Capacity    int64  `json:"capacity"`              // all units of the resource; Unlimited if it only counts
	Closed      bool   `json:"closed,omitempty"`      // the capacity is 0: no run may begin
	Waiting     int    `json:"waiting"`               // runs in wait queues that need the resource, this run included
	ReservedFor string `json:"reservedFor,omitempty"` // run that the remaining units are reserved for; "" if none

	// Next is when the first holder is expected to end. Free is when Needs units are expected to be free for
	// this run, if no other run waits. Zero is unknown: a holder without an expected end
	// is in the way. Both may have passed: expectations are not promises.
	Next time.Time `json:"next,omitzero"`
	Free time.Time `json:"free,omitzero"`

	// Allocations are the runs that have units now, the first to end first. Blocks of one report share them.
	Allocations []Allocation `json:"holders,omitempty"`
}

// An Allocation is the units of a resource that one run holds.
type Allocation struct {
	Run    string    `json:"run"`            // run that holds the units
	Plan   string    `json:"plan"`           // plan of the run
	Weight int64     `json:"weight"`         // units that the run holds
	Since  time.Time `json:"since"`          // time of the grant
	Until  time.Time `json:"until,omitzero"` // expected end of the transfer; zero if unknown
}

// A report caches the sorted holders of each resource, so that a report on many runs sorts them once.
type report map[*resource][]Allocation

// explainWait returns why x waits at now. paused contains the runs that were paused by themselves, and
// not by their plan. It adds the holders that it sorted to seen.
func explainWait(x *run, now time.Time, paused map[string]bool, seen report) Waiting {
	w := Waiting{Run: x.req.Run, Plan: x.plan.name, Kind: x.req.Kind, Priority: x.req.Priority, Requested: x.asked}
	switch x.state {
	case stopped:
		w.Reason, w.Paused = Paused, "plan "+x.plan.name
		if paused[x.req.Run] {
			w.Paused = "run " + x.req.Run
		}
	case shut:
		w.Reason, w.Opens = OutsideWindows, x.nextOpening(now)
	default:
		w.Blocks = x.missingBlocks(seen)
		w.Reason = reasonOf(w.Blocks)
	}
	return w
}

// nextOpening returns the start of the next window after now; zero if none follows.
func (x *run) nextOpening(now time.Time) time.Time {
	var next time.Time
	for _, w := range x.req.Windows {
		if w.From.After(now) && (next.IsZero() || w.From.Before(next)) {
			next = w.From
		}
	}
	return next
}

// missingBlocks returns a Block for each resource that has no room for x, the one that becomes free
// last first.
func (x *run) missingBlocks(seen report) []Block {
	var blocks []Block
	for _, n := range x.needs {
		if !n.res.hasRoomFor(x, n.weight) {
			blocks = append(blocks, n.res.newBlock(x, n.weight, seen.allocationsOf(n.res)))
		}
	}
	slices.SortStableFunc(blocks, func(a, b Block) int { return -compareEnds(a.Free, b.Free) })
	return blocks
}

// newBlock describes why r has no room for weight units of x. holders are those of r in the order of
// their ends; the Block shares the slice.
func (r *resource) newBlock(x *run, weight int64, holders []Allocation) Block {
	b := Block{
		Resource: r.name, Needs: weight, Used: r.used, Capacity: r.capacity, Closed: r.isClosed(),
		Waiting: r.waiting, Allocations: holders, Free: r.freeFor(weight, holders),
	}
	if y := r.reservedFor; y != nil && y != x {
		b.ReservedFor = y.req.Run
	}
	if len(holders) > 0 {
		b.Next = holders[0].Until
	}
	return b
}

// reasonOf returns the reason of a run that waits for blocks. A run without blocks is Undecided: the
// next decision grants it.
func reasonOf(blocks []Block) Reason {
	reason := Undecided
	for _, b := range blocks {
		switch {
		case b.Closed:
			return Closed
		case b.ReservedFor != "" && (b.Needs <= b.Capacity-b.Used || b.Used == 0):
			reason = max(reason, Reserved)
		default:
			reason = max(reason, Full)
		}
	}
	return reason
}

// freeFor returns when weight units fit, from the expected ends of the holders. It returns zero if a
// holder without an expected end is reached first.
func (r *resource) freeFor(weight int64, holders []Allocation) time.Time {
	used := r.used
	for _, h := range holders {
		if h.Until.IsZero() {
			break
		}
		if used -= h.Weight; used == 0 || weight <= r.capacity-used {
			return h.Until
		}
	}
	return time.Time{}
}

// allocationsOf returns the holders of r: the first to end is first, and unknown ends are last. The slice
// is shared and must not be changed.
func (seen report) allocationsOf(r *resource) []Allocation {
	if known, ok := seen[r]; ok {
		return known
	}
	holders := make([]Allocation, 0, len(r.holders))
	for x := range r.holders {
		holders = append(holders, Allocation{x.req.Run, x.plan.name, x.weightOf(r), x.since, x.until})
	}
	slices.SortFunc(holders, func(a, b Allocation) int {
		return cmp.Or(compareEnds(a.Until, b.Until), cmp.Compare(a.Run, b.Run))
	})
	seen[r] = holders
	return holders
}

// compareEnds orders expected ends; the zero time, unknown, is the latest.
func compareEnds(a, b time.Time) int {
	switch {
	case a.IsZero() && b.IsZero():
		return 0
	case a.IsZero():
		return 1
	case b.IsZero():
		return -1
	}
	return a.Compare(b)
}
