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

// change is one that tells of n VMs.
func change(rev int64, n int) fleetdb.Changes {
	c := fleetdb.Changes{Rev: rev}
	for i := range n {
		c.VMs = append(c.VMs, fleetdb.VM{Key: fleetdb.Key{Plan: "p", VM: fmt.Sprintf("vm-%d", i)}, Rev: rev})
	}
	return c
}

// One client that does not read is lost. The others are told everything, and tell never waits:
// if it did, this test would not end.
func TestAClientThatDoesNotReadIsLost(t *testing.T) {
	h := newTestHub()
	deaf, _, _, _ := h.addListener("", -1)
	reads, _, _, _ := h.addListener("", -1)
	for rev := int64(1); rev <= maxQueued+5; rev++ {
		h.sendChanges(change(rev, 1))
		if frames := <-reads.queue; frames[0].rev != rev {
			t.Fatalf("told %d, want %d", frames[0].rev, rev)
		}
	}
	select {
	case <-deaf.lost:
	default:
		t.Fatal("a client that reads nothing is kept")
	}
	if h.clientCount() != 1 {
		t.Errorf("%d clients", h.clientCount())
	}
	h.removeListener(deaf) // as its connection does
	h.removeListener(reads)
	if h.clientCount() != 0 {
		t.Errorf("%d clients are left", h.clientCount())
	}
}

func TestTheRingSaysWhetherItHasEverything(t *testing.T) {
	h := newTestHub()
	for rev := int64(1); rev <= 3*ringFrames; rev++ {
		h.sendChanges(change(rev, 1))
	}
	if len(h.ring) != ringFrames {
		t.Errorf("%d frames", len(h.ring))
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

func TestTheRingIsBoundedInRowsToo(t *testing.T) {
	h := newTestHub()
	for rev := int64(1); rev <= 30; rev++ {
		h.sendChanges(change(rev, 2000))
	}
	if rows := len(h.ring) * 2000; rows > ringRows || len(h.ring) == 0 || h.from != h.ring[0].rev-1 {
		t.Errorf("%d rows, from %d", rows, h.from)
	}
}

func TestClientsAreCounted(t *testing.T) {
	h := newTestHub()
	for range maxClients {
		if l, _, _, _ := h.addListener("", -1); l == nil {
			t.Fatal("refused too early")
		}
	}
	if l, _, _, _ := h.addListener("", -1); l != nil {
		t.Error("one too many")
	}
}

func TestTroubleIsToldUntilItIsOver(t *testing.T) {
	h := newTestHub()
	l, _, _, _ := h.addListener("", -1)
	h.reportTrouble(errors.New("gone"))
	h.reportTrouble(errors.New("gone"))
	h.reportRecovery()
	h.reportRecovery()
	for _, want := range []string{`{"text":"gone"}`, `{"text":"gone"}`, `{"text":""}`} {
		if text := string((<-l.queue)[0].textFor("p")); text != "event: trouble\ndata: "+want+"\n\n" {
			t.Errorf("told %q, want %s", text, want)
		}
	}
	if len(l.queue) != 0 {
		t.Error("told that all is well without trouble before")
	}
}

// The text of a frame is made once for all who are told the same.
func TestFramesAreEncodedOnce(t *testing.T) {
	f := changesFrame(change(7, 2))
	one, two := f.textFor("p"), f.textFor("p")
	if &one[0] != &two[0] {
		t.Error("made twice")
	}
	if text := string(one); !strings.HasPrefix(text, "event: changes\nid: 7\ndata: {") || !strings.HasSuffix(text, "}\n\n") || strings.Count(text, "\n") != 4 {
		t.Errorf("text %q", text)
	}
	if f.textFor("q") != nil {
		t.Error("told to those of another plan")
	}
}

func TestOnlyWhatWentOnIsTold(t *testing.T) {
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
		t.Errorf("first %v", frames)
	}
	if frames := b.changedFrames(at(1)); len(frames) != 0 {
		t.Errorf("nothing went on, but %s", frames[0].textFor(""))
	}
	if frames := b.changedFrames(at(2)); len(frames) != 1 || strings.Count(string(frames[0].textFor("")), `"vm"`) != 1 {
		t.Error("what went on is not told alone")
	}
}
