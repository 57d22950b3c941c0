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

// eventReader is a client of the event stream.
type eventReader struct {
	t      *testing.T
	resp   *http.Response
	lines  *bufio.Scanner
	lastID string
}

// event is an event of the stream.
type event struct {
	name, id, data string
}

// openStream opens the event stream. The query is like "plan=p&since=0"; last is the Last-Event-ID of a browser.
func (r *testServer) openStream(query, last string) *eventReader {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), testTimeout)
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
		r.t.Fatalf("got status %s, type %s", resp.Status, got)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 64<<20)
	return &eventReader{t: r.t, resp: resp, lines: lines}
}

// nextEvent waits for an event. An event without a name is the end of the stream.
func (l *eventReader) nextEvent() (e event) {
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
	return event{}
}

// waitFor returns the next event with the name and with data that match accepts.
func (l *eventReader) waitFor(name string, match func(data string) bool) event {
	l.t.Helper()
	for {
		e := l.nextEvent()
		if e.name == "" {
			l.t.Fatalf("the stream ended before %s: %v", name, l.lines.Err())
		}
		if e.name == name && match(e.data) {
			return e
		}
	}
}

func anyData(string) bool { return true }

// hasVM returns a function that reports whether changes contain the VM in that state.
func hasVM(t *testing.T, k fleetdb.Key, state fleetdb.State) func(string) bool {
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

func TestEventsReportChanges(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	t.Parallel()
	r := newTestServer(t, nil)
	r.addPlan("p", 3)
	l := r.openStream("", "")
	l.waitFor("hello", anyData)
	claims := r.runVMs("p", 2)
	l.waitFor("changes", hasVM(t, servertest.Key("p", 1), fleetdb.Running))
	l.waitFor("plans", func(data string) bool { return strings.Contains(data, `"counts":{"queued":1,"running":2}`) })
	r.must(r.Report(t.Context(), claims, 40))
	l.waitFor("progress", func(data string) bool {
		return strings.Contains(data, fmt.Sprintf(`"done":%d`, 40*servertest.Size/100))
	})
	r.must(r.SetSchedulerState(t.Context(), server.SchedulerState{Resources: []server.Resource{{Name: "host:esx3/vms", Capacity: 20, Used: 20, Waiting: 7}}}))
	l.waitFor("fleet", func(data string) bool {
		return strings.Contains(data, "host esx3 vms: 20 of 20 in use, 7 VMs wait") && strings.Contains(data, "bottleneck: source (100 % busy); next: target")
	})
	r.must(r.Database.Workers.Drain(t.Context(), servertest.Worker, true))
	l.waitFor("workers", func(data string) bool { return strings.Contains(data, `"drains":true`) })
}

func TestEventsOfOnePlan(t *testing.T) {
	t.Parallel()
	r := newTestServer(t, nil)
	r.addPlan("p", 1)
	r.addPlan("q", 1)
	l := r.openStream("plan=q", "")
	l.waitFor("hello", anyData)
	r.runVMs("p", 1)
	r.runVMs("q", 1)
	for {
		e := l.nextEvent()
		if e.name == "" {
			t.Fatal("the stream ended")
		}
		if e.name == "changes" && strings.Contains(e.data, `"plan":"p"`) {
			t.Fatalf("the stream of plan q has an event of plan p: %s", e.data)
		}
		if e.name == "changes" && hasVM(t, servertest.Key("q", 1), fleetdb.Running)(e.data) {
			return
		}
	}
}

// A client that reconnects misses no changes. The server sends them from its ring, or from the database after a
// restart.
func TestEventStreamResumesAfterReconnect(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	t.Parallel()
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart=%v", restart), func(t *testing.T) {
			r := newTestServer(t, nil)
			r.addPlan("p", 3)
			l := r.openStream("since=0", "")
			l.waitFor("changes", hasVM(t, servertest.Key("p", 3), fleetdb.Queued))
			l.waitFor("hello", anyData)
			l.resp.Body.Close()
			r.runVMs("p", 2)
			if restart {
				r.must(r.Stop())
				r.must(r.Serve(context.Background(), nil))
			}
			again := r.openStream("", l.lastID)
			e := again.waitFor("changes", hasVM(t, servertest.Key("p", 2), fleetdb.Running))
			if restart && strings.Contains(e.data, `"vm":"vm-3"`) { // the ring sends complete frames
				t.Errorf("the stream repeats a VM that did not change: %s", e.data)
			}
		})
	}
}

// A stream with a revision above that of the database begins with the next change.
func TestEventsAfterAFutureRevision(t *testing.T) {
	t.Parallel()
	r := newTestServer(t, nil)
	r.addPlan("p", 1)
	l := r.openStream("", "999999999")
	l.waitFor("hello", anyData)
	r.runVMs("p", 1)
	l.waitFor("changes", hasVM(t, servertest.Key("p", 1), fleetdb.Running))
}

func TestDatabaseOutageIsSentToClients(t *testing.T) {
	t.Parallel()
	r := newTestServer(t, nil)
	l := r.openStream("", "")
	l.waitFor("hello", anyData)
	r.must(r.Database.Close())
	l.waitFor("trouble", func(data string) bool { return data != `{"text":""}` })
}

func TestStoppingServerSendsByeEvent(t *testing.T) {
	t.Parallel()
	r := newTestServer(t, nil)
	l := r.openStream("", "")
	l.waitFor("hello", anyData)
	stopped := make(chan error, 1)
	go func() { stopped <- r.Stop() }()
	l.waitFor("bye", anyData)
	if e := l.nextEvent(); e.name != "" {
		t.Errorf("got event %+v after bye", e)
	}
	select {
	case err := <-stopped:
		r.must(err)
	case <-time.After(testTimeout):
		t.Fatal("the server did not stop")
	}
	r.must(r.Serve(context.Background(), nil)) // the cleanup of the test stops it
}
