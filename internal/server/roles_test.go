package server_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/server"
)

// operations has the lowest role and an example request of each operation.
var operations = map[string]struct {
	role server.Role
	path string
	body string
}{
	"listPlans":         {server.View, "/v1/plans", ""},
	"submitPlan":        {server.Operate, "/v1/plans", servertestPlan},
	"checkPlan":         {server.Operate, "/v1/plan-checks", servertestPlan},
	"listNotifications": {server.View, "/v1/notifications", ""},
	"getPlan":           {server.View, "/v1/plans/p", ""},
	"dropPlan":          {server.Admin, "/v1/plans/p", ""},
	"commandPlan":       {server.Operate, "/v1/plans/p/commands", `{"command":"pause"}`},
	"listVMs":           {server.View, "/v1/plans/p/vms?state=queued&limit=2", ""},
	"getVM":             {server.View, "/v1/plans/p/vms/vm-1", ""},
	"commandVM":         {server.Operate, "/v1/plans/p/vms/vm-1/commands", `{"command":"pause"}`},
	"listCredentials":   {server.Operate, "/v1/credentials", ""},
	"listPlaces":        {server.Operate, "/v1/places", ""},
	"listRehearsals":    {server.View, "/v1/plans/p/vms/vm-1/rehearsals", ""},
	"rehearseVM":        {server.Operate, "/v1/plans/p/vms/vm-1/rehearsals/r-1", `{"expect":"up"}`},
	"takeBackRehearsal": {server.Operate, "/v1/plans/p/vms/vm-1/rehearsals/r-1", ""},
	"listProgress":      {server.View, "/v1/progress", ""},
	"listLimits":        {server.View, "/v1/limits", ""},
	"setLimits":         {server.Operate, "/v1/limits", `{"limits":[{"name":"host:esx1/vms","units":4}]}`},
	"listWorkers":       {server.View, "/v1/workers", ""},
	"drainWorker":       {server.Admin, "/v1/workers/w1/drain", `{"drain":true}`},
	"getScheduler":      {server.View, "/v1/scheduler", ""},
	"listAudit":         {server.Admin, "/v1/audit", ""},
	"followEvents":      {server.View, "/v1/events", ""},
}

const servertestPlan = "version: 1\nname: q\nsource:\n  url: esxi://root@esx1.example.com\n  credentials: {name: esx1}\ndefaults:\n  to: [dir:/srv/vm]\nselect: poweredOn\n"

// document is the part of the OpenAPI document that the test reads.
type document struct {
	OpenAPI string                          `json:"openapi"`
	Paths   map[string]map[string]operation `json:"paths"`
}

type operation struct {
	ID   string   `json:"operationId"`
	Tags []string `json:"tags"`
}

func (r *testServer) openAPIDocument() (d document) {
	r.t.Helper()
	a := r.sendAs(server.Nobody, "GET", "/openapi.json", "")
	if a.status != http.StatusOK {
		r.t.Fatalf("the OpenAPI document: status %d", a.status)
	}
	a.decodeJSON(r.t, &d)
	if d.OpenAPI != "3.1.0" {
		r.t.Errorf("got OpenAPI version %q, want 3.1.0", d.OpenAPI)
	}
	return d
}

func TestEveryRouteRequiresItsRole(t *testing.T) {
	r := newTestServer(t, nil)
	r.addPlan("p", 2)
	seen := 0
	for _, methods := range r.openAPIDocument().Paths {
		for method, op := range methods {
			want, known := operations[op.ID]
			if !known {
				t.Errorf("operation %s: add it to operations", op.ID)
				continue
			}
			seen++
			if !slices.Contains(op.Tags, string(want.role)) {
				t.Errorf("the tags of %s are %v, want role %s", op.ID, op.Tags, want.role)
			}
			for _, role := range []server.Role{server.Nobody, server.View, server.Operate, server.Admin} {
				r.tryRole(op.ID, strings.ToUpper(method), role)
			}
		}
	}
	if seen != len(operations) {
		t.Errorf("the document has %d of %d operations", seen, len(operations))
	}
}

// tryRole sends a request of an operation. If the server refuses it, the audit trail must have an entry.
func (r *testServer) tryRole(id, method string, role server.Role) {
	r.t.Helper()
	want := operations[id]
	if id == "followEvents" && role.May(want.role) {
		method = http.MethodHead // the stream does not end
	}
	a := r.sendAs(role, method, want.path, want.body)
	switch {
	case role == server.Nobody && a.status != http.StatusUnauthorized,
		role != server.Nobody && !role.May(want.role) && a.status != http.StatusForbidden:
		r.t.Errorf("%s as %q: %d", id, role, a.status)
	case role.May(want.role):
		if a.status/100 != 2 && a.status != http.StatusConflict {
			r.t.Errorf("%s as %q: %d %s", id, role, a.status, a.body)
		}
		return
	}
	r.wantProblem(a, "denied")
	path, _, _ := strings.Cut(want.path, "?")
	if e := r.auditEntries(1); role != server.Nobody && (len(e) == 0 || e[0].Role != string(role) || e[0].On != path || e[0].Err == "" || e[0].User != "test-"+string(role)) {
		r.t.Errorf("%s as %q: the audit trail has %+v", id, role, e)
	}
}

// wantProblem checks that a response is a problem of that kind.
func (r *testServer) wantProblem(a response, kind string) server.Problem {
	r.t.Helper()
	var p server.Problem
	a.decodeJSON(r.t, &p)
	if got := a.header.Get("Content-Type"); got != "application/problem+json" || p.Kind != kind || p.Status != a.status || p.Detail == "" {
		r.t.Errorf("got problem %+v as %s, want kind %s", p, got, kind)
	}
	return p
}

// Pages and other routes outside the document require their role.
func TestUndocumentedRoutesRequireTheirRole(t *testing.T) {
	r := newTestServer(t, nil)
	r.addPlan("p", 1)
	for path, want := range map[string]int{
		"/metrics": http.StatusUnauthorized, "/": http.StatusSeeOther, "/plans/p": http.StatusSeeOther,
		"/healthz": http.StatusOK, "/readyz": http.StatusOK, "/login": http.StatusOK, "/static/live.js": http.StatusOK,
		"/static/": http.StatusNotFound, "/v1": http.StatusNotFound, "/v1/nothing": http.StatusNotFound, "/docs": http.StatusNotFound,
	} {
		if a := r.sendAs(server.Nobody, "GET", path, ""); a.status != want {
			t.Errorf("GET %s: %d, want %d", path, a.status, want)
		}
	}
	for _, path := range []string{"/plans/p/commands", "/plans/p/vms/vm-1/commands"} {
		if a := r.sendAs(server.View, "POST", path, ""); a.status != http.StatusForbidden {
			t.Errorf("POST %s as view: %d", path, a.status)
		}
		if a := r.sendAs(server.Nobody, "POST", path, ""); a.status != http.StatusUnauthorized {
			t.Errorf("POST %s without a token: %d", path, a.status)
		}
	}
}
