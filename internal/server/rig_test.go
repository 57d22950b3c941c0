package server_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/server"
	"github.com/decamp/decamp/internal/server/servertest"
)

// testTimeout is the time after which a test gives up.
const testTimeout = time.Minute

// testServer is a fleet with its server and a client of that server.
type testServer struct {
	*servertest.Fleet
	t      *testing.T
	client *http.Client
}

func newTestServer(t *testing.T, change func(*server.Config)) *testServer {
	t.Helper()
	f := servertest.Start(t, change)
	r := &testServer{f, t, f.Client()}
	t.Cleanup(r.client.CloseIdleConnections)
	return r
}

// response is a response of the server.
type response struct {
	status int
	header http.Header
	body   string
}

// sendAs sends a request with the token of role. With Nobody, it sends no token.
func (r *testServer) sendAs(role server.Role, method, path, body string) response {
	r.t.Helper()
	return r.send(method, path, body, func(req *http.Request) {
		if role != server.Nobody {
			req.Header.Set("Authorization", "Bearer "+r.Tokens[role])
		}
		switch {
		case strings.HasPrefix(body, "version:"):
			req.Header.Set("Content-Type", "application/yaml")
		case body != "":
			req.Header.Set("Content-Type", "application/json")
		}
	})
}

func (r *testServer) send(method, path, body string, change func(*http.Request)) response {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.URL+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	change(req)
	resp, err := r.client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return response{resp.StatusCode, resp.Header, string(text)}
}

// decodeJSON decodes the body into v.
func (a response) decodeJSON(t *testing.T, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.body), v); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
}

func (r *testServer) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// addPlan adds a plan with queued VMs.
func (r *testServer) addPlan(name string, vms int) {
	r.t.Helper()
	r.must(r.Plan(r.t.Context(), name, vms))
}

// runVMs starts the first VMs of a plan.
func (r *testServer) runVMs(plan string, vms int) []fleetdb.Claim {
	r.t.Helper()
	claims, err := r.Run(r.t.Context(), plan, 1, vms)
	r.must(err)
	return claims
}

// auditEntries returns the n newest entries of the audit trail.
func (r *testServer) auditEntries(n int) []fleetdb.Entry {
	r.t.Helper()
	entries, err := r.Database.Audit.List(r.t.Context(), 0, n)
	r.must(err)
	return entries
}
