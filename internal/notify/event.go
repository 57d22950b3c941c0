package notify

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/planfile"
)

// Event is one event as receivers get it. The names of its JSON fields never change.
type Event struct {
	ID   string             `json:"id"`   // the same for each attempt and each receiver
	Kind planfile.EventKind `json:"kind"` // determines which of the fields below are set
	Time time.Time          `json:"time"` // when it happened, or was noticed
	Plan string             `json:"plan"` // name of the plan

	VM      string         `json:"vm,omitempty"`      // name of the VM at the source; empty for an event of the plan
	Ref     string         `json:"ref,omitempty"`     // reference of the VM at the source
	Source  string         `json:"source,omitempty"`  // host:port of the ESXi host or vCenter
	To      []string       `json:"to,omitempty"`      // destinations of the VM
	Runs    []string       `json:"runs,omitempty"`    // IDs of the VM's runs
	Worker  string         `json:"worker,omitempty"`  // worker that executes the VM, or did last
	Failure *Failure       `json:"failure,omitempty"` // error of the VM or the plan
	VMs     map[string]int `json:"vms,omitempty"`     // number of the plan's VMs by state
	Outage  *Outage        `json:"outage,omitempty"`  // measured or estimated outage

	Subject string `json:"subject"` // one line for users
	Text    string `json:"text"`    // message for users
}

// Failure is an error for users.
type Failure struct {
	Kind string `json:"kind"`           // name of the fault.Kind
	Text string `json:"text"`           // message of the error
	Hint string `json:"hint,omitempty"` // remedy
}

// Outage is the outage of a warm VM, in seconds.
type Outage struct {
	Took     float64 `json:"tookSeconds,omitempty"`     // measured outage, with the boot time of the guest; 0 before the cutover
	Estimate float64 `json:"estimateSeconds,omitempty"` // estimate before the cutover; 0 if unknown
	Limit    float64 `json:"limitSeconds,omitempty"`    // downtime budget; 0 if the plan has none
}

// eventID returns the identifier of the event with these properties.
func eventID(kind planfile.EventKind, parts ...string) string {
	sum := sha256.Sum256([]byte(string(kind) + "\x00" + strings.Join(parts, "\x00")))
	return "evt_" + hex.EncodeToString(sum[:16])
}

// stampText returns a time as a part of an event's ID.
func stampText(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// failureEvent converts a failure of the fleet database; nil stays nil.
func failureEvent(f *fleetdb.Failure) *Failure {
	if f == nil {
		return nil
	}
	return &Failure{f.Kind, f.Text, f.Hint}
}

// planEvent returns the event of a plan's row; false if the row is none. A plan without counts has the
// event of its failure only.
func planEvent(p fleetdb.Plan, now time.Time) (Event, bool) {
	e := Event{Time: p.Ended, Plan: p.Name, Failure: failureEvent(p.Failure), VMs: map[string]int{}}
	for state, n := range p.Counts {
		e.VMs[string(state)] = n
	}
	switch {
	case !p.State.IsFinal() && p.Failure == nil:
		return Event{}, false
	case !p.State.IsFinal(): // the same failure of an active plan is one event
		e.Kind, e.Time = planfile.PlanFailed, now
		e.ID = eventID(e.Kind, p.Name, stampText(p.Created), p.Failure.Kind, p.Failure.Text)
	case p.State == fleetdb.PlanFailed || p.Counts[fleetdb.Failed] > 0:
		e.Kind = planfile.PlanFailed
		e.ID = eventID(e.Kind, p.Name, stampText(p.Ended))
	default:
		e.Kind = planfile.PlanDone
		e.ID = eventID(e.Kind, p.Name, stampText(p.Ended))
	}
	return e, true
}

// vmEvent returns an event of a VM without its kind and ID.
func vmEvent(v fleetdb.VM, at time.Time) Event {
	return Event{Time: at, Plan: v.Plan, VM: v.Name, Ref: v.VM, Source: v.Source, To: v.To, Runs: v.Runs, Worker: v.Worker, Failure: failureEvent(v.Failure)}
}

// failedEvent returns the event of a VM that has failed.
func failedEvent(v fleetdb.VM) Event {
	e := vmEvent(v, v.Ended)
	e.Kind = planfile.VMFailed
	e.ID = eventID(e.Kind, v.Key.String(), stampText(v.Ended))
	return e
}

// waitStep is the step of a warm run that waits for the next round or the cutover, as in package warm.
const waitStep = "wait"

// isInRounds reports whether a warm VM is copied, and neither it nor its plan has a command that ends the rounds.
func isInRounds(v fleetdb.VM, plan fleetdb.Command) bool {
	command := v.Command.Within(plan)
	return v.Warm && v.State == fleetdb.Running && command != fleetdb.CutOver && !command.Undoes()
}

// isManual reports whether the cutover of a VM requires a command. spec is its planfile.Options.
func isManual(spec json.RawMessage) bool {
	var o struct{ Warm planfile.Warm }
	if len(spec) > 0 && json.Unmarshal(spec, &o) != nil {
		return false
	}
	return o.Warm.Cutover == planfile.Cutover{} && o.Warm.DowntimeBudget == 0
}

// dueEvent returns the event of a VM that waits for its cutover. estimate is the expected outage; 0 if
// unknown. Later rounds of the same run cause the same event.
func dueEvent(v fleetdb.VM, now time.Time, estimate time.Duration) Event {
	e := vmEvent(v, now)
	e.Kind, e.Failure = planfile.CutoverDue, nil
	if estimate > 0 {
		e.Outage = &Outage{Estimate: estimate.Seconds()}
	}
	e.ID = eventID(e.Kind, v.Key.String(), stampText(v.Began))
	return e
}

const (
	// toleratedShare is by which part of an estimate an outage may exceed it without an event.
	toleratedShare = 0.5

	// toleratedTime is by how much an outage may exceed its estimate at least.
	toleratedTime = 10 * time.Second
)

// isOverrun reports whether an outage was longer than its limit; without a limit, whether it was much
// longer than its estimate.
func isOverrun(o fleetdb.Outage) bool {
	took := o.Took + o.Boot
	if o.Limit > 0 {
		return took > o.Limit
	}
	return o.Estimate > 0 && took-o.Estimate > max(time.Duration(float64(o.Estimate)*toleratedShare), toleratedTime)
}

// overrunEvent returns the event of a VM whose outage was too long.
func overrunEvent(v fleetdb.VM, o fleetdb.Outage) Event {
	e := vmEvent(v, v.Ended)
	e.Kind, e.Failure = planfile.OutageOverrun, nil
	e.Outage = &Outage{Took: (o.Took + o.Boot).Seconds(), Estimate: o.Estimate.Seconds(), Limit: o.Limit.Seconds()}
	e.ID = eventID(e.Kind, v.Key.String(), stampText(o.Began))
	return e
}
