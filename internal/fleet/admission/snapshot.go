package admission

import (
	"slices"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/sched"
)

// A Snapshot is the state of the scheduler at one moment: the use of each resource, and why each VM
// waits. The fleet database stores it in the table board.
type Snapshot struct {
	At        time.Time             `json:"at"`                 // time by the database's clock
	Resources []sched.ResourceState `json:"resources"`          // use of the resources, without internal ones
	Plans     []sched.PlanState     `json:"plans"`              // shares of the plans
	Waiting   []Waiting             `json:"waiting"`            // waiting VMs, in the order of their requests
	Breakers  []Breaker             `json:"breakers,omitempty"` // sources and hosts where no VM begins
}

// Waiting is a VM that waits for the scheduler.
type Waiting struct {
	Plan     string `json:"plan"`     // plan of the VM
	VM       string `json:"vm"`       // reference of the VM
	Reason   string `json:"reason"`   // why it waits, for users
	Position int    `json:"position"` // position among the waiting VMs of its plan, from 1; 0 if no worker can take it
}

// A Breaker is a source or a host where no VM begins.
type Breaker struct {
	Object string    `json:"object"`         // source or host: "source vc1:443", "host esx3"
	Reason string    `json:"reason"`         // why no VM begins there, for users
	Until  time.Time `json:"until,omitzero"` // end of the rest; zero if it lasts until an operator resumes a plan
}

// Snapshot returns the state. With 10,000 VMs that wait it takes tens of milliseconds.
func (c *Controller) Snapshot() Snapshot {
	state := c.sched.Snapshot()
	s := Snapshot{At: c.Now(), Plans: state.Plans, Breakers: listBreakers(c.refusals, c.hosts)}
	s.Resources = slices.DeleteFunc(state.Resources, func(r sched.ResourceState) bool { return isInternal(r.Name) })
	position := map[string]int{}
	for _, w := range state.Waiting {
		position[w.Plan]++
		key := keyOf(w.Plan, w.Run)
		s.Waiting = append(s.Waiting, Waiting{w.Plan, key.VM, c.waitReason(key, w), position[w.Plan]})
	}
	for key, why := range c.unassignable {
		s.Waiting = append(s.Waiting, Waiting{key.Plan, key.VM, why, 0})
	}
	return s
}

// waitReason returns why a VM waits: because of its source, its host or its plan, else by the
// sched.Scheduler.
func (c *Controller) waitReason(key fleetdb.Key, w sched.Waiting) string {
	v, p := c.vms[key], c.plans[key.Plan]
	if r, refused := c.refusals.forVM(v); refused && (v.State == fleetdb.Queued || r.Host != "") {
		return r.Err().Error() + "; correct the password, then decamp resume " + key.Plan
	}
	if h := c.hosts.hosts[v.Host]; h != nil && w.Reason != sched.OutsideWindows && c.capacities.known[hostTrials(v.Host)] != sched.Unlimited {
		return h.reasonText(v.Host)
	}
	switch {
	case w.Reason == sched.Paused && p.Failure != "":
		return p.Failure
	case w.Reason == sched.Paused && !p.Ready:
		return "the plan's hook before its first VM is running"
	case w.Reason == sched.Paused && p.Order == fleetdb.Pause:
		return "plan " + key.Plan + " is paused"
	case w.Reason == sched.Paused:
		return "it is paused"
	case w.Reason == sched.OutsideWindows && v.Failure != nil:
		return "next attempt at " + v.NotBefore.UTC().Format(time.TimeOnly) + " UTC: " + v.Failure.Text
	}
	return w.Text(c.Now())
}

// listBreakers returns the refused logins and the resting hosts, by name.
func listBreakers(refused refusals, hosts *HostHealth) []Breaker {
	var all []Breaker
	for _, r := range refused {
		of := "source " + r.Source
		if r.Host != "" {
			of = "host " + r.Host
		}
		all = append(all, Breaker{Object: of, Reason: r.Err().Error()})
	}
	for host, h := range hosts.hosts {
		if !h.Until.IsZero() {
			all = append(all, Breaker{Object: "host " + host, Reason: h.reasonText(host), Until: h.Until})
		}
	}
	slices.SortFunc(all, func(a, b Breaker) int { return strings.Compare(a.Object, b.Object) })
	return all
}
