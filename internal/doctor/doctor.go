// Package doctor examines the conditions of a migration, and reports for each problem
// the value found, the required value, and the command that corrects it.
//
// # Checks
//
// A Check is data: a stable Code, a Title, the codes it Needs, and a Run. A check whose
// needs failed would only repeat their findings, so it does not run. Several objects,
// such as folders, are independent of each other (Merge). Checks are in packages below
// this one, each with a function Checks that returns its own.
//
// # Findings
//
// Run returns one Finding for each object: one for a host, a VM or a folder. An object
// that could not be examined is Unknown with the reason, and never OK. Each finding
// that is not OK has a remedy to paste.
//
// Checks change nothing, except as they document it: a probe that writes removes its
// files.
package doctor

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
)

// Status is the severity of a finding. A higher value is worse.
type Status uint8

// The worse, the higher.
const (
	OK      Status = iota // the property holds
	Unknown               // the check could not be performed; Seen has the reason
	Advice                // a faster or safer configuration is possible
	Warning               // works until another event
	Failure               // the planned migration will fail
)

// statusNames contains the names by Status.
var statusNames = [...]string{"ok", "unknown", "recommendation", "warning", "failure"}

// String returns the fixed name, as used in --json output.
func (s Status) String() string { return statusNames[s] }

// MarshalText returns the fixed name.
func (s Status) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Finding is the result for one object.
type Finding struct {
	Code   string `json:"code"`             // code of the check; set by Examine
	Title  string `json:"title"`            // title of the check; set by Examine
	On     string `json:"on,omitempty"`     // examined object: "host esx1", "VM web01", "/srv/vm"; empty if there is only one
	Status Status `json:"status"`           // severity
	Found  string `json:"found,omitempty"`  // value found, or the reason why the check could not be performed
	Want   string `json:"want,omitempty"`   // required value; may be empty if the status is OK
	Remedy string `json:"remedy,omitempty"` // commands or a sentence, on one or more lines; empty if the status is OK
}

// Check examines one kind of object. Checks are independent, so that they can run
// concurrently.
type Check struct {
	Code  string   // stable code such as "nfs-sync": lower-case words joined by hyphens; the first names the group
	Title string   // property that holds without findings: "exports are written asynchronously"
	Needs []string // codes of checks that must succeed before this one can run

	// Slow marks a check that takes seconds, or writes. Options.Short skips it.
	Slow bool

	// Advises marks a check whose findings are never worse than Advice. Options.Severe skips it.
	Advises bool

	// Run examines the objects. It returns nil if no object needs the check. It must
	// return soon after ctx ends.
	Run func(ctx context.Context) []Finding

	thing int // object of a merged check, counted from 1; its needs concern the same object
}

// id identifies a check. Merged checks with one code examine different objects.
type id struct {
	code  string // code of the check
	thing int    // number of the object; 0 if the check was not merged
}

// id returns the identity of a check.
func (c Check) id() id { return id{c.Code, c.thing} }

// neededIDs returns the identities of the checks that c needs, for the same object.
func (c Check) neededIDs() (all []id) {
	for _, code := range c.Needs {
		all = append(all, id{code, c.thing})
	}
	return all
}

// Options configure an examination. The zero value runs all checks.
type Options struct {
	Short    bool          // skip slow checks
	Severe   bool          // skip checks that find no warnings and no failures
	Parallel int           // number of concurrent checks; 8 if 0
	Report   func(Finding) // called with each finding as soon as it is known; may be nil. Calls are not concurrent.
}

// default of Options.Parallel
const parallel = 8

// Examine runs checks in the order of their needs, and returns the findings: the most
// severe first, otherwise in the order of the checks. Needs that are not among the
// checks count as met. It panics if a code is there twice or checks need each other in
// a cycle.
func Examine(ctx context.Context, checks []Check, o Options) []Finding {
	e := &examination{opts: o, failed: map[id]bool{}, done: map[id]chan struct{}{}, found: make([][]Finding, len(checks))}
	checkOrder(checks)
	for _, c := range checks {
		e.done[c.id()] = make(chan struct{})
	}
	var g errgroup.Group
	slots := make(chan struct{}, cmp.Or(o.Parallel, parallel))
	for i, c := range checks {
		g.Go(func() error {
			defer close(e.done[c.id()])
			// A skipped check also closes its channel, so that checks that need it do
			// not wait.
			if !e.waitForNeeds(c) {
				return nil
			}
			slots <- struct{}{}
			defer func() { <-slots }()
			e.runCheck(ctx, i, c)
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

// examination is the state of one call of Examine.
type examination struct {
	opts Options              // options of the caller
	done map[id]chan struct{} // one channel for each check, closed when the check has ended or was skipped

	mu     sync.Mutex  // protects the fields below
	failed map[id]bool // checks with failures or unknown results, and those that need them
	found  [][]Finding // findings by check
}

// waitForNeeds waits until all checks that c needs have ended, and reports whether c
// must run. c does not run if a need failed, or if the options skip it.
func (e *examination) waitForNeeds(c Check) bool {
	for _, need := range c.neededIDs() {
		if over := e.done[need]; over != nil {
			<-over
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if slices.ContainsFunc(c.neededIDs(), func(need id) bool { return e.failed[need] }) {
		e.failed[c.id()] = true
		return false
	}
	return (!c.Slow || !e.opts.Short) && (!c.Advises || !e.opts.Severe)
}

// runCheck runs check i and stores its findings. It calls Options.Report while it holds
// mu.
func (e *examination) runCheck(ctx context.Context, i int, c Check) {
	found := c.Run(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	for j := range found {
		f := &found[j]
		f.Code, f.Title = c.Code, c.Title
		if f.Status == Failure || f.Status == Unknown {
			e.failed[c.id()] = true
		}
		if e.opts.Report != nil {
			e.opts.Report(*f)
		}
	}
	e.found[i] = found
}

// checkOrder panics if two checks for one object have the same code, or if checks need
// each other in a cycle.
func checkOrder(checks []Check) {
	needs, state := map[id][]id{}, map[id]int{}
	for _, c := range checks {
		if _, twice := needs[c.id()]; twice {
			panic("doctor: check " + c.Code + " is there twice")
		}
		needs[c.id()] = c.neededIDs()
	}
	var visit func(at id, way []string)
	visit = func(at id, way []string) {
		// A check that is visited again while its needs are visited is part of a cycle.
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

// Merge combines groups that examine one object each, such as a folder, to one group:
// checks of one code are adjacent. Each needs only those of its object: a failure of
// one object does not affect the others.
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
