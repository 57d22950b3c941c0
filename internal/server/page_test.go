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

// browse logs in as a browser does.
func (r *rig) browse(role server.Role) *rig {
	r.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		r.t.Fatal(err)
	}
	b := &rig{r.Fleet, r.t, r.Client()}
	b.client.Jar = jar
	r.t.Cleanup(b.client.CloseIdleConnections)
	if a := b.form("/login", url.Values{"token": {r.Tokens[role]}}); a.status != http.StatusSeeOther || a.header.Get("Location") != "/" {
		r.t.Fatalf("login: %d %s", a.status, a.body)
	}
	return b
}

func (r *rig) form(path string, values url.Values) answer {
	r.t.Helper()
	return r.askWith("POST", path, values.Encode(), func(req *http.Request) {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	})
}

var proofField = regexp.MustCompile(`name="proof" value="([^"]+)"`)

// proof is what the forms of a plan's page carry.
func (r *rig) proof(plan string) string {
	r.t.Helper()
	m := proofField.FindStringSubmatch(r.ask("", "GET", "/plans/"+plan, "").body)
	if m == nil {
		r.t.Fatal("the page has no form")
	}
	return m[1]
}

func (r *rig) order(k fleetdb.Key) fleetdb.Command {
	r.t.Helper()
	vm, err := r.Database.VMs.Get(r.t.Context(), k)
	r.must(err)
	return vm.Command
}

func TestPagesShowPlansAndVMs(t *testing.T) {
	r := newRig(t, nil)
	r.plan("wave-1", 250)
	r.running("wave-1", 2)
	b := r.browse(server.View)
	if a := b.ask("", "GET", "/", ""); a.status != http.StatusOK || !strings.Contains(a.body, `href="/plans/wave-1"`) || !strings.Contains(a.body, "0 of 250") || !strings.Contains(a.body, "w1") {
		t.Errorf("plans: %d %s", a.status, a.body)
	}
	a := b.ask("", "GET", "/plans/wave-1", "")
	if n := strings.Count(a.body, "data-vm="); n != 100 || !strings.Contains(a.body, "wave-1 guest 100") || !strings.Contains(a.body, `href="?after=100"`) {
		t.Errorf("page of %d VMs", n)
	}
	if strings.Contains(a.body, "<button name=\"command\"") {
		t.Error("who views has buttons")
	}
	a = b.ask("", "GET", "/plans/wave-1?after=200&state=queued", "")
	if n := strings.Count(a.body, "data-vm="); n != 50 || strings.Contains(a.body, "Next page") {
		t.Errorf("last page of %d VMs", n)
	}
	a = b.ask("", "GET", "/plans/wave-1?state=running", "")
	if n := strings.Count(a.body, "data-vm="); n != 2 {
		t.Errorf("%d VMs run", n)
	}
	if a := b.ask("", "GET", "/plans/nothing", ""); a.status != http.StatusNotFound || !strings.Contains(a.body, "plan nothing does not exist") {
		t.Errorf("no plan: %d %s", a.status, a.body)
	}
}

func TestButtonsSendCommands(t *testing.T) {
	r := newRig(t, nil)
	r.plan("p", 2)
	b := r.browse(server.Operate)
	proof := b.proof("p")
	k := servertest.Key("p", 1)
	a := b.form("/plans/p/vms/vm-1/commands", url.Values{"proof": {proof}, "command": {"cutover"}, "back": {"after=100&state=queued&evil=//x"}})
	if a.status != http.StatusSeeOther || a.header.Get("Location") != "/plans/p?after=100&state=queued" || r.order(k) != fleetdb.CutOver {
		t.Errorf("%d to %s, order %q", a.status, a.header.Get("Location"), r.order(k))
	}
	if e := r.audit(1)[0]; e.Action != "cutover" || e.On != "p/vm-1" || e.User != "test-operate" || e.Err != "" {
		t.Errorf("noted %+v", e)
	}
	if a := b.form("/plans/p/commands", url.Values{"proof": {proof}, "command": {"pause"}}); a.status != http.StatusSeeOther {
		t.Errorf("pause: %d %s", a.status, a.body)
	}
	if p, err := r.Database.Plans.Get(t.Context(), "p"); err != nil || p.Command != fleetdb.Pause {
		t.Errorf("plan %+v, %v", p, err)
	}
	if a := b.form("/plans/p/vms/vm-2/commands", url.Values{"proof": {proof}, "command": {"explode"}}); a.status != http.StatusUnprocessableEntity {
		t.Errorf("an unknown command: %d", a.status)
	}
}

// end finishes VMs of a plan and ends it.
func (r *rig) end(plan string, failure *fleetdb.Failure, states ...fleetdb.State) {
	r.t.Helper()
	for i, c := range r.running(plan, len(states)) {
		r.must(r.Database.Claims.Finish(r.t.Context(), c, fleetdb.End{State: states[i]}))
	}
	r.must(r.Database.Plans.SetState(r.t.Context(), plan, fleetdb.PlanEnded, failure))
}

var commandButton = regexp.MustCompile(`name="command" value="([a-z]+)"`)

// buttons returns the orders that the page of a plan offers.
func (r *rig) buttons(plan string) string {
	r.t.Helper()
	found := map[string]bool{}
	for _, m := range commandButton.FindAllStringSubmatch(r.ask("", "GET", "/plans/"+plan, "").body, -1) {
		found[m[1]] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(found)), " ")
}

// A plan that is over offers what its failed VMs leave to do, and a plan whose VMs are all published
// offers nothing. What is not offered is refused.
func TestFinishedPlansOfferNoActions(t *testing.T) {
	r := newRig(t, nil)
	for _, plan := range []string{"open", "whole", "part"} {
		r.plan(plan, 2)
	}
	r.end("whole", nil, fleetdb.Done, fleetdb.Done)
	r.end("part", nil, fleetdb.Done, fleetdb.Failed)
	b := r.browse(server.Operate)
	for plan, want := range map[string]string{"open": "cancel cutover pause resume retry", "whole": "", "part": "cancel retry"} {
		if got := b.buttons(plan); got != want {
			t.Errorf("plan %s offers %q, not %q", plan, got, want)
		}
	}
	if a := r.ask(server.Operate, "POST", "/v1/plans/whole/vms/vm-1/commands", `{"command":"withdraw"}`); a.status != http.StatusForbidden {
		t.Errorf("an operator withdraws a published VM: %d %s", a.status, a.body)
	}
	for _, on := range []string{"/v1/plans/whole/commands", "/v1/plans/whole/vms/vm-1/commands"} {
		for _, order := range []string{"resume", "pause", "cutover", "cancel", "retry", "rollback"} {
			a := r.ask(server.Operate, "POST", on, `{"command":"`+order+`"}`)
			if a.status != http.StatusConflict || !strings.Contains(a.body, `"remedy"`) {
				t.Errorf("%s to %s: %d %s", order, on, a.status, a.body)
			}
		}
	}
}

// Administrators withdraw a published VM, one at a time.
func TestAdministratorsWithdrawPublishedVMs(t *testing.T) {
	r := newRig(t, nil)
	r.plan("p", 2)
	r.end("p", nil, fleetdb.Done, fleetdb.Done)
	if a := r.ask(server.Admin, "POST", "/v1/plans/p/commands", `{"command":"withdraw"}`); a.status != http.StatusUnprocessableEntity {
		t.Errorf("a whole plan: %d %s", a.status, a.body)
	}
	if a := r.ask(server.Admin, "POST", "/v1/plans/p/vms/vm-1/commands", `{"command":"withdraw"}`); a.status != http.StatusNoContent {
		t.Errorf("one VM: %d %s", a.status, a.body)
	}
	if vm, err := r.Database.VMs.Get(t.Context(), servertest.Key("p", 1)); err != nil || vm.State != fleetdb.Queued || vm.Command != fleetdb.Withdraw {
		t.Errorf("%+v, %v", vm, err)
	}
	if p, err := r.Database.Plans.Get(t.Context(), "p"); err != nil || p.State.IsFinal() {
		t.Errorf("the plan does not go on: %+v, %v", p, err)
	}
}

// VMs that failed or were canceled are no progress.
func TestOnlyPublishedVMsFillTheBar(t *testing.T) {
	r := newRig(t, nil)
	r.plan("p", 4)
	r.end("p", nil, fleetdb.Done, fleetdb.Failed, fleetdb.Canceled)
	b := r.browse(server.View)
	for _, path := range []string{"/", "/plans/p"} {
		if a := b.ask("", "GET", path, ""); !strings.Contains(a.body, `<progress max="4" value="1">`) || !strings.Contains(a.body, "1 of 4 done") {
			t.Errorf("%s: %s", path, a.body)
		}
	}
	a := b.ask("", "GET", "/plans/p", "")
	if full := strings.Count(a.body, `<progress max="100" value="100">`); full != 1 {
		t.Errorf("%d bars of VMs are full", full)
	}
}

// A plan whose VMs were never found has failed on the page, in the API and in the metrics.
func TestFailedPlansAreShownAsFailed(t *testing.T) {
	r := newRig(t, nil)
	_, err := r.Database.Plans.Add(t.Context(), fleetdb.Plan{Name: "p", Text: servertest.PlanText("p")})
	r.must(err)
	r.end("p", &fleetdb.Failure{Kind: "unreachable", Text: "esx1 does not answer", Hint: "start it"})
	b := r.browse(server.Operate)
	for _, path := range []string{"/", "/plans/p"} {
		if a := b.ask("", "GET", path, ""); !strings.Contains(a.body, `class="state">failed`) || !strings.Contains(a.body, "esx1 does not answer") {
			t.Errorf("%s: %s", path, a.body)
		}
	}
	if got := b.buttons("p"); got != "retry" {
		t.Errorf("the page offers %q", got)
	}
	for _, path := range []string{"/v1/plans", "/v1/plans/p"} {
		if a := r.ask(server.View, "GET", path, ""); !strings.Contains(a.body, `"state":"failed"`) {
			t.Errorf("%s: %s", path, a.body)
		}
	}
	if want := `decamp_plan_info{plan="p",state="failed"} 1`; !strings.Contains(r.metrics(), want) {
		t.Errorf("no %s", want)
	}
}

func TestOtherSitesSendNoCommands(t *testing.T) {
	r := newRig(t, nil)
	r.plan("p", 1)
	b := r.browse(server.Operate)
	proof := b.proof("p")
	other := r.browse(server.Operate).proof("p")
	for name, values := range map[string]url.Values{"without a proof": {"command": {"cancel"}}, "another session's": {"command": {"cancel"}, "proof": {other}}} {
		if a := b.form("/plans/p/commands", values); a.status != http.StatusForbidden {
			t.Errorf("%s: %d", name, a.status)
		}
	}
	for header, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example.com"} {
		a := b.askWith("POST", "/plans/p/commands", url.Values{"command": {"cancel"}, "proof": {proof}}.Encode(), func(req *http.Request) {
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			req.Header.Set(header, value)
		})
		if a.status != http.StatusForbidden {
			t.Errorf("%s %s: %d", header, value, a.status)
		}
	}
	if a := b.askWith("POST", "/v1/plans/p/commands", `{"command":"cancel"}`, func(req *http.Request) { req.Header.Set("Content-Type", "application/json") }); a.status != http.StatusForbidden {
		t.Errorf("the API by a cookie: %d %s", a.status, a.body)
	}
	if p, err := r.Database.Plans.Get(t.Context(), "p"); err != nil || p.Command != fleetdb.GoOn {
		t.Errorf("the plan was ordered: %+v, %v", p, err)
	}
}

func TestSessionsReadTheAPIAndEnd(t *testing.T) {
	r := newRig(t, nil)
	b := r.browse(server.View)
	if a := b.ask("", "GET", "/v1/plans", ""); a.status != http.StatusOK {
		t.Errorf("plans: %d", a.status)
	}
	if a := b.form("/logout", nil); a.status != http.StatusSeeOther {
		t.Errorf("logout: %d", a.status)
	}
	if a := b.ask("", "GET", "/v1/plans", ""); a.status != http.StatusUnauthorized {
		t.Errorf("after the logout: %d", a.status)
	}
	if a := r.form("/login", url.Values{"token": {"wrong"}}); a.status != http.StatusForbidden || !strings.Contains(a.body, "the token is unknown") {
		t.Errorf("a wrong token: %d", a.status)
	}
}

// What others named is text on the page, and nothing else.
func TestNamesAreTextOnThePage(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	_, err := r.Database.Plans.Add(ctx, fleetdb.Plan{Name: "p", Text: servertest.PlanText("p"), By: `<b>"eve"`})
	r.must(err)
	const evil = `"><script>alert(1)</script><img src=x onerror=alert(2)>`
	r.must(r.Database.VMs.Add(ctx, []fleetdb.VM{{Key: fleetdb.Key{Plan: "p", VM: "vm-1"}, Name: evil, Host: evil}}))
	r.must(r.Database.Plans.SetState(ctx, "p", fleetdb.PlanRunning, &fleetdb.Failure{Text: evil, Hint: evil}))
	b := r.browse(server.Operate)
	for _, path := range []string{"/", "/plans/p"} {
		a := b.ask("", "GET", path, "")
		if strings.Contains(a.body, "<script>alert") || strings.Contains(a.body, "<img") || strings.Contains(a.body, "<b>") {
			t.Errorf("%s: %s", path, a.body)
		}
		csp := a.header.Get("Content-Security-Policy")
		if !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") || strings.Contains(a.body, " style=") || strings.Contains(a.body, " onclick=") {
			t.Errorf("%s: policy %s", path, csp)
		}
	}
}
