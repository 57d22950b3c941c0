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

// patient is how long a test waits for what should be there at once.
const patient = time.Minute

// rig is a fleet, its server, and somebody who asks it.
type rig struct {
	*servertest.Fleet
	t      *testing.T
	client *http.Client
}

func newRig(t *testing.T, change func(*server.Config)) *rig {
	t.Helper()
	f := servertest.Start(t, change)
	r := &rig{f, t, f.Client()}
	t.Cleanup(r.client.CloseIdleConnections)
	return r
}

// answer is what the server says.
type answer struct {
	status int
	header http.Header
	body   string
}

// ask sends a request as somebody of that role; as nobody with "".
func (r *rig) ask(role server.Role, method, path, body string) answer {
	r.t.Helper()
	return r.askWith(method, path, body, func(req *http.Request) {
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

func (r *rig) askWith(method, path, body string, change func(*http.Request)) answer {
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
	return answer{resp.StatusCode, resp.Header, string(text)}
}

// into reads a JSON answer.
func (a answer) into(t *testing.T, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.body), v); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// plan adds a plan whose VMs all wait.
func (r *rig) plan(name string, vms int) {
	r.t.Helper()
	r.must(r.Plan(r.t.Context(), name, vms))
}

// running has the first VMs of a plan run.
func (r *rig) running(plan string, vms int) []fleetdb.Claim {
	r.t.Helper()
	claims, err := r.Run(r.t.Context(), plan, 1, vms)
	r.must(err)
	return claims
}

// audit returns the newest lines of the audit trail.
func (r *rig) audit(n int) []fleetdb.Entry {
	r.t.Helper()
	entries, err := r.Database.Audit.List(r.t.Context(), 0, n)
	r.must(err)
	return entries
}
