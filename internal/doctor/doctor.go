// Package doctor examines the conditions of a migration, and reports for each problem the value found, the
// required value, and the command that corrects it.
//
// # Checks
//
// A Check is data: a stable Code, a Title, the codes it Needs, and a Run. A check whose needs failed would
// only repeat their findings, so it does not run. Several objects, such as folders, are independent of each
// other (Merge). Checks are in packages below this one, each with a function Checks that returns its own.
//
// # Findings
//
// Run returns one Finding for each object: one for a host, a VM or a folder. An object that could not be
// examined is Unknown with the reason, and never OK. Each finding that is not OK has a remedy to paste.
//
// Checks change nothing, except as they document it: a probe that writes removes its files.
package doctor

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
)

// Status is how a thing is.
type Status uint8

// The worse, the higher.
const (
	OK      Status = iota
	Unknown        // the check could not be performed; Seen has the reason
	Advice         // a faster or safer configuration is possible
	Warning        // works until another event
	Failure        // the planned migration will fail
)

var statusNames = [...]string{"ok", "unknown", "advice", "warning", "failure"}

// String returns the fixed name, as used in --json output.
func (s Status) String() string { return statusNames[s] }

// MarshalText is the fixed name.
func (s Status) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Finding is the result for one object.
type Finding struct {
	Code   string `json:"code"`         // the check's; filled in by Examine
	Title  string `json:"title"`        // the check's; filled in by Examine
	On     string `json:"on,omitempty"` // the thing: "host esx1", "VM web01", "/srv/vm"; empty where there is but one
	Status Status `json:"status"`
	Seen   string `json:"seen,omitempty"`
	Want   string `json:"want,omitempty"`
	Remedy string `json:"remedy,omitempty"` // commands, or a sentence; lines may be several
}

// Check looks at one kind of thing.
type Check struct {
	Code  string   // "nfs-sync": lower case, words joined by hyphens, the first that of its group; stable
	Title string   // property that holds without findings: "exports are written asynchronously"
	Needs []string // codes without whose being right there is nothing to look at

	// Slow marks a check that takes seconds, or writes: the short form leaves it out.
	Slow bool

	// Run looks. It returns nothing where there is nothing of its kind. It ends with ctx.
	Run func(ctx context.Context) []Finding

	thing int // object of a merged check, counted from 1; its needs concern the same object
}

// id distinguishes checks of one code that examine different objects.
type id struct {
	code  string
	thing int
}

func (c Check) id() id { return id{c.Code, c.thing} }

// needs returns the ids of its needs.
func (c Check) needs() (all []id) {
	for _, code := range c.Needs {
		all = append(all, id{code, c.thing})
	}
	return all
}

// Options of an examination.
type Options struct {
	Short    bool          // leave out slow checks
	Parallel int           // checks at a time; default 8
	Tell     func(Finding) // receives each finding at once; may be nil
}

const parallel = 8

// Examine runs checks in the order of their needs, and returns the findings: the most severe first,
// otherwise in the order of the checks. Needs that are not among the checks count as met. It panics if
// a code is there twice or checks need each other in a cycle.
func Examine(ctx context.Context, checks []Check, o Options) []Finding {
	e := &examination{opts: o, failed: map[id]bool{}, over: map[id]chan struct{}{}, found: make([][]Finding, len(checks))}
	ordered(checks)
	for _, c := range checks {
		e.over[c.id()] = make(chan struct{})
	}
	var g errgroup.Group
	slots := make(chan struct{}, cmp.Or(o.Parallel, parallel))
	for i, c := range checks {
		g.Go(func() error {
			defer close(e.over[c.id()])
			if !e.wanted(c) {
				return nil
			}
			slots <- struct{}{}
			defer func() { <-slots }()
			e.run(ctx, i, c)
			return nil
		})
	}
	_ = g.Wait() // none returns an error
	all := slices.Concat(e.found...)
	slices.SortStableFunc(all, func(a, b Finding) int { return cmp.Compare(b.Status, a.Status) })
	return all
}

// Worst returns the worst status of findings.
func Worst(findings []Finding) (worst Status) {
	for _, f := range findings {
		worst = max(worst, f.Status)
	}
	return worst
}

type examination struct {
	opts Options
	over map[id]chan struct{} // closed when a check is

	mu     sync.Mutex
	failed map[id]bool // checks with failures or unknown results, and those that need them
	found  [][]Finding // findings by check
}

// wanted waits for what c needs, and reports whether there is something to look at.
func (e *examination) wanted(c Check) bool {
	for _, need := range c.needs() {
		if over := e.over[need]; over != nil {
			<-over
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if slices.ContainsFunc(c.needs(), func(need id) bool { return e.failed[need] }) {
		e.failed[c.id()] = true
		return false
	}
	return !c.Slow || !e.opts.Short
}

func (e *examination) run(ctx context.Context, i int, c Check) {
	found := c.Run(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	for j := range found {
		f := &found[j]
		f.Code, f.Title = c.Code, c.Title
		if f.Status == Failure || f.Status == Unknown {
			e.failed[c.id()] = true
		}
		if e.opts.Tell != nil {
			e.opts.Tell(*f)
		}
	}
	e.found[i] = found
}

// ordered panics unless codes are there once of each thing and need each other in no circle.
func ordered(checks []Check) {
	needs, state := map[id][]id{}, map[id]int{}
	for _, c := range checks {
		if _, twice := needs[c.id()]; twice {
			panic("doctor: check " + c.Code + " is there twice")
		}
		needs[c.id()] = c.needs()
	}
	var visit func(at id, way []string)
	visit = func(at id, way []string) {
		const under, done = 1, 2
		switch state[at] {
		case done:
			return
		case under:
			panic("doctor: checks need each other: " + strings.Join(append(way, at.code), " "))
		}
		state[at] = under
		for _, need := range needs[at] {
			visit(need, append(way, at.code))
		}
		state[at] = done
	}
	for _, c := range checks {
		visit(c.id(), nil)
	}
}

// Merge combines groups that examine one object each, such as a folder, to one group: checks of one
// code are adjacent. Each needs only those of its object: a failure of one object does not affect the
// others.
func Merge(groups ...[]Check) []Check {
	var all []Check
	rank := map[string]int{} // positions of codes in order of their first use
	for i, g := range groups {
		for _, c := range g {
			if _, had := rank[c.Code]; !had {
				rank[c.Code] = len(rank)
			}
			c.thing = i + 1
			all = append(all, c)
		}
	}
	slices.SortStableFunc(all, func(a, b Check) int { return cmp.Compare(rank[a.Code], rank[b.Code]) })
	return all
}
