package server_test

import (
	"context"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/server"
	"github.com/decamp/decamp/internal/server/servertest"
)

// logIn returns the server with a client that has the session cookie of a user with the role.
func (r *testServer) logIn(role server.Role) *testServer {
	r.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		r.t.Fatal(err)
	}
	b := &testServer{r.Fleet, r.t, r.Client()}
	b.client.Jar = jar
	r.t.Cleanup(b.client.CloseIdleConnections)
	if a := b.postForm("/login", url.Values{"token": {r.Tokens[role]}}); a.status != http.StatusSeeOther || a.header.Get("Location") != "/" {
		r.t.Fatalf("login: %d %s", a.status, a.body)
	}
	return b
}

func (r *testServer) postForm(path string, values url.Values) response {
	r.t.Helper()
	return r.send("POST", path, values.Encode(), func(req *http.Request) {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	})
}

var proofField = regexp.MustCompile(`name="proof" value="([^"]+)"`)

// formProof returns the proof in the forms of the page of a plan.
func (r *testServer) formProof(plan string) string {
	r.t.Helper()
	m := proofField.FindStringSubmatch(r.sendAs("", "GET", "/plans/"+plan, "").body)
	if m == nil {
		r.t.Fatal("the page has no form")
	}
	return m[1]
}

func (r *testServer) commandOf(k fleetdb.Key) fleetdb.Command {
	r.t.Helper()
	vm, err := r.Database.VMs.Get(r.t.Context(), k)
	r.must(err)
	return vm.Command
}

func TestPagesShowPlansAndVMs(t *testing.T) {
	r := newTestServer(t, nil)
	r.addPlan("wave-1", 250)
	r.runVMs("wave-1", 2)
	b := r.logIn(server.View)
	if a := b.sendAs("", "GET", "/", ""); a.status != http.StatusOK || !strings.Contains(a.body, `href="/plans/wave-1"`) || !strings.Contains(a.body, "0 of 250") || !strings.Contains(a.body, "w1") {
		t.Errorf("plans: %d %s", a.status, a.body)
	}
	a := b.sendAs("", "GET", "/plans/wave-1", "")
	if n := strings.Count(a.body, "data-vm="); n != 100 || !strings.Contains(a.body, "wave-1 guest 100") || !strings.Contains(a.body, `href="?after=100"`) {
		t.Errorf("got a page of %d VMs, want 100", n)
	}
	if strings.Contains(a.body, "<button name=\"command\"") {
		t.Error("the page has buttons for a user with the role view")
	}
	a = b.sendAs("", "GET", "/plans/wave-1?after=200&state=queued", "")
	if n := strings.Count(a.body, "data-vm="); n != 50 || strings.Contains(a.body, "Next page") {
		t.Errorf("got a last page of %d VMs, want 50", n)
	}
	a = b.sendAs("", "GET", "/plans/wave-1?state=running", "")
	if n := strings.Count(a.body, "data-vm="); n != 2 {
		t.Errorf("got %d running VMs, want 2", n)
	}
	if a := b.sendAs("", "GET", "/plans/nothing", ""); a.status != http.StatusNotFound || !strings.Contains(a.body, "plan nothing does not exist") {
		t.Errorf("an unknown plan: %d %s", a.status, a.body)
	}
}

func TestButtonsSendCommands(t *testing.T) {
	r := newTestServer(t, nil)
	r.addPlan("p", 2)
	b := r.logIn(server.Operate)
	proof := b.formProof("p")
	k := servertest.Key("p", 1)
	a := b.postForm("/plans/p/vms/vm-1/commands", url.Values{"proof": {proof}, "command": {"cutover"}, "back": {"after=100&state=queued&evil=//x"}})
	if a.status != http.StatusSeeOther || a.header.Get("Location") != "/plans/p?after=100&state=queued" || r.commandOf(k) != fleetdb.CutOver {
		t.Errorf("got status %d, location %s, command %q", a.status, a.header.Get("Location"), r.commandOf(k))
	}
	if e := r.auditEntries(1)[0]; e.Action != "cutover" || e.On != "p/vm-1" || e.User != "test-operate" || e.Err != "" {
		t.Errorf("the audit trail has %+v", e)
	}
	if a := b.postForm("/plans/p/commands", url.Values{"proof": {proof}, "command": {"pause"}}); a.status != http.StatusSeeOther {
		t.Errorf("pause: %d %s", a.status, a.body)
	}
	if p, err := r.Database.Plans.Get(t.Context(), "p"); err != nil || p.Command != fleetdb.Pause {
		t.Errorf("got plan %+v, %v; want one with the command pause", p, err)
	}
	if a := b.postForm("/plans/p/vms/vm-2/commands", url.Values{"proof": {proof}, "command": {"explode"}}); a.status != http.StatusUnprocessableEntity {
		t.Errorf("an unknown command: %d", a.status)
	}
}

// endPlan ends VMs of a plan with the states, and then the plan.
func (r *testServer) endPlan(plan string, failure *fleetdb.Failure, states ...fleetdb.State) {
	r.t.Helper()
	for i, c := range r.runVMs(plan, len(states)) {
		r.must(r.Database.Claims.Finish(r.t.Context(), c, fleetdb.End{State: states[i]}))
	}
	r.must(r.Database.Plans.SetState(r.t.Context(), plan, fleetdb.PlanEnded, failure))
}

var commandButton = regexp.MustCompile(`name="command" value="([a-z]+)"`)

// commandButtons returns the commands that the page of a plan offers.
func (r *testServer) commandButtons(plan string) string {
	r.t.Helper()
	found := map[string]bool{}
	for _, m := range commandButton.FindAllStringSubmatch(r.sendAs("", "GET", "/plans/"+plan, "").body, -1) {
		found[m[1]] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(found)), " ")
}

// The page of an ended plan offers only the commands for its failed VMs, and none if all VMs are published. The
// server refuses all other commands.
func TestFinishedPlansOfferNoActions(t *testing.T) {
	r := newTestServer(t, nil)
	for _, plan := range []string{"open", "whole", "part"} {
		r.addPlan(plan, 2)
	}
	r.endPlan("whole", nil, fleetdb.Done, fleetdb.Done)
	r.endPlan("part", nil, fleetdb.Done, fleetdb.Failed)
	b := r.logIn(server.Operate)
	for plan, want := range map[string]string{"open": "cancel cutover pause resume retry", "whole": "", "part": "cancel retry"} {
		if got := b.commandButtons(plan); got != want {
			t.Errorf("the page of plan %s offers %q, want %q", plan, got, want)
		}
	}
	if a := r.sendAs(server.Operate, "POST", "/v1/plans/whole/vms/vm-1/commands", `{"command":"withdraw"}`); a.status != http.StatusForbidden {
		t.Errorf("an operator withdraws a published VM: %d %s", a.status, a.body)
	}
	for _, on := range []string{"/v1/plans/whole/commands", "/v1/plans/whole/vms/vm-1/commands"} {
		for _, command := range []string{"resume", "pause", "cutover", "cancel", "retry", "rollback"} {
			a := r.sendAs(server.Operate, "POST", on, `{"command":"`+command+`"}`)
			if a.status != http.StatusConflict || !strings.Contains(a.body, `"remedy"`) {
				t.Errorf("%s to %s: %d %s", command, on, a.status, a.body)
			}
		}
	}
}

// Administrators may withdraw a published VM, but not a whole plan.
func TestAdministratorsWithdrawPublishedVMs(t *testing.T) {
	r := newTestServer(t, nil)
	r.addPlan("p", 2)
	r.endPlan("p", nil, fleetdb.Done, fleetdb.Done)
	if a := r.sendAs(server.Admin, "POST", "/v1/plans/p/commands", `{"command":"withdraw"}`); a.status != http.StatusUnprocessableEntity {
		t.Errorf("a whole plan: %d %s", a.status, a.body)
	}
	if a := r.sendAs(server.Admin, "POST", "/v1/plans/p/vms/vm-1/commands", `{"command":"withdraw"}`); a.status != http.StatusNoContent {
		t.Errorf("one VM: %d %s", a.status, a.body)
	}
	if vm, err := r.Database.VMs.Get(t.Context(), servertest.Key("p", 1)); err != nil || vm.State != fleetdb.Queued || vm.Command != fleetdb.Withdraw {
		t.Errorf("got VM %+v, %v", vm, err)
	}
	if p, err := r.Database.Plans.Get(t.Context(), "p"); err != nil || p.State.IsFinal() {
		t.Errorf("the plan does not continue: %+v, %v", p, err)
	}
}

// The progress bar counts only published VMs, not failed or canceled VMs.
func TestProgressBarCountsOnlyPublishedVMs(t *testing.T) {
	r := newTestServer(t, nil)
	r.addPlan("p", 4)
	r.endPlan("p", nil, fleetdb.Done, fleetdb.Failed, fleetdb.Canceled)
	b := r.logIn(server.View)
	for _, path := range []string{"/", "/plans/p"} {
		if a := b.sendAs("", "GET", path, ""); !strings.Contains(a.body, `<progress max="4" value="1">`) || !strings.Contains(a.body, "1 of 4 done") {
			t.Errorf("%s: got body %s", path, a.body)
		}
	}
	a := b.sendAs("", "GET", "/plans/p", "")
	if full := strings.Count(a.body, `<progress max="100" value="100">`); full != 1 {
		t.Errorf("got %d full progress bars of VMs, want 1", full)
	}
}

// The page, the API and the metrics show a plan as failed if its VMs could not be listed.
func TestFailedPlansAreShownAsFailed(t *testing.T) {
	r := newTestServer(t, nil)
	_, err := r.Database.Plans.Add(t.Context(), fleetdb.Plan{Name: "p", Text: servertest.PlanText("p")})
	r.must(err)
	r.endPlan("p", &fleetdb.Failure{Kind: "unreachable", Text: "esx1 does not answer", Hint: "start it"})
	b := r.logIn(server.Operate)
	for _, path := range []string{"/", "/plans/p"} {
		if a := b.sendAs("", "GET", path, ""); !strings.Contains(a.body, `class="state">failed`) || !strings.Contains(a.body, "esx1 does not answer") {
			t.Errorf("%s: got body %s", path, a.body)
		}
	}
	if got := b.commandButtons("p"); got != "retry" {
		t.Errorf("the page offers %q", got)
	}
	for _, path := range []string{"/v1/plans", "/v1/plans/p"} {
		if a := r.sendAs(server.View, "GET", path, ""); !strings.Contains(a.body, `"state":"failed"`) {
			t.Errorf("%s: got body %s", path, a.body)
		}
	}
	if want := `decamp_plan_info{plan="p",state="failed"} 1`; !strings.Contains(r.scrapeMetrics(), want) {
		t.Errorf("%s is missing", want)
	}
}

func TestCrossSiteCommandsAreRefused(t *testing.T) {
	r := newTestServer(t, nil)
	r.addPlan("p", 1)
	b := r.logIn(server.Operate)
	proof := b.formProof("p")
	other := r.logIn(server.Operate).formProof("p")
	for name, values := range map[string]url.Values{"without a proof": {"command": {"cancel"}}, "another session's": {"command": {"cancel"}, "proof": {other}}} {
		if a := b.postForm("/plans/p/commands", values); a.status != http.StatusForbidden {
			t.Errorf("%s: got status %d", name, a.status)
		}
	}
	for header, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example.com"} {
		a := b.send("POST", "/plans/p/commands", url.Values{"command": {"cancel"}, "proof": {proof}}.Encode(), func(req *http.Request) {
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			req.Header.Set(header, value)
		})
		if a.status != http.StatusForbidden {
			t.Errorf("%s %s: got status %d", header, value, a.status)
		}
	}
	if a := b.send("POST", "/v1/plans/p/commands", `{"command":"cancel"}`, func(req *http.Request) { req.Header.Set("Content-Type", "application/json") }); a.status != http.StatusForbidden {
		t.Errorf("an API command with a session cookie: %d %s", a.status, a.body)
	}
	if p, err := r.Database.Plans.Get(t.Context(), "p"); err != nil || p.Command != fleetdb.GoOn {
		t.Errorf("the plan has a command: %+v, %v", p, err)
	}
}

func TestSessionCookieReadsAPIUntilLogout(t *testing.T) {
	r := newTestServer(t, nil)
	b := r.logIn(server.View)
	if a := b.sendAs("", "GET", "/v1/plans", ""); a.status != http.StatusOK {
		t.Errorf("GET /v1/plans: status %d, want 200", a.status)
	}
	if a := b.postForm("/logout", nil); a.status != http.StatusSeeOther {
		t.Errorf("logout: status %d, want 303", a.status)
	}
	if a := b.sendAs("", "GET", "/v1/plans", ""); a.status != http.StatusUnauthorized {
		t.Errorf("after the logout: %d", a.status)
	}
	if a := r.postForm("/login", url.Values{"token": {"wrong"}}); a.status != http.StatusForbidden || !strings.Contains(a.body, "the token is unknown") {
		t.Errorf("a wrong token: %d", a.status)
	}
}

// The pages escape names, so that they cannot contain markup.
func TestPagesEscapeNames(t *testing.T) {
	r := newTestServer(t, nil)
	ctx := context.Background()
	_, err := r.Database.Plans.Add(ctx, fleetdb.Plan{Name: "p", Text: servertest.PlanText("p"), By: `<b>"eve"`})
	r.must(err)
	const evil = `"><script>alert(1)</script><img src=x onerror=alert(2)>`
	r.must(r.Database.VMs.Add(ctx, []fleetdb.VM{{Key: fleetdb.Key{Plan: "p", VM: "vm-1"}, Name: evil, Host: evil}}))
	r.must(r.Database.Plans.SetState(ctx, "p", fleetdb.PlanRunning, &fleetdb.Failure{Text: evil, Hint: evil}))
	b := r.logIn(server.Operate)
	for _, path := range []string{"/", "/plans/p"} {
		a := b.sendAs("", "GET", path, "")
		if strings.Contains(a.body, "<script>alert") || strings.Contains(a.body, "<img") || strings.Contains(a.body, "<b>") {
			t.Errorf("%s: got body %s", path, a.body)
		}
		csp := a.header.Get("Content-Security-Policy")
		if !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") || strings.Contains(a.body, " style=") || strings.Contains(a.body, " onclick=") {
			t.Errorf("%s: policy %s", path, csp)
		}
	}
}
