package server_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/roster"
	"github.com/decamp/decamp/internal/server"
	"github.com/decamp/decamp/internal/server/servertest"
)

func TestMistakesOfAPlanAreToldWithTheirLines(t *testing.T) {
	r := newRig(t, nil)
	text := "version: 1\nname: p\nsource:\n  url: esxi://root@esx1\ndefaults:\n  to: [dir:/srv/vm]\n  formt: raw\nselect: poweredOn\nlimits: 3\n"
	a := r.ask(server.Operate, "POST", "/v1/plans", text)
	p := r.wantProblem(a, "invalid")
	if a.status != http.StatusUnprocessableEntity || len(p.Findings) != 2 || p.Findings[0].Line != 7 || p.Findings[1].Line != 9 || p.Findings[0].Remedy == "" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if plans, err := r.Roster.Plans(t.Context()); err != nil || len(plans) != 0 {
		t.Errorf("plans %+v, %v", plans, err)
	}
}

func TestASubmittedPlanIsThereOnce(t *testing.T) {
	r := newRig(t, nil)
	text := servertest.PlanText("p")
	for range 2 {
		a := r.ask(server.Operate, "POST", "/v1/plans", text)
		var p roster.Plan
		a.into(t, &p)
		if a.status != http.StatusCreated || p.Name != "p" || p.By != "test-operate" || p.Folder != r.State || p.State != roster.PlanListing {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	r.wantProblem(r.ask(server.Operate, "POST", "/v1/plans", text+"# changed\n"), "conflict")
	if e := r.audit(2); e[0].Err == "" || e[0].What != "submit a plan" || e[1].Err != "" || e[1].On != "p" {
		t.Errorf("noted %+v", e)
	}
}

// A plan's author must not be able to act as the server, unless they may do everything anyway.
func TestPlansThatActAsTheServerTakeAdmin(t *testing.T) {
	r := newRig(t, nil)
	plain := servertest.PlanText("p")
	for name, text := range map[string]string{
		"hooks":            plain + "hooks:\n  pre: {command: [/bin/true]}\n",
		"hooks of all VMs": strings.Replace(plain, "defaults:\n", "defaults:\n  hooks:\n    post: {command: [/bin/true]}\n", 1),
		"hooks of a VM":    plain + "vms:\n  - vm: a\n    hooks:\n      pre: {command: [/bin/true]}\n",
		"password file":    strings.Replace(plain, "source:\n", "source:\n  credentials: {file: /etc/shadow}\n", 1),
		"ssh password":     strings.Replace(plain, "source:\n", "source:\n  ssh: {credentials: {file: /etc/shadow}}\n", 1),
		"ssh key":          strings.Replace(plain, "source:\n", "source:\n  ssh: {key: /root/.ssh/id_ed25519}\n", 1),
	} {
		a := r.ask(server.Operate, "POST", "/v1/plans", text)
		if r.wantProblem(a, "denied"); a.status != http.StatusForbidden {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
		if e := r.audit(1)[0]; e.Err == "" || e.Role != "operate" || e.On != "p" {
			t.Errorf("%s: noted %+v", name, e)
		}
	}
	if a := r.ask(server.Admin, "POST", "/v1/plans", plain+"hooks:\n  pre: {command: [/bin/true]}\n"); a.status != http.StatusCreated {
		t.Errorf("admin: %d %s", a.status, a.body)
	}
}

func TestVMsComeInPages(t *testing.T) {
	r := newRig(t, nil)
	r.plan("p", 25)
	claims := r.running("p", 3)
	r.must(r.Report(t.Context(), claims, 50))
	r.must(r.Board(t.Context(), server.Board{Waiting: []server.Waiting{{Key: servertest.Key("p", 4), Sentence: "host esx4: 20 of 20 vms"}}}))
	var page struct {
		Items []struct {
			roster.VM
			Progress *roster.Progress
			Why      string
		}
		Next int64
	}
	seen := 0
	for path := "/v1/plans/p/vms?limit=10"; ; {
		r.ask(server.View, "GET", path, "").into(t, &page)
		seen += len(page.Items)
		if page.Next == 0 {
			break
		}
		if first := page.Items[0]; first.Seq == 1 && (first.Progress == nil || first.Progress.Done != servertest.Size/2 || page.Items[3].Why != "host esx4: 20 of 20 vms" || page.Items[3].Progress != nil) {
			t.Errorf("%+v, %+v", first, page.Items[3])
		}
		path = "/v1/plans/p/vms?limit=10&after=" + string(rune('0'+page.Next/10)) + "0"
		page.Next, page.Items = 0, nil
	}
	if seen != 25 {
		t.Errorf("%d VMs", seen)
	}
	page.Items = nil
	if r.ask(server.View, "GET", "/v1/plans/p/vms?state=running,done", "").into(t, &page); len(page.Items) != 3 {
		t.Errorf("%d VMs run", len(page.Items))
	}
}

func TestRequestsThatAreNotAsDocumentedAreRefused(t *testing.T) {
	r := newRig(t, nil)
	r.plan("p", 1)
	for _, c := range []struct {
		method, path, body string
		want               int
	}{
		{"GET", "/v1/plans?nonsense=1", "", http.StatusUnprocessableEntity},
		{"GET", "/v1/plans/p/vms?limit=0", "", http.StatusUnprocessableEntity},
		{"GET", "/v1/plans/p/vms?limit=100000", "", http.StatusUnprocessableEntity},
		{"GET", "/v1/plans/p/vms?state=flying", "", http.StatusUnprocessableEntity},
		{"GET", "/v1/plans/%00/vms", "", http.StatusUnprocessableEntity},
		{"GET", "/v1/plans/q", "", http.StatusNotFound},
		{"POST", "/v1/plans/p/orders", `{"order":"explode"}`, http.StatusUnprocessableEntity},
		{"POST", "/v1/plans/p/orders", `{"order":"pause","more":1}`, http.StatusUnprocessableEntity},
		{"POST", "/v1/plans/p/orders", `{`, http.StatusBadRequest},
		{"PUT", "/v1/limits", `{"limits":[{"name":"no such","units":1}]}`, http.StatusUnprocessableEntity},
		{"PUT", "/v1/limits", `{"limits":[{"name":"host:esx1/rate","units":-2}]}`, http.StatusUnprocessableEntity},
		{"PATCH", "/v1/plans/p", "", http.StatusMethodNotAllowed},
		{"GET", "/v1/nothing", "", http.StatusNotFound},
	} {
		a := r.ask(server.Admin, c.method, c.path, c.body)
		var p server.Problem
		a.into(t, &p)
		if a.status != c.want || p.Status != c.want || p.Kind == "" || a.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %s %s: %d %s", c.method, c.path, c.body, a.status, a.body)
		}
	}
	if a := r.ask(server.Admin, "PATCH", "/v1/plans/p", ""); !strings.Contains(a.header.Get("Allow"), "DELETE") {
		t.Errorf("allow %q", a.header.Get("Allow"))
	}
}

// The audit trail stands before the change: without it there is none.
func TestWhatCannotBeNotedIsNotDone(t *testing.T) {
	r := newRig(t, nil)
	r.plan("p", 1)
	r.must(r.Roster.Close())
	a := r.ask(server.Operate, "POST", "/v1/plans/p/orders", `{"order":"pause"}`)
	if a.status/100 != 5 {
		t.Errorf("%d %s", a.status, a.body)
	}
	again, err := roster.Open(t.Context(), roster.Config{URL: "sqlite:" + filepath.Join(filepath.Dir(r.State), "fleet.db")})
	r.must(err)
	defer again.Close()
	if p, err := again.Plan(t.Context(), "p"); err != nil || p.Order != roster.GoOn {
		t.Errorf("%+v, %v", p, err)
	}
	if e, err := again.Audit(t.Context(), 0, 9); err != nil || len(e) != 0 {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestLimitsAreSetAllOrNone(t *testing.T) {
	r := newRig(t, nil)
	a := r.ask(server.Operate, "PUT", "/v1/limits", `{"limits":[{"name":"host:esx1/vms","units":4},{"name":"host:esx1/elephants","units":4}]}`)
	if r.wantProblem(a, "invalid"); a.status != http.StatusUnprocessableEntity {
		t.Errorf("%d %s", a.status, a.body)
	}
	if limits, err := r.Roster.Limits(t.Context()); err != nil || len(limits) != 0 {
		t.Errorf("%+v, %v", limits, err)
	}
}

func TestReadyIsOnlyWhoseDatabaseAnswers(t *testing.T) {
	r := newRig(t, nil)
	if a := r.ask("", "GET", "/readyz", ""); a.status != http.StatusOK {
		t.Errorf("%d %s", a.status, a.body)
	}
	r.must(r.Roster.Close())
	if a := r.ask("", "GET", "/readyz", ""); a.status != http.StatusServiceUnavailable || strings.Contains(a.body, r.State) {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := r.ask("", "GET", "/healthz", ""); a.status != http.StatusOK {
		t.Errorf("healthy: %d", a.status)
	}
}
