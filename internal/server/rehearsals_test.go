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

// A client requests a rehearsal by its ID. The list contains it before and after the worker answers, until the
// client takes it back.
func TestRehearsalsHaveAnID(t *testing.T) {
	r := newTestServer(t, nil)
	r.addPlan("p", 2)
	const all = "/v1/plans/p/vms/vm-1/rehearsals"
	if a := r.sendAs(server.Operate, "PUT", all+"/r-1", `{}`); a.status != http.StatusConflict || r.wantProblem(a, "conflict").Remedy == "" {
		t.Errorf("a VM that does not run: %d %s", a.status, a.body)
	}
	claims := r.runVMs("p", 1)
	wantRehearsals := func(want ...string) (items []fleetdb.Rehearsed) {
		t.Helper()
		var list struct{ Items []fleetdb.Rehearsed }
		r.sendAs(server.View, "GET", all, "").decodeJSON(t, &list)
		var names []string
		for _, item := range list.Items {
			names = append(names, item.ID)
		}
		if !slices.Equal(names, want) {
			t.Fatalf("got rehearsals %v, want %v", names, want)
		}
		return list.Items
	}
	wantRehearsals()
	for range 2 {
		if a := r.sendAs(server.Operate, "PUT", all+"/r-1", `{"expect":"up","deadline":60000000000}`); a.status != http.StatusNoContent {
			t.Fatalf("got status %d, body %s", a.status, a.body)
		}
	}
	if it := wantRehearsals("r-1")[0]; it.Expect != "up" || it.Deadline != time.Minute || it.Worker != servertest.Worker || !it.Ended.IsZero() {
		t.Errorf("the requested rehearsal is %+v", it)
	}
	if e := r.auditEntries(1)[0]; e.Action != "rehearse" || e.On != "p/vm-1" || e.Err != "" {
		t.Errorf("the audit trail has %+v", e)
	}
	if a := r.sendAs(server.Operate, "PUT", all+"/r-2", `{}`); a.status != http.StatusConflict {
		t.Errorf("a second rehearsal: %d %s", a.status, a.body)
	}
	r.must(r.Database.Rehearsals.Answer(t.Context(), claims[0], fleetdb.Rehearsed{
		Rehearsal: fleetdb.Rehearsal{ID: "r-1"}, Report: json.RawMessage(`{"verdict":"booted"}`), Tail: "login:",
	}))
	if it := wantRehearsals("r-1")[0]; it.Ended.IsZero() || string(it.Report) != `{"verdict":"booted"}` || it.Tail != "login:" {
		t.Errorf("the answered rehearsal is %+v", it)
	}
	if a := r.sendAs(server.Operate, "PUT", all+"/r-2", `{}`); a.status != http.StatusNoContent {
		t.Errorf("a rehearsal after the answer: %d %s", a.status, a.body)
	}
	wantRehearsals("r-2", "r-1")
	if a := r.sendAs(server.Operate, "DELETE", all+"/r-2", ""); a.status != http.StatusNoContent {
		t.Errorf("the removal of a rehearsal: %d %s", a.status, a.body)
	}
	wantRehearsals("r-1")
	for _, body := range []string{`{"deadline":-1}`, `{"deadline":86400000000001}`, `{"id":"x"}`} {
		if a := r.sendAs(server.Operate, "PUT", all+"/r-3", body); a.status != http.StatusUnprocessableEntity {
			t.Errorf("%s: got status %d, body %s", body, a.status, a.body)
		}
	}
}
