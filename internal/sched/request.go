package sched

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// MaxWeight bounds the weight of one need: a TiB, where units are bytes. Sums of millions
// of weights stay within an int64.
const MaxWeight = 1 << 40

// maxPriority bounds Request.Priority on both sides. run.rank adds twice this number to the priority of
// cutovers.
const maxPriority = 1_000_000

// A Need is a weighted share of one resource.
type Need struct {
	Resource string `json:"resource"` // name of the resource, such as "host:esx3/vms"
	Weight   int64  `json:"weight"`   // units of the resource, 1 to MaxWeight
}

// TransferKind is the kind of a transfer. It determines the order between first copies and later rounds of a
// plan.
type TransferKind uint8

const (
	First   TransferKind = iota // nothing of the VM was copied yet
	Again                       // a warm round, or a copy that continues
	Cutover                     // the VM is off

	transferKinds // number of kinds
)

// kindNames are the fixed names of the kinds, by TransferKind.
var kindNames = [transferKinds]string{"first", "again", "cutover"}

// String returns the kind's fixed name.
func (s TransferKind) String() string {
	if s < transferKinds {
		return kindNames[s]
	}
	return "unknown"
}

// MarshalText writes the fixed name, for JSON.
func (s TransferKind) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// A Window is a span of time in which a run may begin: From until before To. A zero end is open. It
// does not limit the end of the run.
type Window struct {
	From, To time.Time // beginning (inclusive) and end (exclusive); zero is open
}

// hasBegun reports whether now is not before the beginning of the window.
func (w Window) hasBegun(now time.Time) bool { return w.From.IsZero() || !now.Before(w.From) }

// isOver reports whether now is at or after the end of the window.
func (w Window) isOver(now time.Time) bool { return !w.To.IsZero() && !now.Before(w.To) }

// A Request lists everything that one transfer requires, all or nothing.
type Request struct {
	Run  string // run of the request; one request for each run at a time
	Plan string // plan whose share the request counts to

	// Priority goes before everything but Cutover: while a request of a higher priority
	// fits, none of a lower one is granted.
	Priority int

	Kind TransferKind // kind of the transfer; it orders runs of one plan

	// Needs name each resource once. A weight above a resource's capacity is granted when
	// no other run has any of it.
	Needs []Need

	// Expected is how long the transfer is likely to hold its needs; 0 is unknown. It orders runs and
	// determines estimates. A run that takes longer keeps its resources.
	Expected time.Duration

	// Windows are the times at which the run may begin; none means at any time.
	Windows []Window
}

// check returns an error if q itself is invalid.
func (q Request) check() error {
	switch {
	case q.Run == "" || q.Plan == "":
		return fault.New(fault.Invalid, "a request needs a run and a plan, has %q and %q", q.Run, q.Plan)
	case q.Priority < -maxPriority || q.Priority > maxPriority:
		return fault.New(fault.Invalid, "run %s: priority %d", q.Run, q.Priority).WithHint("use %d to %d", -maxPriority, maxPriority)
	case q.Kind >= transferKinds:
		return fault.New(fault.Invalid, "run %s: stage %d", q.Run, q.Kind)
	case q.Expected < 0:
		return fault.New(fault.Invalid, "run %s: expected to take %v", q.Run, q.Expected)
	}
	return errors.Join(checkNeeds(q.Run, q.Needs), checkWindows(q.Run, q.Windows))
}

// checkNeeds returns fault.Invalid for a weight outside of 1 to MaxWeight and for a resource that is
// named twice.
func checkNeeds(run string, needs []Need) error {
	for i, n := range needs {
		if n.Resource == "" || n.Weight < 1 || n.Weight > MaxWeight {
			return fault.New(fault.Invalid, "run %s: %d of resource %q", run, n.Weight, n.Resource)
		}
		if slices.ContainsFunc(needs[:i], func(o Need) bool { return o.Resource == n.Resource }) {
			return fault.New(fault.Invalid, "run %s names resource %s twice", run, n.Resource)
		}
	}
	return nil
}

// checkWindows returns fault.Invalid for a window that ends at or before its beginning.
func checkWindows(run string, windows []Window) error {
	for _, w := range windows {
		if !w.From.IsZero() && w.isOver(w.From) {
			return fault.New(fault.Invalid, "run %s: a window from %v to %v", run, w.From, w.To)
		}
	}
	return nil
}

// sortNeeds returns a copy of needs, sorted by the names of the resources.
func sortNeeds(needs []Need) []Need {
	needs = slices.Clone(needs)
	slices.SortFunc(needs, func(a, b Need) int { return strings.Compare(a.Resource, b.Resource) })
	return needs
}
