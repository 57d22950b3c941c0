package fleet

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/roster"
	"github.com/decamp/decamp/internal/sched"
)

const (
	// boardEvery is how often the board is written while somebody looks: a snapshot of
	// 10,000 VMs in line takes tens of milliseconds.
	boardEvery = 2 * time.Second

	// lookedFor is how long somebody counts as looking.
	lookedFor = 10 * time.Second
)

// A Board is what the scheduler shows: what there is, who has it, and why each VM waits.
type Board struct {
	At        time.Time             `json:"at"` // by the database's clock
	Resources []sched.ResourceState `json:"resources"`
	Plans     []sched.PlanState     `json:"plans"`
	Waiting   []Waiting             `json:"waiting"` // as they came
	Breakers  []Breaker             `json:"breakers,omitempty"`
}

// Waiting is a VM that waits for the scheduler.
type Waiting struct {
	Plan     string `json:"plan"`
	VM       string `json:"vm"`       // its reference
	Sentence string `json:"sentence"` // why
	Position int    `json:"position"` // among those of its plan, as they came; 0: it is not in line
}

// A Breaker is a source or a host that nothing is begun at.
type Breaker struct {
	Of       string    `json:"of"` // "source vc1:443", "host esx3"
	Sentence string    `json:"sentence"`
	Until    time.Time `json:"until,omitzero"` // zero: until somebody says resume
}

// showBoard writes the board, if somebody looks.
func (d *desk) showBoard(ctx context.Context) error {
	if d.now().Before(d.boardAt) {
		return nil
	}
	ago, err := d.Roster.Board.Requested(ctx)
	if err != nil || ago > lookedFor {
		return err
	}
	d.boardAt = d.now().Add(boardEvery)
	text, err := json.Marshal(d.board())
	if err != nil {
		return err
	}
	return d.Roster.Board.Put(ctx, d.lease, text)
}

func (d *desk) board() Board {
	snap := d.sched.Snapshot()
	b := Board{At: d.now(), Resources: snap.Resources, Plans: snap.Plans, Breakers: d.breakers()}
	b.Resources = slices.DeleteFunc(b.Resources, func(r sched.ResourceState) bool { return ours(r.Name) })
	behind := map[string]int{}
	for _, w := range snap.Waiting {
		behind[w.Plan]++
		key := keyOf(w.Plan, w.Run)
		b.Waiting = append(b.Waiting, Waiting{w.Plan, key.VM, d.sentence(key, w), behind[w.Plan]})
	}
	for key, why := range d.homeless {
		b.Waiting = append(b.Waiting, Waiting{key.Plan, key.VM, why, 0})
	}
	return b
}

// ours reports whether a resource is one of the fleet's own, which Breakers are about.
func ours(resource string) bool {
	return strings.HasSuffix(resource, "/trials") || strings.HasSuffix(resource, "/logins")
}

// sentence says why a VM waits: by what the fleet knows of its source, host and plan, else by
// what the sched.Scheduler says.
func (d *desk) sentence(key roster.Key, w sched.Waiting) string {
	v, b := d.vms[key], d.book(key.Plan)
	if r, refused := d.refusalFor(v); refused && (v.State == roster.Queued || r.Host != "") {
		return r.Err().Error() + "; correct the password, then decamp resume " + key.Plan
	}
	if h := d.hosts[v.Host]; h != nil && w.Why != sched.Shut && d.known[trialsOf(v.Host)] != sched.Unlimited {
		return h.sentence(v.Host)
	}
	switch {
	case w.Why == sched.Paused && b.failed && b.Failure != nil:
		return b.Failure.Text
	case w.Why == sched.Paused && !b.ready:
		return "the plan's hook before its first VM is under way"
	case w.Why == sched.Paused && b.Order == roster.Pause:
		return "plan " + key.Plan + " is paused"
	case w.Why == sched.Paused:
		return "it is paused"
	case w.Why == sched.Shut && v.Failure != nil:
		return "tried again " + v.NotBefore.UTC().Format(time.TimeOnly) + " UTC: " + v.Failure.Text
	}
	return w.Sentence(d.now())
}

func (h *health) sentence(host string) string {
	return "host " + host + " rests, several VMs failed there in a row; one tries it after " + h.Until.UTC().Format(time.TimeOnly) + " UTC: " + h.Why
}

// breakers returns what nothing is begun at, by name.
func (d *desk) breakers() []Breaker {
	var all []Breaker
	for _, r := range d.refusals {
		of := "source " + r.Source
		if r.Host != "" {
			of = "host " + r.Host
		}
		all = append(all, Breaker{Of: of, Sentence: r.Err().Error()})
	}
	for host, h := range d.hosts {
		if !h.Until.IsZero() {
			all = append(all, Breaker{Of: "host " + host, Sentence: h.sentence(host), Until: h.Until})
		}
	}
	slices.SortFunc(all, func(a, b Breaker) int { return strings.Compare(a.Of, b.Of) })
	return all
}
