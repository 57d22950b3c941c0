package sched

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// explain returns why a run waits. It returns false if the run does not wait.
func (m *sim) explain(run string) (Waiting, bool) {
	for _, x := range m.s.registry.waitingRuns() {
		if x.req.Run == run {
			return explainWait(x, m.s.queue.now, m.s.paused, report{}), true
		}
	}
	return Waiting{}, false
}

// waitText returns the text for users that explains why a run waits.
func (m *sim) waitText(run string) string {
	m.t.Helper()
	w, ok := m.explain(run)
	if !ok {
		m.t.Fatalf("%s does not wait", run)
	}
	return w.Text(m.now)
}

func TestWaitTextNamesTheReason(t *testing.T) {
	m := newSim(t, map[string]int64{"host:esx3/vms": 20, "host:esx3/nfc": 48 << 20, "datastore:ds1": 3, "host:esx4/vms": 0, "target:kvm/disks": 10})
	for i := range 21 {
		m.submit(Request{Run: fmt.Sprint("a", i), Plan: "p", Needs: needs("host:esx3/vms", 1), Expected: time.Duration(4+i) * time.Minute})
	}
	m.submit(Request{Run: "b0", Plan: "p", Needs: needs("host:esx3/nfc", 40<<20)})
	m.submit(Request{Run: "c0", Plan: "p", Needs: needs("datastore:ds1", 2), Expected: 3 * time.Hour})
	m.submit(Request{Run: "c1", Plan: "p", Needs: needs("datastore:ds1", 1), Expected: 50 * time.Hour})
	m.decide()
	m.submit(Request{Run: "b1", Plan: "p", Needs: needs("host:esx3/nfc", 24<<20)})
	m.submit(Request{Run: "c2", Plan: "p", Needs: needs("datastore:ds1", 3)})
	m.submit(Request{Run: "d", Plan: "p", Needs: needs("host:esx4/vms", 1)})
	m.submit(Request{Run: "e", Plan: "q", Needs: needs("host:esx3/vms", 1)})
	m.submit(Request{Run: "f", Plan: "p", Needs: needs("target:kvm/disks", 1), Windows: []Window{{From: epoch.Add(3 * time.Hour)}}})
	m.submit(Request{Run: "g", Plan: "p", Needs: needs("target:kvm/disks", 1), Windows: []Window{{To: epoch}}})
	m.submit(Request{Run: "h", Plan: "p", Needs: needs("target:kvm/disks", 1)})
	m.s.PausePlan("q")
	for run, want := range map[string]string{
		"a0": "host esx3: 20 of 20 vms; next in about 5 min", // the shortest has not begun
		"b1": "host esx3: 40 MiB of 48 MiB nfc, needs 24 MiB; the end of the running transfers is unknown",
		"c2": "datastore ds1: 3 of 3, needs 3; next in about 3 h, enough in about 2 days",
		"d":  "host esx4 vms is closed: its capacity is 0",
		"e":  "plan q is paused",
		"f":  "its window opens in about 3 h",
		"g":  "its last window has ended",
		"h":  "begins now",
	} {
		if got := m.waitText(run); got != want {
			t.Errorf("%s: got %q, want %q", run, got, want)
		}
	}
	m.s.PauseRun("c2")
	m.s.ResumePlan("q")
	if got := m.waitText("c2"); got != "run c2 is paused" {
		t.Errorf("got %q for a paused run", got)
	}
	m.s.SetExpectedEnd("a20", epoch.Add(-time.Minute))
	if got := m.waitText("a0"); got != "host esx3: 20 of 20 vms; next at any moment" {
		t.Errorf("got %q for an overdue end", got)
	}
}

func TestWaitTextNamesTheReservation(t *testing.T) {
	m := newSim(t, map[string]int64{"host:a/disks": 10})
	m.submit(Request{Run: "long", Plan: "p", Needs: needs("host:a/disks", 5), Expected: time.Hour})
	m.decide()
	m.submit(Request{Run: "large", Plan: "p", Needs: needs("host:a/disks", 8), Expected: time.Hour})
	m.submit(Request{Run: "passes", Plan: "p", Needs: needs("host:a/disks", 1), Expected: time.Minute})
	m.decide()
	m.s.Release("passes")
	m.now = m.now.Add(10 * time.Minute)
	m.submit(Request{Run: "late", Plan: "p", Needs: needs("host:a/disks", 1), Expected: 55 * time.Minute})
	m.decide()
	w, _ := m.explain("late")
	if got := w.Text(m.now); w.Reason != Reserved || got != "host a: 5 of 10 disks, the rest is reserved for large; next in about 50 min" {
		t.Errorf("got reason %v with text %q", w.Reason, got)
	}
}

// The explanation contains the runs that hold the resource, in the order of their expected ends.
func TestWaitingNamesTheHolders(t *testing.T) {
	m := newSim(t, map[string]int64{"host:a/vms": 3, "vcenter:v": 100})
	for i, minutes := range []int{30, 10, 20, 40} {
		m.submit(Request{Run: fmt.Sprint("r", i), Plan: "p", Priority: -i, Needs: needs("host:a/vms", 1, "vcenter:v", 2), Expected: time.Duration(minutes) * time.Minute})
	}
	m.decide()
	w, ok := m.explain("r3")
	if !ok || w.Reason != Full || len(w.Blocks) != 1 || w.Blocks[0].Waiting != 1 || !w.Blocks[0].Free.Equal(epoch.Add(10*time.Minute)) {
		t.Fatalf("got %+v, %v", w, ok)
	}
	var order []string
	for _, h := range w.Blocks[0].Allocations {
		order = append(order, h.Run)
	}
	if strings.Join(order, " ") != "r1 r2 r0" {
		t.Errorf("holders are %v, want r1, r2 and r0", order)
	}
	if _, ok := m.explain("r0"); ok {
		t.Error("a run with a grant waits")
	}
	if _, ok := m.explain("nobody"); ok {
		t.Error("an unknown run waits")
	}
}

// The JSON of a snapshot contains names instead of numeric constants.
func TestSnapshotIsReadableJSON(t *testing.T) {
	m := newSim(t, map[string]int64{"host:a/vms": 1})
	m.submit(vmOn("a", "p", 0, time.Hour), vmOn("a", "p", 1, time.Minute))
	m.decide()
	text, err := json.Marshal(m.s.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"reason":"full"`, `"stage":"first"`, `"name":"host:a/vms","capacity":1,"used":1,"waiting":1`, `"holders":[{"run":"p-a-0"`, `"name":"p","weight":1,"granted":1,"waiting":1`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s is missing in %s", want, text)
		}
	}
}
