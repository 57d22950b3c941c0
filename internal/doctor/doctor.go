// Package doctor examines what stands between a VM and its new home, and says of each thing that
// is wrong what was seen, what is wanted, and what to type.
//
// # Checks
//
// A Check is data: a stable Code, a Title, the codes it Needs, and a Run that looks. A check whose
// needs failed would only repeat in other words what they said: it is silent. Where several things
// are looked at, such as folders, what fails of one silences nothing of the others (Merge). A check lives beside
// what it checks, in a package below this one, each with a function Checks that returns its own.
//
// # Findings
//
// Run returns one Finding for each thing it looked at: one for a host, several for VMs. What could
// not be looked at is Unknown and says why; that is never taken for OK. Every finding that is not
// OK has a remedy that a tired operator can paste.
//
// Nothing is changed by a check, but for what is said at it: a probe that writes cleans up.
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
	Unknown        // it could not be looked at; Seen says why
	Advice         // it works, and would be faster or safer otherwise
	Warning        // it works until something else happens
	Failure        // what was asked for will fail
)

var statusNames = [...]string{"ok", "unknown", "advice", "warning", "failure"}

// String returns the fixed name, as used in --json output.
func (s Status) String() string { return statusNames[s] }

// MarshalText is the fixed name.
func (s Status) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Finding is what was found of one thing.
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
	Title string   // what is right if all is well: "exports are written asynchronously"
	Needs []string // codes without whose being right there is nothing to look at

	// Slow says that it takes seconds, or writes: it is left out of the short form.
	Slow bool

	// Run looks. It returns nothing where there is nothing of its kind. It ends with ctx.
	Run func(ctx context.Context) []Finding

	thing int // of those that were merged, counted from 1; its needs are of the same
}

// id tells a check from others of its code, which look at other things.
type id struct {
	code  string
	thing int
}

func (c Check) id() id { return id{c.Code, c.thing} }

// needs are the ids of what it needs.
func (c Check) needs() (all []id) {
	for _, code := range c.Needs {
		all = append(all, id{code, c.thing})
	}
	return all
}

// Options of an examination.
type Options struct {
	Short    bool          // leave out what is slow
	Parallel int           // checks at a time; default 8
	Tell     func(Finding) // is told each as it is found; nil: nobody
}

const parallel = 8

// Examine runs checks, those that are needed before those that need them, and returns what they
// found: the worst first, and else in the order of the checks. Needs that are not among the checks
// are met. It panics if a code is there twice or checks need each other in a circle.
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
	failed map[id]bool // what failed, could not be looked at, or whose needs did
	found  [][]Finding // by check
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

// Merge returns groups that look at one thing each, such as a folder, as one that looks at all of
// them: checks of one code stand side by side. Each needs only those of its own thing: what fails
// of one says nothing of the others.
func Merge(groups ...[]Check) []Check {
	var all []Check
	rank := map[string]int{} // of codes, as they first appear
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
