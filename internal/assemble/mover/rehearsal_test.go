package mover

import (
	"encoding/json"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
)

// A worker that restarts forgets the rehearsal that was requested before, and executes the new request. It reports a
// finished rehearsal again. A rehearsal that a local command requested is kept.
func TestRestartedWorkerGetsRehearsalRequestAgain(t *testing.T) {
	source := &url.URL{Scheme: "esxi", Host: "esx1"}
	p := journal.New(source, &inventory.VM{Ref: "42", Name: "web1", UUID: "u", InstanceUUID: "i"}, "dir:/srv/vm", "raw", "https", time.Unix(1_800_000_000, 0))
	p.Warm = true
	row := fleetdb.VM{Runs: []string{string(p.ID)}, Warm: true}
	dir := t.TempDir()
	serial := filepath.Join(dir, "serial.log")
	if err := os.WriteFile(serial, []byte("login:"), 0o600); err != nil {
		t.Fatal(err)
	}
	var driver recordingDriver
	restart := func() *Mover {
		m := New(&assemble.Assembler{Prompts: assemble.Prompts{Log: slog.New(slog.DiscardHandler)}})
		m.store = journal.NewStore(dir)
		if err := m.restoreOrder(&assemble.Parts{To: []*assemble.Destination{{Plan: p}}}, fleetdb.GoOn); err != nil {
			t.Fatal(err)
		}
		m.events[p.ID] = newRunEvents(row, &driver)
		return m
	}
	wantRehearsal := func(m *Mover, want string) {
		t.Helper()
		if r, err := m.store.Rehearsal(p.ID); err != nil || (r == nil) != (want == "") || r != nil && r.ID != want {
			t.Errorf("got rehearsal %+v, %v, want %q", r, err, want)
		}
	}
	m := restart()
	rehearse := func(id string) {
		t.Helper()
		if err := m.Rehearse(row, fleetdb.Rehearsal{ID: id}); err != nil {
			t.Error(err)
		}
	}
	rehearse("1")
	rehearse("1")
	wantRehearsal(m, "1")
	m = restart()
	wantRehearsal(m, "")
	rehearse("2")
	err := m.store.AnswerRehearsal(p.ID, journal.Rehearsed{Rehearsal: journal.Rehearsal{ID: "2"}, Report: json.RawMessage(`{"verdict":"booted","serial":"` + serial + `"}`)})
	if err != nil {
		t.Fatal(err)
	}
	m = restart()
	rehearse("2")
	wantRehearsal(m, "")
	if driver.rehearsed.ID != "2" || driver.rehearsed.Tail != "login:" || driver.rehearsed.Report == nil {
		t.Errorf("got report %+v", driver.rehearsed)
	}
	if err := m.store.AskRehearsal(p.ID, journal.Rehearsal{ID: "here"}); err != nil {
		t.Fatal(err)
	}
	m = restart()
	wantRehearsal(m, "here")
	if err := m.Rehearse(row, fleetdb.Rehearsal{ID: "3"}); !fault.Is(err, fault.Conflict) {
		t.Errorf("a second rehearsal: %v", err)
	}
	if err := m.TakeBack(row, "here"); err != nil {
		t.Error(err)
	}
	wantRehearsal(m, "")
}

func TestTailOfASerialLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "serial.log")
	for text, want := range map[string]string{
		"":                        "",
		"one\ntwo\n":              "one\ntwo\n",
		"\xff one line":           "? one line",
		strings.Repeat("x", 9000): strings.Repeat("x", tailBytes),
		"lost\n" + strings.Repeat("a", tailBytes) + "\nthe end\n": "the end\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := tailOf(path); got != want {
			t.Errorf("tail of %.20q…: got %.20q…, want %.20q…", text, got, want)
		}
	}
	if got := tailOf(path + "s"); got != "" {
		t.Errorf("tail of a missing file: got %q", got)
	}
}
