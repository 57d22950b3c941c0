package journal

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// A rehearsal stands until it is answered or taken back, one at a time, and each is noticed.
func TestRehearsalsStandUntilTheyAreAnswered(t *testing.T) {
	dir := t.TempDir()
	s := NewStore(dir)
	p := testPlan(t, "esxi://root@esx1", "web01", "dir:/srv/vm")
	ask := Rehearsal{ID: "1", Expect: "up", Deadline: time.Minute}
	if err := s.AskRehearsal(p.ID, ask); !fault.Is(err, fault.NotFound) {
		t.Errorf("of a run that is not there: %v", err)
	}
	if _, err := s.Create(p); err != nil {
		t.Fatal(err)
	}
	mark := s.CommandMark()
	changed := func(what string, err error) {
		t.Helper()
		now := s.CommandMark()
		if err != nil || now == mark {
			t.Errorf("%s: %v, noticed %v", what, err, now != mark)
		}
		mark = now
	}
	stands := func(want *Rehearsal) {
		t.Helper()
		got, err := s.Rehearsal(p.ID)
		if err != nil || (got == nil) != (want == nil) || want != nil && *got != *want {
			t.Errorf("asked is %+v, %v, not %+v", got, err, want)
		}
	}
	stands(nil)
	changed("ask", s.AskRehearsal(p.ID, ask))
	stands(&ask)
	if err := s.AskRehearsal(p.ID, Rehearsal{ID: "2"}); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
		t.Errorf("a second one: %v", err)
	}
	if err := s.TakeBack(p.ID, "2"); err != nil {
		t.Error(err)
	}
	stands(&ask)
	changed("take back", s.TakeBack(p.ID, "1"))
	stands(nil)
	changed("ask again", s.AskRehearsal(p.ID, ask))
	changed("answer", s.AnswerRehearsal(p.ID, Rehearsed{Rehearsal: ask, Report: json.RawMessage(`{"verdict":"booted"}`)}))
	stands(nil)
	if r, err := s.Rehearsed(p.ID); err != nil || r == nil || r.ID != "1" || r.Report == nil || r.Failure != nil {
		t.Errorf("answered %+v, %v", r, err)
	}
	if o, err := s.Command(p.ID); o != GoOn || err != nil {
		t.Errorf("the order became %q, %v", o, err)
	}
	torn := filepath.Join(s.Folder(p.ID), rehearsalFile)
	if err := os.WriteFile(torn, []byte(`{"id":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Rehearsal(p.ID); !fault.Is(err, fault.Corrupt) || fault.HintOf(err) == "" {
		t.Errorf("a torn one: %v", err)
	}
}
