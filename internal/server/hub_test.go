package server

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fleetdb"
)

func newTestHub() *hub {
	h := newHub(&fleetdb.Database{}, nil, newMetrics("test"), slog.New(slog.DiscardHandler))
	h.rev, h.from = 0, 0
	return h
}

// vmChanges returns changes of n VMs.
func vmChanges(rev int64, n int) fleetdb.Changes {
	c := fleetdb.Changes{Rev: rev}
	for i := range n {
		c.VMs = append(c.VMs, fleetdb.VM{Key: fleetdb.Key{Plan: "p", VM: fmt.Sprintf("vm-%d", i)}, Rev: rev})
	}
	return c
}

// The hub drops a client that does not read. Other clients receive all changes. sendChanges never waits: if it
// did, this test would not end.
func TestStalledClientIsDropped(t *testing.T) {
	h := newTestHub()
	stuck, _, _, _ := h.addListener("", -1)
	reads, _, _, _ := h.addListener("", -1)
	for rev := int64(1); rev <= maxQueued+5; rev++ {
		h.sendChanges(vmChanges(rev, 1))
		if frames := <-reads.queue; frames[0].rev != rev {
			t.Fatalf("got revision %d, want %d", frames[0].rev, rev)
		}
	}
	select {
	case <-stuck.lost:
	default:
		t.Fatal("a client that does not read is kept")
	}
	if h.clientCount() != 1 {
		t.Errorf("got %d clients, want 1", h.clientCount())
	}
	h.removeListener(stuck) // the connection of a dropped client does the same
	h.removeListener(reads)
	if h.clientCount() != 0 {
		t.Errorf("got %d clients, want 0", h.clientCount())
	}
}

func TestRingReportsMissedChanges(t *testing.T) {
	h := newTestHub()
	for rev := int64(1); rev <= 3*ringFrames; rev++ {
		h.sendChanges(vmChanges(rev, 1))
	}
	if len(h.ring) != ringFrames {
		t.Errorf("got %d frames, want %d", len(h.ring), ringFrames)
	}
	from := int64(2 * ringFrames)
	for since, want := range map[int64]struct {
		missed int
		whole  bool
	}{0: {ringFrames, false}, from - 1: {ringFrames, false}, from: {ringFrames, true}, 3*ringFrames - 1: {1, true}, 3 * ringFrames: {0, true}} {
		l, rev, missed, whole := h.addListener("", since)
		if len(missed) != want.missed || whole != want.whole || rev != 3*ringFrames {
			t.Errorf("since %d: %d frames, whole %v, rev %d; want %+v", since, len(missed), whole, rev, want)
		}
		h.removeListener(l)
	}
}

func TestRingIsBoundedInRows(t *testing.T) {
	h := newTestHub()
	for rev := int64(1); rev <= 30; rev++ {
		h.sendChanges(vmChanges(rev, 2000))
	}
	if rows := len(h.ring) * 2000; rows > ringRows || len(h.ring) == 0 || h.from != h.ring[0].rev-1 {
		t.Errorf("the ring has %d rows, from revision %d", rows, h.from)
	}
}

func TestClientsAreLimited(t *testing.T) {
	h := newTestHub()
	for range maxClients {
		if l, _, _, _ := h.addListener("", -1); l == nil {
			t.Fatal("a client is refused below the limit")
		}
	}
	if l, _, _, _ := h.addListener("", -1); l != nil {
		t.Error("a client above the limit is accepted")
	}
}

func TestTroubleIsReportedUntilRecovery(t *testing.T) {
	h := newTestHub()
	l, _, _, _ := h.addListener("", -1)
	h.reportTrouble(errors.New("gone"))
	h.reportTrouble(errors.New("gone"))
	h.reportRecovery()
	h.reportRecovery()
	for _, want := range []string{`{"text":"gone"}`, `{"text":"gone"}`, `{"text":""}`} {
		if text := string((<-l.queue)[0].textFor("p")); text != "event: trouble\ndata: "+want+"\n\n" {
			t.Errorf("got %q, want data %s", text, want)
		}
	}
	if len(l.queue) != 0 {
		t.Error("a recovery without trouble before is reported")
	}
}

// A frame is encoded once for all clients that receive the same text.
func TestFramesAreEncodedOnce(t *testing.T) {
	f := changesFrame(vmChanges(7, 2))
	one, two := f.textFor("p"), f.textFor("p")
	if &one[0] != &two[0] {
		t.Error("the frame is encoded twice")
	}
	if text := string(one); !strings.HasPrefix(text, "event: changes\nid: 7\ndata: {") || !strings.HasSuffix(text, "}\n\n") || strings.Count(text, "\n") != 4 {
		t.Errorf("the frame is %q", text)
	}
	if f.textFor("q") != nil {
		t.Error("a client of another plan receives the frame")
	}
}

func TestOnlyChangedProgressIsSent(t *testing.T) {
	p := func(done int64) fleetdb.Progress {
		return fleetdb.Progress{Key: fleetdb.Key{Plan: "p", VM: "vm-1"}, Done: done}
	}
	still := fleetdb.Progress{Key: fleetdb.Key{Plan: "p", VM: "vm-2"}}
	at := func(done int64) *fleetState {
		all := []fleetdb.Progress{p(done), still}
		return &fleetState{progress: all, byVM: map[fleetdb.Key]int{all[0].Key: 0, still.Key: 1}}
	}
	b := sentState{fleet: newSummary(at(1))}
	if frames := b.changedFrames(at(1)); len(frames) != 1 || strings.Count(string(frames[0].textFor("")), `"vm"`) != 2 {
		t.Errorf("got frames %v, want one with 2 VMs", frames)
	}
	if frames := b.changedFrames(at(1)); len(frames) != 0 {
		t.Errorf("got %s without a change", frames[0].textFor(""))
	}
	if frames := b.changedFrames(at(2)); len(frames) != 1 || strings.Count(string(frames[0].textFor("")), `"vm"`) != 1 {
		t.Error("want one frame with only the VM that changed")
	}
}
