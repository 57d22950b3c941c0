package journal

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

var began = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

func testPlan(t *testing.T, source, name, target string) Plan {
	t.Helper()
	u, err := url.Parse(source)
	if err != nil {
		t.Fatal(err)
	}
	vm := &inventory.VM{Ref: "42", Name: name, UUID: "4203-u", InstanceUUID: "5203-i"}
	return New(u, vm, target, "raw", "https", began)
}

func TestIDIsReadableAndDeterministic(t *testing.T) {
	a := testPlan(t, "esxi://root@esx1", "web01", "dir:/srv/vm")
	if a.ID != "web01-d22d30" {
		t.Errorf("id %s changed: decamp would not find unfinished runs", a.ID)
	}
	if b := testPlan(t, "esxi://other@ESX1", "web01", "dir:/srv/vm"); b.ID != a.ID {
		t.Errorf("id %s differs with another user", b.ID)
	}
	for _, other := range []Plan{
		testPlan(t, "esxi://root@esx2", "web01", "dir:/srv/vm"),
		testPlan(t, "esxi://root@esx1", "web01", "dir:/srv/vm2"),
	} {
		if other.ID == a.ID {
			t.Errorf("%s to %s has the same id", other.Source, other.Target)
		}
	}
}

func TestIDsAreFileNames(t *testing.T) {
	for name, want := range map[string]string{
		"Web 01": "web-01-", "größe/%2f+*": "gr-e-2f-", "": "vm-", "日本": "vm-", "../../etc": "etc-",
		strings.Repeat("x", 300): strings.Repeat("x", 40) + "-",
	} {
		id := string(testPlan(t, "esxi://h", name, "dir:/x").ID)
		if !strings.HasPrefix(id, want) || len(id) != len(want)+6 || filepath.Base(id) != id {
			t.Errorf("id of %q is %q, want %s and six digits", name, id, want)
		}
	}
}

func TestPlanHoldsNoPassword(t *testing.T) {
	s := NewStore(t.TempDir())
	p, err := s.Create(testPlan(t, "esxi://root:s3cr%65t@esx1", "web01", "dir:/srv/vm"))
	if err != nil || p.Source != "esxi://root@esx1" {
		t.Fatalf("source %q, %v", p.Source, err)
	}
	text, err := os.ReadFile(s.filePath(p.ID, "plan.json"))
	if err != nil || strings.Contains(string(text), "s3cr") {
		t.Fatalf("plan.json: %s, %v", text, err)
	}
}

func TestCreateReturnsSamePlanAndRefusesOther(t *testing.T) {
	s := NewStore(t.TempDir())
	first := testPlan(t, "esxi://root@esx1", "web01", "dir:/srv/vm")
	if _, err := s.Create(first); err != nil {
		t.Fatal(err)
	}
	again := first
	again.Created = began.Add(time.Hour)
	if got, err := s.Create(again); err != nil || !reflect.DeepEqual(got, first) {
		t.Fatalf("got %+v, %v", got, err)
	}
	other := first
	other.Format = "qcow2"
	if _, err := s.Create(other); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
		t.Fatalf("another format: %v", err)
	}
	other = first
	other.GuestAgent = true
	if _, err := s.Create(other); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
		t.Fatalf("with an agent: %v", err)
	}
}

func TestNewerAndDamagedPlansAreRefused(t *testing.T) {
	if _, err := parsePlan([]byte(`{"version": 2}`)); !fault.Is(err, fault.Unsupported) {
		t.Errorf("newer: %v", err)
	}
	if _, err := parsePlan([]byte(`{"version":`)); !fault.Is(err, fault.Corrupt) {
		t.Errorf("damaged: %v", err)
	}
}

// sampleEvents returns the events of a run that crashed, failed, and completed.
func sampleEvents(id ID) []Event {
	at := func(s int) time.Time { return began.Add(time.Duration(s) * time.Second) }
	return []Event{
		{Time: at(0), Run: id, Kind: RunStarted},
		{Time: at(1), Run: id, Kind: StepStarted, Step: "copy"},
		{Time: at(2), Run: id, Kind: RunStarted},
		{Time: at(3), Run: id, Kind: RunFailed, Failure: &Failure{Kind: "full", Text: "no space", Hint: "free 3 GiB"}},
		{Time: at(4), Run: id, Kind: RunStarted},
		{Time: at(5), Run: id, Kind: StepStarted, Step: "commit"},
		{Time: at(6), Run: id, Kind: Summarized, Stages: []StageTime{{Name: "copy", Bytes: 7, Elapsed: time.Second}}},
		{Time: at(7), Run: id, Kind: RunDone},
	}
}

func TestRunStateFollowsTheJournal(t *testing.T) {
	s := NewStore(t.TempDir())
	p, err := s.Create(testPlan(t, "esxi://root@esx1", "web01", "dir:/srv/vm"))
	if err != nil {
		t.Fatal(err)
	}
	j, err := s.Journal(p.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	states := []State{Open, Open, Open, Failed, Open, Open, Open, Done}
	for i, e := range append(sampleEvents(p.ID), Event{Kind: Progressed}) {
		if err := j.Append(e); err != nil {
			t.Fatal(err)
		}
		r, err := s.Run(p.ID)
		if want := states[min(i, len(states)-1)]; err != nil || r.State != want {
			t.Fatalf("after event %d: %s, %v; want %s", i, r.State, err, want)
		}
		if (r.Failure != nil) != (r.State == Failed) {
			t.Fatalf("after event %d: failure %v", i, r.Failure)
		}
	}
	r, _ := s.Run(p.ID)
	if r.Starts != 3 || r.Step != "commit" || len(r.Stages) != 1 || !r.Began.Equal(began) {
		t.Fatalf("run %+v", r)
	}
	if events, err := s.Events(p.ID); err != nil || !reflect.DeepEqual(events, sampleEvents(p.ID)) {
		t.Fatalf("events %+v, %v", events, err)
	}
}

func TestTornJournalAtEveryByte(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.jsonl")
	j, err := OpenJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	all := sampleEvents("r1")
	for _, e := range all {
		if err := j.Append(e); err != nil {
			t.Fatal(err)
		}
	}
	j.Close()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(text) + 1 {
		whole := strings.Count(string(text[:n]), "\n")
		if err := os.WriteFile(path, text[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadJournal(path); err != nil || len(got) != whole {
			t.Fatalf("cut at %d: %d events, %v; want %d", n, len(got), err, whole)
		}
		j, err := OpenJournal(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Append(all[0]); err != nil {
			t.Fatal(err)
		}
		j.Close()
		if got, err := ReadJournal(path); err != nil || len(got) != whole+1 {
			t.Fatalf("cut at %d and appended: %d events, %v", n, len(got), err)
		}
	}
}

// If the file system fills up while a line is written, the next append removes the incomplete line.
func TestJournalAppendAfterFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.jsonl")
	j, err := OpenJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	first := sampleEvents("r1")[0]
	if err := j.Append(first); err != nil {
		t.Fatal(err)
	}
	whole, err := os.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer whole.Close()
	good := j.f
	j.f = whole // writes to it fail
	if err := j.Append(first); err == nil {
		t.Fatal("append to a read-only file succeeded")
	}
	j.f = good
	if _, err := j.f.WriteAt([]byte(`{"kind":"the beginning of a line`+strings.Repeat(" and on", 99)), j.size); err != nil {
		t.Fatal(err)
	}
	if err := j.Append(first); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadJournal(path); err != nil || len(got) != 2 {
		t.Errorf("%d events, %v; want 2", len(got), err)
	}
}

// Garbage after the last event, also complete lines of it, is ignored, and the next event replaces it.
func TestGarbageAfterJournalIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.jsonl")
	if err := os.WriteFile(path, []byte("{}\n\x00\x00\n}\n{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want := 1; want < 4; want++ {
		if got, err := ReadJournal(path); err != nil || len(got) != want {
			t.Fatalf("%d events, %v; want %d", len(got), err, want)
		}
		j, err := OpenJournal(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(j.Append(sampleEvents("r1")[0]), j.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDamagedJournalIsCorrupt(t *testing.T) {
	if _, err := parseJournal([]byte("{}\n\x00\x00\n{}\n")); !fault.Is(err, fault.Corrupt) {
		t.Fatalf("got %v", err)
	}
}

func TestInvalidIDsAreRefused(t *testing.T) {
	s := NewStore(t.TempDir())
	for _, id := range []ID{"", ".", "..", "../x", "a/b", "/etc"} {
		if _, err := s.Run(id); !fault.Is(err, fault.Invalid) {
			t.Errorf("run %q: %v", id, err)
		}
		if err := s.Remove(id); !fault.Is(err, fault.Invalid) {
			t.Errorf("remove %q: %v", id, err)
		}
	}
}

func TestRunsAndRemove(t *testing.T) {
	s := NewStore(t.TempDir())
	if runs, err := s.Runs(); err != nil || len(runs) != 0 {
		t.Fatalf("empty store: %v, %v", runs, err)
	}
	var ids []ID
	for _, name := range []string{"b", "a"} {
		p, err := s.Create(testPlan(t, "esxi://h", name, "dir:/x/"+name))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, p.ID)
	}
	runs, err := s.Runs()
	if err != nil || len(runs) != 2 || runs[0].Plan.ID != ids[1] || runs[0].State != Planned {
		t.Fatalf("runs %+v, %v", runs, err)
	}
	if err := s.Remove(ids[1]); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Run(ids[1]); !fault.Is(err, fault.NotFound) {
		t.Fatalf("removed run: %v", err)
	}
}

func FuzzJournal(f *testing.F) {
	f.Add([]byte(`{"time":"2026-11-21T10:00:00Z","run":"r1","kind":"run-started"}` + "\n"))
	f.Add([]byte("{}\n{"))
	f.Add([]byte("\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		events, err := parseJournal(text)
		if err != nil && !fault.Is(err, fault.Corrupt) {
			t.Fatalf("kind %v", fault.KindOf(err))
		}
		newRun(Plan{}, events)
	})
}

func FuzzPlan(f *testing.F) {
	f.Add([]byte(`{"version":1,"id":"web01-d22d30","vm":{"ref":"42"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if p, err := parsePlan(text); err == nil && p.Version != version {
			t.Fatalf("accepted version %d", p.Version)
		}
	})
}
