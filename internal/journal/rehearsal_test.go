package journal

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// A rehearsal remains requested until it is answered or taken back. There is one at a time, and each change updates
// the command mark.
func TestRehearsalRequestRemainsUntilAnswered(t *testing.T) {
	dir := t.TempDir()
	s := NewStore(dir)
	p := testPlan(t, "esxi://root@esx1", "web01", "dir:/srv/vm")
	request := Rehearsal{ID: "1", Expect: "up", Deadline: time.Minute}
	if err := s.AskRehearsal(p.ID, request); !fault.Is(err, fault.NotFound) {
		t.Errorf("request for a missing run: %v", err)
	}
	if _, err := s.Create(p); err != nil {
		t.Fatal(err)
	}
	mark := s.CommandMark()
	checkChanged := func(op string, err error) {
		t.Helper()
		now := s.CommandMark()
		if err != nil || now == mark {
			t.Errorf("%s: %v, mark changed: %v", op, err, now != mark)
		}
		mark = now
	}
	checkRequest := func(want *Rehearsal) {
		t.Helper()
		got, err := s.Rehearsal(p.ID)
		if err != nil || (got == nil) != (want == nil) || want != nil && *got != *want {
			t.Errorf("request %+v, %v; want %+v", got, err, want)
		}
	}
	checkRequest(nil)
	checkChanged("request", s.AskRehearsal(p.ID, request))
	checkRequest(&request)
	if err := s.AskRehearsal(p.ID, Rehearsal{ID: "2"}); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
		t.Errorf("second request: %v", err)
	}
	if err := s.TakeBack(p.ID, "2"); err != nil {
		t.Error(err)
	}
	checkRequest(&request)
	checkChanged("take back", s.TakeBack(p.ID, "1"))
	checkRequest(nil)
	checkChanged("request again", s.AskRehearsal(p.ID, request))
	checkChanged("answer", s.AnswerRehearsal(p.ID, Rehearsed{Rehearsal: request, Report: json.RawMessage(`{"verdict":"booted"}`)}))
	checkRequest(nil)
	if r, err := s.Rehearsed(p.ID); err != nil || r == nil || r.ID != "1" || r.Report == nil || r.Failure != nil {
		t.Errorf("answer %+v, %v", r, err)
	}
	if o, err := s.Command(p.ID); o != GoOn || err != nil {
		t.Errorf("command %q, %v; want %q", o, err, GoOn)
	}
	torn := filepath.Join(s.Folder(p.ID), rehearsalFile)
	if err := os.WriteFile(torn, []byte(`{"id":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Rehearsal(p.ID); !fault.Is(err, fault.Corrupt) || fault.HintOf(err) == "" {
		t.Errorf("torn request: %v", err)
	}
}
