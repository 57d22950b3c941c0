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

// A worker that was killed while it was asked, and comes back, does what stands then and not what stood
// before; what it did already it says again. What somebody asked for on its machine stands.
func TestAWorkerThatComesBackIsAskedAnew(t *testing.T) {
	source := &url.URL{Scheme: "esxi", Host: "esx1"}
	p := journal.New(source, &inventory.VM{Ref: "42", Name: "web1", UUID: "u", InstanceUUID: "i"}, "dir:/srv/vm", "raw", "https", time.Unix(1_800_000_000, 0))
	p.Warm = true
	row := fleetdb.VM{Runs: []string{string(p.ID)}, Warm: true}
	dir := t.TempDir()
	serial := filepath.Join(dir, "serial.log")
	if err := os.WriteFile(serial, []byte("login:"), 0o600); err != nil {
		t.Fatal(err)
	}
	var to heard
	comes := func() *Mover {
		m := New(&assemble.Assembler{Prompts: assemble.Prompts{Log: slog.New(slog.DiscardHandler)}})
		m.store = journal.NewStore(dir)
		if err := m.restoreOrder(&assemble.Parts{To: []*assemble.Destination{{Plan: p}}}, fleetdb.GoOn); err != nil {
			t.Fatal(err)
		}
		m.events[p.ID] = newRunEvents(row, &to)
		return m
	}
	stands := func(m *Mover, want string) {
		t.Helper()
		if r, err := m.store.Rehearsal(p.ID); err != nil || (r == nil) != (want == "") || r != nil && r.ID != want {
			t.Errorf("it stands %+v, %v, want %q", r, err, want)
		}
	}
	m := comes()
	asks := func(id string) {
		t.Helper()
		if err := m.Rehearse(row, fleetdb.Rehearsal{ID: id}); err != nil {
			t.Error(err)
		}
	}
	asks("1")
	asks("1")
	stands(m, "1")
	m = comes()
	stands(m, "")
	asks("2")
	err := m.store.AnswerRehearsal(p.ID, journal.Rehearsed{Rehearsal: journal.Rehearsal{ID: "2"}, Report: json.RawMessage(`{"verdict":"booted","serial":"` + serial + `"}`)})
	if err != nil {
		t.Fatal(err)
	}
	m = comes()
	asks("2")
	stands(m, "")
	if to.rehearsed.ID != "2" || to.rehearsed.Tail != "login:" || to.rehearsed.Report == nil {
		t.Errorf("told %+v", to.rehearsed)
	}
	if err := m.store.AskRehearsal(p.ID, journal.Rehearsal{ID: "here"}); err != nil {
		t.Fatal(err)
	}
	m = comes()
	stands(m, "here")
	if err := m.Rehearse(row, fleetdb.Rehearsal{ID: "3"}); !fault.Is(err, fault.Conflict) {
		t.Errorf("while another stands: %v", err)
	}
	if err := m.TakeBack(row, "here"); err != nil {
		t.Error(err)
	}
	stands(m, "")
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
			t.Errorf("of %.20q…: %.20q…, want %.20q…", text, got, want)
		}
	}
	if got := tailOf(path + "s"); got != "" {
		t.Errorf("of no file: %q", got)
	}
}
