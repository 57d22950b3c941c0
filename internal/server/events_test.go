package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/server"
	"github.com/decamp/decamp/internal/server/servertest"
)

// listener is a client of the event stream.
type listener struct {
	t      *testing.T
	resp   *http.Response
	lines  *bufio.Scanner
	lastID string
}

// happened is one event.
type happened struct {
	name, id, data string
}

// listen opens the stream; query is "plan=p&since=0", last a browser's Last-Event-ID.
func (r *rig) listen(query, last string) *listener {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patient)
	r.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, "GET", r.URL+"/v1/events?"+query, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.Tokens[server.View])
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { resp.Body.Close() })
	if got := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || got != "text/event-stream" {
		r.t.Fatalf("%s as %s", resp.Status, got)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 64<<20)
	return &listener{t: r.t, resp: resp, lines: lines}
}

// next waits for an event; one without a name is the end.
func (l *listener) next() (e happened) {
	l.t.Helper()
	for l.lines.Scan() {
		field, value, _ := strings.Cut(l.lines.Text(), ": ")
		switch field {
		case "event":
			e.name = value
		case "id":
			e.id, l.lastID = value, value
		case "data":
			e.data = value
		case "":
			if e.name != "" {
				return e
			}
		}
	}
	return happened{}
}

// until waits for an event of that name that is as wanted.
func (l *listener) until(name string, is func(data string) bool) happened {
	l.t.Helper()
	for {
		e := l.next()
		if e.name == "" {
			l.t.Fatalf("the stream ended before %s: %v", name, l.lines.Err())
		}
		if e.name == name && is(e.data) {
			return e
		}
	}
}

func anyData(string) bool { return true }

// vm is whether changes tell that a VM is in that state.
func vm(t *testing.T, k fleetdb.Key, state fleetdb.State) func(string) bool {
	return func(data string) bool {
		var c server.Changes
		if err := json.Unmarshal([]byte(data), &c); err != nil {
			t.Fatal(err)
		}
		for _, vm := range c.VMs {
			if vm.Key == k && vm.State == state {
				return true
			}
		}
		return false
	}
}

func TestEventsTellWhatChanges(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.plan("p", 3)
	l := r.listen("", "")
	l.until("hello", anyData)
	claims := r.running("p", 2)
	l.until("changes", vm(t, servertest.Key("p", 1), fleetdb.Running))
	l.until("plans", func(data string) bool { return strings.Contains(data, `"counts":{"queued":1,"running":2}`) })
	r.must(r.Report(t.Context(), claims, 40))
	l.until("progress", func(data string) bool {
		return strings.Contains(data, fmt.Sprintf(`"done":%d`, 40*servertest.Size/100))
	})
	r.must(r.SetSchedulerState(t.Context(), server.SchedulerState{Resources: []server.Resource{{Name: "host:esx3/vms", Capacity: 20, Used: 20, Waiting: 7}}}))
	l.until("fleet", func(data string) bool {
		return strings.Contains(data, "host esx3 vms: 20 of 20 in use, 7 VMs wait") && strings.Contains(data, "bottleneck: source (100 % busy); next: target")
	})
	r.must(r.Database.Workers.Drain(t.Context(), servertest.Worker, true))
	l.until("workers", func(data string) bool { return strings.Contains(data, `"drains":true`) })
}

func TestEventsOfAPlanAreNoOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.plan("p", 1)
	r.plan("q", 1)
	l := r.listen("plan=q", "")
	l.until("hello", anyData)
	r.running("p", 1)
	r.running("q", 1)
	for {
		e := l.next()
		if e.name == "" {
			t.Fatal("the stream ended")
		}
		if e.name == "changes" && strings.Contains(e.data, `"plan":"p"`) {
			t.Fatalf("told of p: %s", e.data)
		}
		if e.name == "changes" && vm(t, servertest.Key("q", 1), fleetdb.Running)(e.data) {
			return
		}
	}
}

// Whoever comes again misses nothing: from what the server still has, and from the database when
// another server is asked.
func TestEventsGoOnWhereTheyBroke(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart=%v", restart), func(t *testing.T) {
			r := newRig(t, nil)
			r.plan("p", 3)
			l := r.listen("since=0", "")
			l.until("changes", vm(t, servertest.Key("p", 3), fleetdb.Queued))
			l.until("hello", anyData)
			l.resp.Body.Close()
			r.running("p", 2)
			if restart {
				r.must(r.Stop())
				r.must(r.Serve(context.Background(), nil))
			}
			again := r.listen("", l.lastID)
			e := again.until("changes", vm(t, servertest.Key("p", 2), fleetdb.Running))
			if restart && strings.Contains(e.data, `"vm":"vm-3"`) { // what a hub gathered is told whole
				t.Errorf("told again what did not change: %s", e.data)
			}
		})
	}
}

// A revision of another database begins from now on, and not never.
func TestEventsFromTheFuture(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.plan("p", 1)
	l := r.listen("", "999999999")
	l.until("hello", anyData)
	r.running("p", 1)
	l.until("changes", vm(t, servertest.Key("p", 1), fleetdb.Running))
}

func TestClientsAreToldThatTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	l := r.listen("", "")
	l.until("hello", anyData)
	r.must(r.Database.Close())
	l.until("trouble", func(data string) bool { return data != `{"text":""}` })
}

func TestTheServerSaysGoodbye(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	l := r.listen("", "")
	l.until("hello", anyData)
	stopped := make(chan error, 1)
	go func() { stopped <- r.Stop() }()
	l.until("bye", anyData)
	if e := l.next(); e.name != "" {
		t.Errorf("after goodbye: %+v", e)
	}
	select {
	case err := <-stopped:
		r.must(err)
	case <-time.After(patient):
		t.Fatal("the server does not stop")
	}
	r.must(r.Serve(context.Background(), nil)) // for the rig to end
}
