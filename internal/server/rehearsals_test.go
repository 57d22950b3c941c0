package server_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/server"
	"github.com/decamp/decamp/internal/server/servertest"
)

// A rehearsal is asked for by its name, seen until it is answered and after, and taken back.
func TestRehearsalsAreAskedForByName(t *testing.T) {
	r := newRig(t, nil)
	r.plan("p", 2)
	const all = "/v1/plans/p/vms/vm-1/rehearsals"
	if a := r.ask(server.Operate, "PUT", all+"/r-1", `{}`); a.status != http.StatusConflict || r.wantProblem(a, "conflict").Remedy == "" {
		t.Errorf("nobody drives it: %d %s", a.status, a.body)
	}
	claims := r.running("p", 1)
	seen := func(want ...string) (items []fleetdb.Rehearsed) {
		t.Helper()
		var list struct{ Items []fleetdb.Rehearsed }
		r.ask(server.View, "GET", all, "").into(t, &list)
		var names []string
		for _, item := range list.Items {
			names = append(names, item.ID)
		}
		if !slices.Equal(names, want) {
			t.Fatalf("seen %v, want %v", names, want)
		}
		return list.Items
	}
	seen()
	for range 2 {
		if a := r.ask(server.Operate, "PUT", all+"/r-1", `{"expect":"up","deadline":60000000000}`); a.status != http.StatusNoContent {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	if it := seen("r-1")[0]; it.Expect != "up" || it.Deadline != time.Minute || it.Worker != servertest.Worker || !it.Ended.IsZero() {
		t.Errorf("it stands as %+v", it)
	}
	if e := r.audit(1)[0]; e.Action != "rehearse" || e.On != "p/vm-1" || e.Err != "" {
		t.Errorf("noted %+v", e)
	}
	if a := r.ask(server.Operate, "PUT", all+"/r-2", `{}`); a.status != http.StatusConflict {
		t.Errorf("a second one: %d %s", a.status, a.body)
	}
	r.must(r.Database.Rehearsals.Answer(t.Context(), claims[0], fleetdb.Rehearsed{
		Rehearsal: fleetdb.Rehearsal{ID: "r-1"}, Report: json.RawMessage(`{"verdict":"booted"}`), Tail: "login:",
	}))
	if it := seen("r-1")[0]; it.Ended.IsZero() || string(it.Report) != `{"verdict":"booted"}` || it.Tail != "login:" {
		t.Errorf("it ended as %+v", it)
	}
	if a := r.ask(server.Operate, "PUT", all+"/r-2", `{}`); a.status != http.StatusNoContent {
		t.Errorf("the next one: %d %s", a.status, a.body)
	}
	seen("r-2", "r-1")
	if a := r.ask(server.Operate, "DELETE", all+"/r-2", ""); a.status != http.StatusNoContent {
		t.Errorf("taken back: %d %s", a.status, a.body)
	}
	seen("r-1")
	for _, body := range []string{`{"deadline":-1}`, `{"deadline":86400000000001}`, `{"id":"x"}`} {
		if a := r.ask(server.Operate, "PUT", all+"/r-3", body); a.status != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
}
