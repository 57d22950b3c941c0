package browser_test

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/server"
	"github.com/decamp/decamp/internal/server/servertest"
	"github.com/decamp/decamp/test/browser"
)

func requireTool(t *testing.T, tool string) {
	t.Helper()
	if _, err := exec.LookPath(tool); err != nil {
		t.Skipf("no %s: run scripts/setup.sh test", tool)
	}
}

const planName = "wave-1"

// site is a fleet and a browser that shows its pages.
type site struct {
	*servertest.Fleet
	*browser.Browser
	t *testing.T
}

func openSite(t *testing.T, vms int) *site {
	t.Helper()
	requireTool(t, browser.Program)
	s := &site{servertest.Start(t, nil), nil, t}
	s.must(s.Fleet.Plan(t.Context(), planName, vms))
	s.Browser = browser.Start(t)
	return s
}

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// logIn logs in with the form of the page.
func (s *site) logIn(role server.Role) {
	s.t.Helper()
	s.Open(s.URL + "/")
	s.Wait(`location.pathname === "/login" && document.querySelector("input[name=token]")`)
	s.Eval(fmt.Sprintf(`document.querySelector("input[name=token]").value = %q; document.querySelector("form.login button").click()`, s.Tokens[role]), nil)
	s.Wait(`location.pathname === "/" && document.documentElement.dataset.live === "yes"`)
}

func vmRow(i int) string { return fmt.Sprintf(`document.querySelector("tr[data-vm=vm-%d]")`, i) }

// The page of a plan with 10,000 VMs updates itself, and its cutover button sends the command.
func TestPageUpdatesAndSendsCommands(t *testing.T) {
	s := openSite(t, 10_000)
	ctx := t.Context()
	claims, err := s.Run(ctx, planName, 1, 50)
	s.must(err)
	s.logIn(server.Operate)
	s.Wait(`document.querySelector("tr[data-plan='wave-1'] span.done").textContent === "0 of 10000 done"`)
	s.Eval(`document.querySelector("tr[data-plan='wave-1'] a").click()`, nil)
	s.Wait(`location.pathname === "/plans/wave-1" && document.documentElement.dataset.live === "yes"`)
	s.Wait(`document.querySelectorAll("tr[data-vm]").length === 100`)

	s.Eval(`window.sameDocument = true`, nil)
	s.must(s.Report(ctx, claims, 37))
	s.Wait(vmRow(3) + `.querySelector("progress").value === 37`)
	s.Wait(vmRow(3) + `.querySelector(".done").textContent === "37.0 GiB of 100.0 GiB, 18.5 GiB read"`)
	s.Wait(vmRow(3) + `.querySelector(".rate").textContent === "100.0 MB/s" && document.querySelector("#moving").textContent === "50"`)
	s.must(s.SetSchedulerState(ctx, server.SchedulerState{
		Resources: []server.Resource{{Name: "host:esx3/vms", Capacity: 20, Used: 20, Waiting: 9950}},
		Waiting:   []server.Waiting{{Key: servertest.Key(planName, 60), Reason: "host esx3: 20 of 20 vms; next in about 4 min"}},
	}))
	s.Wait(`document.querySelector("#bottleneck").textContent.includes("bottleneck: source (100 % busy); next: target, at ")`)
	s.Wait(vmRow(60) + `.querySelector(".why").textContent.includes("next in about 4 min")`)
	s.Wait(`document.querySelector("#bottleneck").textContent.includes("host esx3 vms: 20 of 20 in use, 9950 VMs wait")`)
	s.must(s.Database.Claims.Finish(ctx, claims[4], fleetdb.End{State: fleetdb.Done}))
	s.must(s.Database.Claims.Finish(ctx, claims[5], fleetdb.End{State: fleetdb.Failed, Failure: &fleetdb.Failure{Kind: "full", Text: "no space on /srv/vm", Hint: "free 3 GiB"}}))
	s.Wait(vmRow(5) + `.dataset.state === "done" && ` + vmRow(6) + `.querySelector(".why").textContent === "no space on /srv/vm – free 3 GiB"`)
	s.Wait(`document.querySelector("#plan span.done").textContent === "1 of 10000 done"`)
	var same, hidden bool
	s.Eval(`window.sameDocument === true`, &same)
	s.Eval(`getComputedStyle(`+vmRow(5)+`.querySelector("button[value=cutover]")).display === "none"`, &hidden)
	if !same || !hidden {
		t.Errorf("same document: %v, button of a VM that is done hidden: %v", same, hidden)
	}

	s.Eval(vmRow(2)+`.querySelector("button[value=cutover]").click()`, nil)
	s.Wait(`window.sameDocument === undefined && document.querySelectorAll("tr[data-vm]").length === 100 && ` + vmRow(2) + `.textContent.includes("command: cutover")`)
	if vm, err := s.Database.VMs.Get(ctx, servertest.Key(planName, 2)); err != nil || vm.Command != fleetdb.CutOver {
		t.Errorf("%+v, %v", vm, err)
	}
	if dialogs := s.Dialogs(); len(dialogs) != 1 || !strings.Contains(dialogs[0], "Cut over wave-1 guest 2 now?") {
		t.Errorf("dialogs %v", dialogs)
	}
	s.Eval(`document.querySelector("#next").click()`, nil)
	s.Wait(`location.search === "?after=100" && ` + vmRow(200))
	if errs := s.Errors(); len(errs) != 0 {
		t.Errorf("errors of the page: %v", errs)
	}
}

// The progress bar of a failed VM is empty. The pause button disappears when the plan ends.
func TestPageOfEndingPlan(t *testing.T) {
	s := openSite(t, 2)
	ctx := t.Context()
	claims, err := s.Run(ctx, planName, 1, 2)
	s.must(err)
	s.logIn(server.Operate)
	s.Open(s.URL + "/plans/" + planName)
	s.Wait(`location.pathname === "/plans/wave-1" && document.documentElement.dataset.live === "yes"`)
	s.must(s.Report(ctx, claims, 90))
	s.Wait(vmRow(1) + `.querySelector("progress").value === 90 && document.querySelector("#plan button[value=pause]")`)
	s.must(s.Database.Claims.Finish(ctx, claims[0], fleetdb.End{State: fleetdb.Failed}))
	s.must(s.Database.Claims.Finish(ctx, claims[1], fleetdb.End{State: fleetdb.Done}))
	s.Wait(vmRow(1) + `.querySelector("progress").value === 0 && ` + vmRow(2) + `.querySelector("progress").value === 100`)
	s.Wait(`document.querySelector("#plan progress").value === 1 && document.querySelector("#plan span.done").textContent === "1 of 2 done"`)
	s.must(s.Database.Plans.SetState(ctx, planName, fleetdb.PlanEnded, nil))
	s.Wait(`document.querySelector("#plan .state").textContent === "ended" && !document.querySelector("button[value=pause]") && document.querySelector("#plan button[value=retry]")`)
	if errs := s.Errors(); len(errs) != 0 {
		t.Errorf("errors of the page: %v", errs)
	}
}

// The page reports that the server does not answer. After a restart of the server, sessions have ended: the page shows
// the login form by itself and continues after a login.
func TestPageSurvivesServerRestart(t *testing.T) {
	s := openSite(t, 3)
	ctx := t.Context()
	claims, err := s.Run(ctx, planName, 1, 1)
	s.must(err)
	s.logIn(server.View)
	s.Open(s.URL + "/plans/" + planName)
	s.Wait(`location.pathname === "/plans/wave-1" && document.documentElement.dataset.live === "yes"`)
	s.must(s.Stop())
	s.Wait(`document.querySelector("#link").textContent === "not connected; trying again"`)
	s.must(s.Report(ctx, claims, 80))
	s.must(s.Serve(context.Background(), nil))
	s.Wait(`location.pathname === "/login" && document.querySelector("input[name=token]")`)
	s.logIn(server.View)
	s.Open(s.URL + "/plans/" + planName)
	s.Wait(`document.documentElement.dataset.live === "yes" && ` + vmRow(1) + `.querySelector("progress").value === 80 && document.querySelector("#link").textContent === ""`)
}

// The page of a plan with 10,000 VMs shows 100 VMs, so it is small and loads quickly.
func TestPageOfManyVMsIsSmall(t *testing.T) {
	s := openSite(t, 10_000)
	s.logIn(server.Operate)
	s.Open(s.URL + "/plans/" + planName)
	s.Wait(`location.pathname === "/plans/wave-1" && document.readyState === "complete"`)
	var took, size float64
	s.Eval(`performance.getEntriesByType("navigation")[0].loadEventEnd`, &took)
	s.Eval(`performance.getEntriesByType("navigation")[0].decodedBodySize`, &size)
	t.Logf("the page has %.0f KiB and loaded in %.0f ms", size/1024, took)
	if size > 400<<10 || time.Duration(took)*time.Millisecond > 30*time.Second {
		t.Errorf("the page has %.0f bytes and loaded in %.0f ms", size, took)
	}
}
