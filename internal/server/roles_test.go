package server_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/server"
)

// takes says which role each operation takes, and shows a request of it.
var takes = map[string]struct {
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

// document is what the test needs of the OpenAPI document.
type document struct {
	OpenAPI string                          `json:"openapi"`
	Paths   map[string]map[string]operation `json:"paths"`
}

type operation struct {
	ID   string   `json:"operationId"`
	Tags []string `json:"tags"`
}

func (r *rig) document() (d document) {
	r.t.Helper()
	a := r.ask(server.Nobody, "GET", "/openapi.json", "")
	if a.status != http.StatusOK {
		r.t.Fatalf("document: %d", a.status)
	}
	a.into(r.t, &d)
	if d.OpenAPI != "3.1.0" {
		r.t.Errorf("OpenAPI %q", d.OpenAPI)
	}
	return d
}

func TestEveryRouteTakesItsRoleAndNoLess(t *testing.T) {
	r := newRig(t, nil)
	r.plan("p", 2)
	seen := 0
	for _, methods := range r.document().Paths {
		for method, op := range methods {
			want, known := takes[op.ID]
			if !known {
				t.Errorf("operation %s: say in takes which role it takes", op.ID)
				continue
			}
			seen++
			if !slices.Contains(op.Tags, string(want.role)) {
				t.Errorf("the document says that %s takes %v, want %s", op.ID, op.Tags, want.role)
			}
			for _, role := range []server.Role{server.Nobody, server.View, server.Operate, server.Admin} {
				r.tryRole(op.ID, strings.ToUpper(method), role)
			}
		}
	}
	if seen != len(takes) {
		t.Errorf("the document has %d operations of %d", seen, len(takes))
	}
}

// tryRole asks for an operation, and looks at the audit trail if it is refused.
func (r *rig) tryRole(id, method string, role server.Role) {
	r.t.Helper()
	want := takes[id]
	if id == "followEvents" && role.May(want.role) {
		method = http.MethodHead // the stream does not end
	}
	a := r.ask(role, method, want.path, want.body)
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
	if e := r.audit(1); role != server.Nobody && (len(e) == 0 || e[0].Role != string(role) || e[0].On != path || e[0].Err == "" || e[0].User != "test-"+string(role)) {
		r.t.Errorf("%s as %q: the audit trail has %+v", id, role, e)
	}
}

// wantProblem looks at an error's form.
func (r *rig) wantProblem(a answer, kind string) server.Problem {
	r.t.Helper()
	var p server.Problem
	a.into(r.t, &p)
	if got := a.header.Get("Content-Type"); got != "application/problem+json" || p.Kind != kind || p.Status != a.status || p.Detail == "" {
		r.t.Errorf("problem %+v as %s, want kind %s", p, got, kind)
	}
	return p
}

// What the pages and the rest take is not in the document.
func TestWhatIsNotInTheDocumentIsClosedToo(t *testing.T) {
	r := newRig(t, nil)
	r.plan("p", 1)
	for path, want := range map[string]int{
		"/metrics": http.StatusUnauthorized, "/": http.StatusSeeOther, "/plans/p": http.StatusSeeOther,
		"/healthz": http.StatusOK, "/readyz": http.StatusOK, "/login": http.StatusOK, "/static/live.js": http.StatusOK,
		"/static/": http.StatusNotFound, "/v1": http.StatusNotFound, "/v1/nothing": http.StatusNotFound, "/docs": http.StatusNotFound,
	} {
		if a := r.ask(server.Nobody, "GET", path, ""); a.status != want {
			t.Errorf("GET %s: %d, want %d", path, a.status, want)
		}
	}
	for _, path := range []string{"/plans/p/commands", "/plans/p/vms/vm-1/commands"} {
		if a := r.ask(server.View, "POST", path, ""); a.status != http.StatusForbidden {
			t.Errorf("POST %s as view: %d", path, a.status)
		}
		if a := r.ask(server.Nobody, "POST", path, ""); a.status != http.StatusUnauthorized {
			t.Errorf("POST %s as nobody: %d", path, a.status)
		}
	}
}
