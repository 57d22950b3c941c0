package sched

import (
	"cmp"
	"slices"
	"time"
)

// Reason is why a run waits.
type Reason uint8

const (
	Undecided Reason = iota // asked for, or given back, since the last Decide
	Full                    // too little of the required resource is free
	Aside                   // the free part is reserved for a run that waited too long
	Closed                  // it requires a resource of capacity 0
	Paused                  // the run or its plan is paused
	Shut                    // outside its windows
)

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

// Waiting is why one run has not begun, as data; Sentence makes a line of it
// for people.
type Waiting struct {
	Run      string    `json:"run"`
	Plan     string    `json:"plan"`
	Stage    Stage     `json:"stage"`
	Priority int       `json:"priority,omitempty"`
	Asked    time.Time `json:"asked"`
	Why      Reason    `json:"why"`

	// Blocks are the resources that it lacks now, the one that is free last first.
	Blocks []Block `json:"blocks,omitempty"`

	Paused string    `json:"paused,omitempty"` // paused object: "run r1", "plan p1"
	Opens  time.Time `json:"opens,omitzero"`   // when its next window opens; zero when none does
}

// A Block is one resource that a run lacks.
type Block struct {
	Resource string `json:"resource"`
	Needs    int64  `json:"needs"`
	Used     int64  `json:"used"`
	Capacity int64  `json:"capacity"`
	Closed   bool   `json:"closed,omitempty"`
	Waiting  int    `json:"waiting"`         // runs that are in line and need it, this one among them
	Aside    string `json:"aside,omitempty"` // the run that the rest is set aside for

	// Next is when the first holder is expected to end, Free when enough of them are for
	// this run, were it alone in line. Zero is unknown: a holder without an expected end
	// is in the way. Both may have passed: expectations are not promises.
	Next time.Time `json:"next,omitzero"`
	Free time.Time `json:"free,omitzero"`

	// Holders have it now, the first to end first. Blocks of one report share them.
	Holders []Holder `json:"holders,omitempty"`
}

// A Holder is a run that has some of a resource.
type Holder struct {
	Run    string    `json:"run"`
	Plan   string    `json:"plan"`
	Weight int64     `json:"weight"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until,omitzero"` // expected; zero is unknown
}

// A report holds the holders of resources that were looked up for it.
type report map[*resource][]Holder

// explainWait returns why x waits. Paused are the runs that are paused by themselves.
func explainWait(x *run, now time.Time, paused map[string]bool, seen report) Waiting {
	w := Waiting{Run: x.req.Run, Plan: x.plan.name, Stage: x.req.Stage, Priority: x.req.Priority, Asked: x.asked}
	switch x.state {
	case stopped:
		w.Why, w.Paused = Paused, "plan "+x.plan.name
		if paused[x.req.Run] {
			w.Paused = "run " + x.req.Run
		}
	case shut:
		w.Why, w.Opens = Shut, x.nextOpening(now)
	default:
		w.Blocks = x.missingBlocks(seen)
		w.Why = reasonOf(w.Blocks)
	}
	return w
}

// nextOpening returns when the next window opens, zero for never.
func (x *run) nextOpening(now time.Time) time.Time {
	var next time.Time
	for _, w := range x.req.Windows {
		if w.From.After(now) && (next.IsZero() || w.From.Before(next)) {
			next = w.From
		}
	}
	return next
}

func (x *run) missingBlocks(seen report) []Block {
	var blocks []Block
	for _, n := range x.needs {
		if !n.res.hasRoomFor(x, n.weight) {
			blocks = append(blocks, n.res.newBlock(x, n.weight, seen.holdersOf(n.res)))
		}
	}
	slices.SortStableFunc(blocks, func(a, b Block) int { return -compareEnds(a.Free, b.Free) })
	return blocks
}

func (r *resource) newBlock(x *run, weight int64, holders []Holder) Block {
	b := Block{
		Resource: r.name, Needs: weight, Used: r.used, Capacity: r.capacity, Closed: r.isClosed(),
		Waiting: r.waiting, Holders: holders, Free: r.freeFor(weight, holders),
	}
	if y := r.reservedFor; y != nil && y != x {
		b.Aside = y.req.Run
	}
	if len(holders) > 0 {
		b.Next = holders[0].Until
	}
	return b
}

// reasonOf names the reason of a run that is in line. One that lacks nothing has yet to be
// decided on.
func reasonOf(blocks []Block) Reason {
	reason := Undecided
	for _, b := range blocks {
		switch {
		case b.Closed:
			return Closed
		case b.Aside != "" && (b.Needs <= b.Capacity-b.Used || b.Used == 0):
			reason = max(reason, Aside)
		default:
			reason = max(reason, Full)
		}
	}
	return reason
}

// freeFor returns when weight fits, from the expected ends of the holders. Zero is unknown.
func (r *resource) freeFor(weight int64, holders []Holder) time.Time {
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

// holdersOf returns who has r, the first to end first, unknown ends last.
func (seen report) holdersOf(r *resource) []Holder {
	if known, ok := seen[r]; ok {
		return known
	}
	holders := make([]Holder, 0, len(r.holders))
	for x := range r.holders {
		holders = append(holders, Holder{x.req.Run, x.plan.name, x.weightOf(r), x.since, x.until})
	}
	slices.SortFunc(holders, func(a, b Holder) int {
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
