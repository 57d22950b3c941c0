package server_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/server"
	"github.com/decamp/decamp/internal/server/servertest"
)

func TestPlanErrorsHaveLines(t *testing.T) {
	r := newTestServer(t, nil)
	text := "version: 1\nname: p\nsource:\n  url: esxi://root@esx1\ndefaults:\n  to: [dir:/srv/vm]\n  formt: raw\nselect: poweredOn\nlimits: 3\n"
	a := r.sendAs(server.Operate, "POST", "/v1/plans", text)
	p := r.wantProblem(a, "invalid")
	if a.status != http.StatusUnprocessableEntity || len(p.Findings) != 2 || p.Findings[0].Line != 7 || p.Findings[1].Line != 9 || p.Findings[0].Remedy == "" {
		t.Errorf("got status %d, body %s", a.status, a.body)
	}
	if plans, err := r.Database.Plans.List(t.Context()); err != nil || len(plans) != 0 {
		t.Errorf("got plans %+v, %v; want none", plans, err)
	}
}

func TestSubmitIsIdempotent(t *testing.T) {
	r := newTestServer(t, nil)
	text := servertest.PlanText("p")
	for range 2 {
		a := r.sendAs(server.Operate, "POST", "/v1/plans", text)
		var p fleetdb.Plan
		a.decodeJSON(t, &p)
		if a.status != http.StatusCreated || p.Name != "p" || p.By != "test-operate" || p.Folder != r.State || p.State != fleetdb.PlanListing {
			t.Errorf("got status %d, body %s", a.status, a.body)
		}
	}
	r.wantProblem(r.sendAs(server.Operate, "POST", "/v1/plans", text+"# changed\n"), "conflict")
	if e := r.auditEntries(2); e[0].Err == "" || e[0].Action != "submit a plan" || e[1].Err != "" || e[1].On != "p" {
		t.Errorf("the audit trail has %+v", e)
	}
}

// A check reports the errors of a submission and the differences from the submitted plan. It submits nothing.
func TestPlanCheckSubmitsNothing(t *testing.T) {
	r := newTestServer(t, nil)
	text := servertest.PlanText("p")
	check := func(text string) (got struct{ Name, State, Diff string }) {
		t.Helper()
		a := r.sendAs(server.Operate, "POST", "/v1/plan-checks", text)
		if a.status != http.StatusOK {
			t.Fatalf("got status %d, body %s", a.status, a.body)
		}
		a.decodeJSON(t, &got)
		return got
	}
	if got := check(text); got.Name != "p" || got.State != "" || got.Diff != "" {
		t.Errorf("a new plan: %+v", got)
	}
	if plans, err := r.Database.Plans.List(t.Context()); err != nil || len(plans) != 0 {
		t.Errorf("got plans %+v, %v; want none", plans, err)
	}
	if a := r.sendAs(server.Operate, "POST", "/v1/plans", text); a.status != http.StatusCreated {
		t.Fatalf("got status %d, body %s", a.status, a.body)
	}
	if got := check(text); got.State != string(fleetdb.PlanListing) || got.Diff != "" {
		t.Errorf("the same text: %+v", got)
	}
	if got := check(text + "# changed\n"); !strings.HasPrefix(got.Diff, "diff submitted checked\n--- submitted\n+++ checked\n@@ ") || !strings.HasSuffix(got.Diff, "\n+# changed\n") {
		t.Errorf("a changed text: %+v", got)
	}
	p := r.wantProblem(r.sendAs(server.Operate, "POST", "/v1/plan-checks", text+"limits: 3\n"), "invalid")
	if len(p.Findings) != 1 || p.Findings[0].Line == 0 {
		t.Errorf("findings %+v", p.Findings)
	}
	r.wantProblem(r.sendAs(server.Operate, "POST", "/v1/plan-checks", text+"hooks:\n  pre: {command: [/bin/true]}\n"), "denied")
	if e := r.auditEntries(1)[0]; e.Err == "" || e.Action != "check a plan" || e.On != "p" {
		t.Errorf("the audit trail has %+v", e)
	}
}

// An operator's plan may name only offered folders and allowed credentials. It may name no other path, and no secret.
func TestOperatorPlansUseOnlyOfferedResources(t *testing.T) {
	r := newTestServer(t, nil)
	plain := servertest.PlanText("p")
	with := func(old, replacement string) string {
		text := strings.Replace(plain, old, replacement, 1)
		if text == plain {
			t.Fatalf("%q is not in the plan", old)
		}
		return text
	}
	to := func(destination string) string { return with("dir:/srv/vm", `"`+destination+`"`) }
	const named = "{name: esx1}"
	for name, v := range map[string]struct{ text, detail string }{
		"hooks":               {plain + "hooks:\n  pre: {command: [/bin/true]}\n", "hooks.pre.command in line 10"},
		"hooks of all VMs":    {with("defaults:\n", "defaults:\n  hooks:\n    post: {command: [/bin/true]}\n"), "defaults.hooks.post.command"},
		"hooks of a VM":       {plain + "vms:\n  - vm: a\n    hooks:\n      pre: {command: [/bin/true]}\n", "vms[0].hooks.pre.command"},
		"password file":       {with(named, "{file: /etc/shadow}"), "source.credentials.file in line 5"},
		"ssh password":        {with(named, named+"\n  ssh: {credentials: {file: /etc/shadow}}"), "source.ssh.credentials.file"},
		"ssh key":             {with(named, named+"\n  ssh: {key: /root/.ssh/id_ed25519}"), "source.ssh.key"},
		"key files":           {with("defaults:\n", "defaults:\n  keyFiles: [/etc/shadow]\n"), "defaults.keyFiles"},
		"drivers":             {with("defaults:\n", "defaults:\n  virtioWin: /etc\n"), "defaults.virtioWin"},
		"kernel":              {plain + "vms:\n  - {vm: a, applianceKernel: /etc/shadow}\n", "vms[0].applianceKernel"},
		"Proxmox token":       {to("proxmox:https://192.0.2.66:8006/pve?token=/etc/decamp/pve1&staging=/srv/vm"), "an address of proxmox"},
		"kubeconfig":          {to("kubevirt:/srv/vm?kubeconfig=/srv/vm/old/disk.raw"), "parameter kubeconfig"},
		"libvirt socket":      {to("libvirt:qemu+unix:///system?socket=/run/other&staging=/srv/vm"), "an address of libvirt"},
		"cloud":               {to("openstack:prod?staging=/srv/vm"), "an address of openstack"},
		"folder":              {to("dir:/etc/cron.d"), "/etc/cron.d, which no worker offers"},
		"folder above":        {to("dir:/srv"), "/srv, which no worker offers"},
		"folder beside":       {to("dir:/srv/vm/../other"), "/srv/other, which no worker offers"},
		"stage":               {to("place:rack1?staging=/etc"), "/etc, which no worker offers"},
		"unknown place":       {to("place:rack2?staging=/srv/vm"), "place \"rack2\" does not exist"},
		"no credentials":      {with("  credentials: "+named+"\n", ""), "names no credentials"},
		"credential of admin": {strings.ReplaceAll(plain, "esx1", "esx2"), "may not use the credential esx2"},
		"other host":          {with("esx1.example.com", "192.0.2.66"), "is bound to esxi://root@esx1.example.com"},
		"other port":          {with("esx1.example.com", "esx1.example.com:8443"), "is bound to esxi://root@esx1.example.com"},
	} {
		a := r.sendAs(server.Operate, "POST", "/v1/plans", v.text)
		if p := r.wantProblem(a, "denied"); a.status != http.StatusForbidden || !strings.Contains(p.Detail, v.detail) || p.Remedy == "" {
			t.Errorf("%s: %d %s, want %q", name, a.status, a.body, v.detail)
		}
		if e := r.auditEntries(1)[0]; e.Err == "" || e.Role != "operate" || e.On != "p" {
			t.Errorf("%s: the audit trail has %+v", name, e)
		}
	}
	a := r.sendAs(server.Operate, "POST", "/v1/plans", with(named, named+"\n  fingerprint: \""+strings.Repeat("12", 32)+"\""))
	if p := r.wantProblem(a, "conflict"); !strings.Contains(p.Detail, strings.Repeat("12", 32)) || !strings.Contains(p.Detail, strings.Repeat("AB", 32)) {
		t.Errorf("another fingerprint: %s", a.body)
	}
	if plans, err := r.Database.Plans.List(t.Context()); err != nil || len(plans) > 0 {
		t.Errorf("a refused plan was added: %v, %v", plans, err)
	}
	if a := r.sendAs(server.Operate, "POST", "/v1/plans", to("place:rack1?staging=/srv/vm/stage")); a.status != http.StatusCreated {
		t.Errorf("a plan with a named place: %d %s", a.status, a.body)
	}
}

// An administrator's plan may name paths, secrets and commands. The audit trail lists them.
func TestPlansOfAdminsAreAudited(t *testing.T) {
	r := newTestServer(t, nil)
	text := strings.Replace(servertest.PlanText("p"), "{name: esx1}", "{file: /etc/decamp/esx9}", 1) + "hooks:\n  pre: {command: [/bin/true]}\n"
	if a := r.sendAs(server.Admin, "POST", "/v1/plans", text); a.status != http.StatusCreated {
		t.Fatalf("got status %d, body %s", a.status, a.body)
	}
	want := "submit a plan that sets source.credentials.file in line 5, hooks.pre.command in line 10"
	if e := r.auditEntries(1)[0]; e.Action != want || e.Role != "admin" || e.Err != "" {
		t.Errorf("the audit trail has %+v, want %s", e, want)
	}
	p, err := r.Database.Plans.Get(t.Context(), "p")
	if err != nil || p.Role != "admin" {
		t.Errorf("got role %q of the plan, %v", p.Role, err)
	}
	a := r.sendAs(server.Admin, "POST", "/v1/plans", strings.Replace(servertest.PlanText("q"), "  credentials: {name: esx1}\n", "", 1))
	if p := r.wantProblem(a, "denied"); !strings.Contains(p.Detail, "names no credentials") {
		t.Errorf("a plan without credentials: %s", a.body)
	}
}

func TestVMsAreListedInPages(t *testing.T) {
	r := newTestServer(t, nil)
	r.addPlan("p", 25)
	claims := r.runVMs("p", 3)
	r.must(r.Report(t.Context(), claims, 50))
	r.must(r.SetSchedulerState(t.Context(), server.SchedulerState{Waiting: []server.Waiting{{Key: servertest.Key("p", 4), Reason: "host esx4: 20 of 20 vms"}}}))
	var page struct {
		Items []struct {
			fleetdb.VM
			Progress *fleetdb.Progress
			Reason   string
		}
		Next int64
	}
	seen := 0
	for path := "/v1/plans/p/vms?limit=10"; ; {
		r.sendAs(server.View, "GET", path, "").decodeJSON(t, &page)
		seen += len(page.Items)
		if page.Next == 0 {
			break
		}
		if first := page.Items[0]; first.Seq == 1 && (first.Progress == nil || first.Progress.Done != servertest.Size/2 || page.Items[3].Reason != "host esx4: 20 of 20 vms" || page.Items[3].Progress != nil) {
			t.Errorf("got VMs %+v and %+v", first, page.Items[3])
		}
		path = "/v1/plans/p/vms?limit=10&after=" + string(rune('0'+page.Next/10)) + "0"
		page.Next, page.Items = 0, nil
	}
	if seen != 25 {
		t.Errorf("got %d VMs, want 25", seen)
	}
	page.Items = nil
	if r.sendAs(server.View, "GET", "/v1/plans/p/vms?state=running,done", "").decodeJSON(t, &page); len(page.Items) != 3 {
		t.Errorf("got %d running VMs, want 3", len(page.Items))
	}
}

func TestInvalidRequestsAreRefused(t *testing.T) {
	r := newTestServer(t, nil)
	r.addPlan("p", 1)
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
		{"POST", "/v1/plans/p/commands", `{"command":"explode"}`, http.StatusUnprocessableEntity},
		{"POST", "/v1/plans/p/commands", `{"command":"pause","more":1}`, http.StatusUnprocessableEntity},
		{"POST", "/v1/plans/p/commands", `{`, http.StatusBadRequest},
		{"PUT", "/v1/limits", `{"limits":[{"name":"no such","units":1}]}`, http.StatusUnprocessableEntity},
		{"PUT", "/v1/limits", `{"limits":[{"name":"host:esx1/rate","units":-2}]}`, http.StatusUnprocessableEntity},
		{"PATCH", "/v1/plans/p", "", http.StatusMethodNotAllowed},
		{"GET", "/v1/nothing", "", http.StatusNotFound},
	} {
		a := r.sendAs(server.Admin, c.method, c.path, c.body)
		var p server.Problem
		a.decodeJSON(t, &p)
		if a.status != c.want || p.Status != c.want || p.Kind == "" || a.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %s %s: got status %d, body %s", c.method, c.path, c.body, a.status, a.body)
		}
	}
	if a := r.sendAs(server.Admin, "PATCH", "/v1/plans/p", ""); !strings.Contains(a.header.Get("Allow"), "DELETE") {
		t.Errorf("got Allow %q", a.header.Get("Allow"))
	}
}

// Neither the API nor a local command makes a change that the audit trail cannot record.
func TestUnauditableChangesAreRefused(t *testing.T) {
	r := newTestServer(t, nil)
	r.addPlan("p", 1)
	r.must(changeDatabase(filepath.Join(filepath.Dir(r.State), "fleet.db"), `ALTER TABLE audit RENAME TO lost`))
	if a := r.sendAs(server.Operate, "POST", "/v1/plans/p/commands", `{"command":"pause"}`); a.status/100 != 5 {
		t.Errorf("got status %d, body %s", a.status, a.body)
	}
	local := server.Audited{Local: server.Local{Database: r.Database}, User: "tester"}
	if err := local.CommandPlan(t.Context(), "p", fleetdb.Pause); err == nil {
		t.Error("the local command is not refused")
	}
	if p, err := r.Database.Plans.Get(t.Context(), "p"); err != nil || p.Command != fleetdb.GoOn {
		t.Errorf("got plan %+v, %v; want one without a command", p, err)
	}
}

func TestLimitsAreSetAtomically(t *testing.T) {
	r := newTestServer(t, nil)
	a := r.sendAs(server.Operate, "PUT", "/v1/limits", `{"limits":[{"name":"host:esx1/vms","units":4},{"name":"host:esx1/elephants","units":4}]}`)
	if r.wantProblem(a, "invalid"); a.status != http.StatusUnprocessableEntity {
		t.Errorf("got status %d, body %s", a.status, a.body)
	}
	if limits, err := r.Database.Limits.List(t.Context()); err != nil || len(limits) != 0 {
		t.Errorf("got limits %+v, %v; want none", limits, err)
	}
}

func TestReadyzRequiresDatabase(t *testing.T) {
	r := newTestServer(t, nil)
	if a := r.sendAs("", "GET", "/readyz", ""); a.status != http.StatusOK {
		t.Errorf("got status %d, body %s", a.status, a.body)
	}
	r.must(r.Database.Close())
	if a := r.sendAs("", "GET", "/readyz", ""); a.status != http.StatusServiceUnavailable || strings.Contains(a.body, r.State) {
		t.Errorf("got status %d, body %s", a.status, a.body)
	}
	if a := r.sendAs("", "GET", "/healthz", ""); a.status != http.StatusOK {
		t.Errorf("/healthz: status %d, want 200", a.status)
	}
}
