package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/decamp/decamp/internal/fleetdb"
)

// A frame is one event for all listeners. It is immutable; its text is made once for each plan with
// listeners.
type frame struct {
	event string
	rev   int64 // revision to resume from; 0 for an event without one
	of    func(plan string) (data any, some bool)

	mu    sync.Mutex
	texts map[string][]byte
}

// Events of the stream.
const (
	eventHello    = "hello"    // first event: {"rev":…}
	eventChanges  = "changes"  // plans, VMs, workers and limits as they are now; with an id
	eventProgress = "progress" // progress of transfers
	eventPlans    = "plans"    // all plans with their counts, after VMs changed their states
	eventWorkers  = "workers"  // all workers, after one came, went or was drained
	eventFleet    = "fleet"    // resources in use and limits
	eventTrouble  = "trouble"  // {"text":…}: the database does not answer; empty: it does again
	eventLost     = "lost"     // this client did not read; it has to come again
	eventBye      = "bye"      // the server stops
)

// textFor returns the event for listeners of a plan, or of everything if plan is empty. It is nil if the
// event does not concern them. The text is shared and must not be changed.
func (f *frame) textFor(plan string) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	if text, made := f.texts[plan]; made {
		return text
	}
	if f.texts == nil {
		f.texts = map[string][]byte{}
	}
	f.texts[plan] = f.encodeFor(plan)
	return f.texts[plan]
}

func (f *frame) encodeFor(plan string) []byte {
	data, some := f.of(plan)
	if !some {
		return nil
	}
	return eventText(f.event, f.rev, data)
}

// eventText writes an event of the stream. JSON has no line breaks, so data is one line.
func eventText(event string, rev int64, data any) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "event: %s\n", event)
	if rev > 0 {
		fmt.Fprintf(&b, "id: %d\n", rev)
	}
	text, err := json.Marshal(data)
	if err != nil { // these are our own types
		panic(err)
	}
	b.WriteString("data: ")
	b.Write(text)
	b.WriteString("\n\n")
	return b.Bytes()
}

// Changes is the content of the event "changes": fleetdb.Changes.
type Changes struct {
	Rev     int64            `json:"rev"`
	Dropped []string         `json:"dropped,omitempty"` // plans: to be forgotten before the rest is read
	Plans   []fleetdb.Plan   `json:"plans,omitempty"`   // without texts and counts
	VMs     []fleetdb.VM     `json:"vms,omitempty"`     // without specs
	Workers []fleetdb.Worker `json:"workers,omitempty"`
	Limits  []fleetdb.Limit  `json:"limits,omitempty"` // less than 0 units: taken back
}

func changesFrame(c fleetdb.Changes) *frame {
	return &frame{event: eventChanges, rev: c.Rev, of: func(plan string) (any, bool) { return changesOf(Changes(c), plan) }}
}

// changesOf removes changes of other plans.
func changesOf(c Changes, plan string) (Changes, bool) {
	if plan == "" {
		return c, true
	}
	of := Changes{
		Rev:     c.Rev,
		Dropped: filter(c.Dropped, func(name string) bool { return name == plan }),
		Plans:   filter(c.Plans, func(p fleetdb.Plan) bool { return p.Name == plan }),
		VMs:     filter(c.VMs, func(vm fleetdb.VM) bool { return vm.Plan == plan }),
	}
	return of, len(of.Dropped)+len(of.Plans)+len(of.VMs) > 0
}

func filter[T any](all []T, is func(T) bool) (some []T) {
	for _, x := range all {
		if is(x) {
			some = append(some, x)
		}
	}
	return some
}

func progressFrame(all []fleetdb.Progress) *frame {
	return &frame{event: eventProgress, of: func(plan string) (any, bool) {
		of := progressOf(all, plan)
		return of, len(of) > 0
	}}
}

func progressOf(all []fleetdb.Progress, plan string) []fleetdb.Progress {
	if plan == "" {
		return all
	}
	return filter(all, func(p fleetdb.Progress) bool { return p.Plan == plan })
}

// sameFrame is an event that is the same for all.
func sameFrame(event string, data any) *frame {
	return &frame{event: event, of: func(string) (any, bool) { return data, true }}
}

type trouble struct {
	Text string `json:"text"`
}

type hello struct {
	Rev int64 `json:"rev"`
}
