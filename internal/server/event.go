package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/decamp/decamp/internal/fleetdb"
)

// A frame is one event for all listeners. It is immutable and safe for concurrent use. Its text is
// created once for each plan with listeners.
type frame struct {
	event string // name of the event
	rev   int64  // revision to resume from; 0 for an event without one
	// of returns the data for listeners of a plan; false if the event does not concern them
	of func(plan string) (data any, some bool)

	mu    sync.Mutex        // guards texts
	texts map[string][]byte // encoded events by plan; nil texts are events without data
}

// Events of the stream.
const (
	eventHello    = "hello"    // first event: {"rev":…}
	eventChanges  = "changes"  // plans, VMs, workers and limits as they are now; with an id
	eventProgress = "progress" // progress of transfers
	eventPlans    = "plans"    // all plans with their counts, after VMs changed their states
	eventWorkers  = "workers"  // all workers, after one came, went or was drained
	eventFleet    = "fleet"    // resources in use and limits
	eventTrouble  = "trouble"  // {"text":…}: the database does not respond; an empty text means that it does again
	eventLost     = "lost"     // this client did not read and must reconnect
	eventBye      = "bye"      // the server stops
)

// textFor returns the event for listeners of a plan, or of all plans if plan is empty. It is nil if the
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

// encodeFor creates the text that textFor returns.
func (f *frame) encodeFor(plan string) []byte {
	data, some := f.of(plan)
	if !some {
		return nil
	}
	return eventText(f.event, f.rev, data)
}

// eventText returns an event in the format of server-sent events (WHATWG HTML). JSON has no line
// breaks, so the data is one line.
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
	Rev     int64            `json:"rev"`               // revision up to which the changes are complete
	Dropped []string         `json:"dropped,omitempty"` // plans to remove before the other fields are applied
	Plans   []fleetdb.Plan   `json:"plans,omitempty"`   // without texts and counts
	VMs     []fleetdb.VM     `json:"vms,omitempty"`     // without specs
	Workers []fleetdb.Worker `json:"workers,omitempty"` // workers with a changed row
	Limits  []fleetdb.Limit  `json:"limits,omitempty"`  // changed limits; negative units mean that the limit was removed
}

// changesFrame returns the event "changes". Listeners of one plan get only its changes.
func changesFrame(c fleetdb.Changes) *frame {
	return &frame{event: eventChanges, rev: c.Rev, of: func(plan string) (any, bool) { return changesOf(Changes(c), plan) }}
}

// changesOf returns the changes of one plan, all for "". It returns false if none exists.
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

// filter returns the elements for which is returns true.
func filter[T any](all []T, is func(T) bool) (some []T) {
	for _, x := range all {
		if is(x) {
			some = append(some, x)
		}
	}
	return some
}

// progressFrame returns the event "progress".
func progressFrame(all []fleetdb.Progress) *frame {
	return &frame{event: eventProgress, of: func(plan string) (any, bool) {
		of := progressOf(all, plan)
		return of, len(of) > 0
	}}
}

// progressOf returns the progress of a plan's VMs; of all for "".
func progressOf(all []fleetdb.Progress, plan string) []fleetdb.Progress {
	if plan == "" {
		return all
	}
	return filter(all, func(p fleetdb.Progress) bool { return p.Plan == plan })
}

// sameFrame returns an event with the same data for all listeners.
func sameFrame(event string, data any) *frame {
	return &frame{event: event, of: func(string) (any, bool) { return data, true }}
}

// trouble is the data of the events "trouble", "lost" and "bye".
type trouble struct {
	Text string `json:"text"` // description for users
}

// hello is the data of the event "hello".
type hello struct {
	Rev int64 `json:"rev"` // revision from which the stream continues
}
