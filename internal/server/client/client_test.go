package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/server"
	"github.com/decamp/decamp/internal/server/client"
	"github.com/decamp/decamp/internal/server/servertest"
)

// testTimeout is the time after which a test gives up.
const testTimeout = time.Minute

func newClient(t *testing.T, f *servertest.Fleet, role server.Role) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{URL: f.URL, Token: f.Tokens[role], Fingerprint: f.Fingerprint})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// formatResult formats the result of a method of Control, so that results can be compared.
func formatResult(v any, err error) string {
	text, merr := json.Marshal(v)
	if merr != nil {
		return merr.Error()
	}
	if err != nil {
		return fmt.Sprintf("%v: %v (%s)", fault.KindOf(err), err, fault.HintOf(err))
	}
	return string(text)
}

// A client of the server and a local client return the same results.
func TestServerAndLocalClientsAgree(t *testing.T) {
	f := servertest.Start(t, nil)
	ctx := t.Context()
	if err := f.Plan(ctx, "p", 2345); err != nil {
		t.Fatal(err)
	}
	claims, err := f.Run(ctx, "p", 1, 3)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Report(ctx, claims, 12); err != nil {
		t.Fatal(err)
	}
	if err := f.SetSchedulerState(ctx, server.SchedulerState{Resources: []server.Resource{}, Waiting: []server.Waiting{{Key: servertest.Key("p", 9), Reason: "host esx1: 20 of 20"}}}); err != nil {
		t.Fatal(err)
	}
	far, near := server.Control(newClient(t, f, server.Admin)), server.Control(server.Local{Database: f.Database})
	for name, call := range map[string]func(server.Control) string{
		"plans":   func(c server.Control) string { return formatResult(c.Plans(ctx)) },
		"plan":    func(c server.Control) string { return formatResult(c.Plan(ctx, "p")) },
		"no plan": func(c server.Control) string { return formatResult(c.Plan(ctx, "q")) },
		"all VMs": func(c server.Control) string { return formatResult(c.VMs(ctx, fleetdb.Query{Plan: "p"})) },
		"some VMs": func(c server.Control) string {
			return formatResult(c.VMs(ctx, fleetdb.Query{Plan: "p", After: 3, Limit: 1500}))
		},
		"VMs that run": func(c server.Control) string {
			return formatResult(c.VMs(ctx, fleetdb.Query{Plan: "p", States: []fleetdb.State{fleetdb.Running, fleetdb.Done}, Worker: servertest.Worker}))
		},
		"VM":          func(c server.Control) string { return formatResult(c.VM(ctx, servertest.Key("p", 2))) },
		"no VM":       func(c server.Control) string { return formatResult(c.VM(ctx, servertest.Key("p", 9999))) },
		"progress":    func(c server.Control) string { return formatResult(c.Progress(ctx, "p")) },
		"no progress": func(c server.Control) string { p, err := c.Progress(ctx, "q"); return formatResult(len(p), err) },
		"pause":       func(c server.Control) string { return formatResult(nil, c.CommandPlan(ctx, "p", fleetdb.Pause)) },
		"resume":      func(c server.Control) string { return formatResult(nil, c.CommandPlan(ctx, "p", fleetdb.GoOn)) },
		"cutover": func(c server.Control) string {
			return formatResult(nil, c.CommandVM(ctx, servertest.Key("p", 1), fleetdb.CutOver))
		},
		"no rehearsal of a VM in the cutover": func(c server.Control) string {
			return formatResult(nil, c.Rehearse(ctx, servertest.Key("p", 1), fleetdb.Rehearsal{ID: "r-1"}))
		},
		"rehearsal": func(c server.Control) string {
			return formatResult(nil, c.Rehearse(ctx, servertest.Key("p", 2), fleetdb.Rehearsal{ID: "r-2", Expect: "up", Deadline: time.Minute}))
		},
		"rehearsals": func(c server.Control) string { return formatResult(c.Rehearsals(ctx, servertest.Key("p", 3))) },
		"rehearsals of no VM": func(c server.Control) string {
			all, err := c.Rehearsals(ctx, servertest.Key("p", 9999))
			return formatResult(len(all), err)
		},
		"nothing to take back": func(c server.Control) string {
			return formatResult(nil, c.TakeBack(ctx, servertest.Key("p", 3), "r-9"))
		},
		"no retry": func(c server.Control) string {
			return formatResult(nil, c.CommandVM(ctx, servertest.Key("p", 1), fleetdb.Retry))
		},
		"set limit":       func(c server.Control) string { return formatResult(nil, c.SetLimit(ctx, "host:esx1/rate", 100e6)) },
		"wrong limit":     func(c server.Control) string { return formatResult(nil, c.SetLimit(ctx, "foo/bar", 5)) },
		"limits":          func(c server.Control) string { return formatResult(c.Limits(ctx)) },
		"drain":           func(c server.Control) string { return formatResult(nil, c.Drain(ctx, servertest.Worker, false)) },
		"drain no worker": func(c server.Control) string { return formatResult(nil, c.Drain(ctx, "nobody", true)) },
		"workers": func(c server.Control) string {
			w, err := c.Workers(ctx)
			return formatResult(len(w) == 1 && w[0].Name == servertest.Worker && w[0].Alive, err)
		},
		"notifications": func(c server.Control) string {
			counts, err := c.Notifications(ctx)
			return formatResult(fmt.Sprint(len(counts), counts), err)
		},
		"scheduler state": func(c server.Control) string {
			b, at, err := c.SchedulerState(ctx)
			return formatResult(fmt.Sprint(string(b), at.UTC()), err)
		},
		"drop": func(c server.Control) string { return formatResult(nil, c.DropPlan(ctx, "p")) },
		"same plan": func(c server.Control) string {
			p, err := c.Submit(ctx, server.Submission{Text: servertest.PlanText("p")})
			return formatResult(p.Name, err)
		},
		"another plan": func(c server.Control) string {
			p, err := c.Submit(ctx, server.Submission{Text: servertest.PlanText("p") + "# \n"})
			return formatResult(p.Name, err)
		},
		"invalid plan": func(c server.Control) string {
			p, err := c.Submit(ctx, server.Submission{Text: "version: 1\nnmae: x\n"})
			return formatResult(p.Name, err)
		},
	} {
		if near, far := call(near), call(far); near != far {
			t.Errorf("%s: the database returns %.300s, the server %.300s", name, near, far)
		}
	}
}

// The documents for support contain metrics, but no hooks of plans: their arguments may be secrets.
func TestDocumentsForSupport(t *testing.T) {
	f := servertest.Start(t, nil)
	text := servertest.PlanText("p") + "hooks: {pre: {command: [/bin/true, hook-secret]}}\n"
	if _, err := f.Database.Plans.Add(t.Context(), fleetdb.Plan{Name: "p", Text: text}); err != nil {
		t.Fatal(err)
	}
	documents := map[string]any{}
	if err := server.Documents(t.Context(), newClient(t, f, server.Admin), documents); err != nil {
		t.Fatal(err)
	}
	all, err := json.Marshal(documents)
	if err != nil {
		t.Fatal(err)
	}
	for word, want := range map[string]bool{"decamp_plan_info": true, "esx1.example.com": true, "plans/1.json": true, "hook-secret": false} {
		if strings.Contains(string(all), word) != want {
			t.Errorf("%s: want %v in %s", word, want, all)
		}
	}
}

func TestSubmitReturnsPlanErrors(t *testing.T) {
	f := servertest.Start(t, nil)
	_, err := newClient(t, f, server.Operate).Submit(t.Context(), server.Submission{Text: "version: 1\nnmae: x\nsource: 3\n"})
	var m *server.PlanError
	if !errors.As(err, &m) || !fault.Is(err, fault.Invalid) || !slices.ContainsFunc(m.Findings, func(f planfile.Finding) bool { return f.Line == 2 && f.Remedy != "" && f.Blocks }) {
		t.Errorf("got %#v, %v; want a finding in line 2", m, err)
	}
}

func TestAuditTrailIsReadInPages(t *testing.T) {
	f := servertest.Start(t, nil)
	c := newClient(t, f, server.Admin)
	for i := range 7 {
		if err := c.SetLimit(t.Context(), "host:esx1/rate", int64(i)); err != nil {
			t.Fatal(err)
		}
	}
	one, err := c.Audit(t.Context(), 0, 4)
	if err != nil || len(one) != 4 {
		t.Fatalf("got first page %+v, %v", one, err)
	}
	two, err := c.Audit(t.Context(), one[3].ID, 4)
	if err != nil || len(two) != 3 || two[0].ID >= one[3].ID || two[0].Action != "set limit" || two[0].User != "test-admin" {
		t.Errorf("got second page %+v, %v", two, err)
	}
}

// Follow reopens the stream after a restart of the server, and misses no change.
func TestFollowSurvivesServerRestart(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	f := servertest.Start(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	if err := f.Plan(ctx, "p", 5); err != nil {
		t.Fatal(err)
	}
	seen := map[fleetdb.Key]fleetdb.State{}
	enough := errors.New("enough")
	listed := make(chan struct{})
	all := sync.OnceFunc(func() { close(listed) })
	done := make(chan error, 1)
	c := newClient(t, f, server.View)
	go func() {
		done <- c.Follow(ctx, 0, func(c fleetdb.Changes) error {
			for _, vm := range c.VMs {
				seen[vm.Key] = vm.State
			}
			if len(seen) == 5 {
				all()
			}
			if seen[servertest.Key("p", 4)] == fleetdb.Running {
				return enough
			}
			return nil
		})
	}()
	<-listed
	if err := f.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Run(ctx, "p", 1, 4); err != nil {
		t.Fatal(err)
	}
	if err := f.Serve(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, enough) {
		t.Fatalf("got %v", err)
	}
	if seen[servertest.Key("p", 1)] != fleetdb.Running || seen[servertest.Key("p", 5)] != fleetdb.Queued {
		t.Errorf("got states %v", seen)
	}
}

func TestUnverifiedServersReceiveNoToken(t *testing.T) {
	f := servertest.Start(t, nil)
	for name, conf := range map[string]client.Config{
		"no fingerprint, no CA": {URL: f.URL, Token: "secret"},
		"another fingerprint":   {URL: f.URL, Token: "secret", Fingerprint: strings.Repeat("00:", 31) + "00"},
	} {
		c, err := client.New(conf)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Plans(t.Context())
		if !fault.Is(err, fault.Denied) || conf.Fingerprint == "" && !strings.Contains(fault.HintOf(err), f.Fingerprint) {
			t.Errorf("%s: got %v (%s)", name, err, fault.HintOf(err))
		}
		c.Close()
	}
	for _, url := range []string{"", "host:8470", "ftp://host", "http://192.0.2.1:8470", "https://"} {
		if _, err := client.New(client.Config{URL: url, Token: "secret"}); !fault.Is(err, fault.Invalid) {
			t.Errorf("URL %q: got %v, want Invalid", url, err)
		}
	}
}

func TestResponsesOfOtherServersAreRefused(t *testing.T) {
	var target string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case target != "":
			http.Redirect(w, r, target, http.StatusFound)
		default:
			http.Error(w, "<html>", http.StatusBadGateway)
		}
	}))
	defer s.Close()
	c, err := client.New(client.Config{URL: s.URL, Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Plans(t.Context()); !fault.Is(err, fault.Transient) {
		t.Errorf("the error of a proxy: %v", err)
	}
	requested := false
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requested = true }))
	defer other.Close()
	target = other.URL
	if _, err := c.Plans(t.Context()); err == nil || requested {
		t.Errorf("a redirect to another server: %v, request sent %v", err, requested)
	}
	s.Close()
	if err := c.Follow(t.Context(), 0, nil); !fault.Is(err, fault.Unreachable) {
		t.Errorf("a closed server: %v", err)
	}
}

func TestCanceledContext(t *testing.T) {
	f := servertest.Start(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := newClient(t, f, server.View).Plans(ctx); !fault.Is(err, fault.Canceled) {
		t.Errorf("got %v", err)
	}
}
