package fleet

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/journal"
)

// A logLine is one line of a log as JSON.
type logLine struct {
	Msg, Run, Plan, VM, Worker, Event, Level string
}

// logLines parses a log as JSON. Each line must be an object.
func logLines(t *testing.T, text string) (all []logLine) {
	t.Helper()
	for line := range strings.Lines(text) {
		var l logLine
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.Msg == "" || l.Level == "" {
			t.Errorf("line %q of the log is no record: %v", line, err)
		}
		all = append(all, l)
	}
	return all
}

// The lines of a run in the worker's log, the API, the events, the fleet database, the journal and the workflow record
// all contain the ID of the run. No log contains a password.
func TestAllRecordsOfARunHaveItsID(t *testing.T) {
	t.Parallel()
	r := newPostgresEnv(t, labOf(2))
	s := r.startServer("127.0.0.1:0", "--log-format", "json")
	w := r.startWorker("a", r.vmFolder(), "--log-format", "json")
	r.submitPlan(r.writePlanOfAll("joined"))
	v := r.waitFor("joined", "ended", func(v view) bool { return v.plan.State == fleetdb.PlanEnded })
	eventually(t, "both VMs are logged", func() bool { return strings.Count(w.errs.String(), `"msg":"vm done"`) == 2 })
	vm := v.vms["vm01"]
	if len(vm.Runs) != 1 {
		t.Fatalf("runs of the VM are %q, want one", vm.Runs)
	}
	id := vm.Runs[0]

	lines := logLines(t, w.errs.String())
	var messages, events []string
	for _, l := range lines {
		if l.Run != id {
			if l.VM == vm.VM {
				t.Errorf("a line about the VM has run %q: %+v", l.Run, l)
			}
			continue
		}
		if l.Event != "" {
			events = append(events, l.Event)
			continue
		}
		messages = append(messages, l.Msg)
		if l.Plan != "joined" || l.VM != vm.VM || l.Worker != "a" {
			t.Errorf("a line of the run has another plan, VM or worker: %+v", l)
		}
	}
	for _, want := range []string{"attempt begins", "vm done"} {
		if !slices.Contains(messages, want) {
			t.Errorf("the log does not contain %q: %q", want, messages)
		}
	}
	for _, want := range []journal.EventKind{journal.RunStarted, journal.StepStarted, journal.DiskDone, journal.RunDone} {
		if !slices.Contains(events, string(want)) {
			t.Errorf("the log does not contain the event %q: %q", want, events)
		}
	}
	logLines(t, s.errs.String())

	journaled, err := journal.NewStore(w.state).Events(journal.ID(id))
	must(t, err)
	for _, e := range journaled {
		if e.Run != journal.ID(id) {
			t.Errorf("the journal of run %s has an event of run %s", id, e.Run)
		}
	}
	if len(journaled) == 0 {
		t.Error("the journal is empty")
	}

	var listed struct {
		Runs   []string `json:"runs"`
		Worker string   `json:"worker"`
	}
	body := s.getBody("/v1/plans/joined/vms/" + vm.VM)
	must(t, json.NewDecoder(body).Decode(&listed))
	if !slices.Equal(listed.Runs, []string{id}) || listed.Worker != "a" {
		t.Errorf("the API returned %+v", listed)
	}
	found := false
	for text := bufio.NewScanner(s.getBody("/v1/events?since=0")); !found && text.Scan(); {
		found = strings.HasPrefix(text.Text(), "data:") && strings.Contains(text.Text(), `"runs":["`+id+`"]`)
	}
	if !found {
		t.Error("no event contains the run")
	}

	db, err := pgx.Connect(t.Context(), r.db)
	must(t, err)
	defer db.Close(context.WithoutCancel(t.Context()))
	for table, query := range map[string]string{
		"vms":             `SELECT count(*) FROM decamp.vms WHERE listing::json->'runs'->>0 = $1`,
		"workflow_status": `SELECT count(*) FROM decamp_flow.workflow_status WHERE workflow_uuid = $1`,
	} {
		var n int
		must(t, db.QueryRow(t.Context(), query, id).Scan(&n))
		if n != 1 {
			t.Errorf("%s has %d rows of the run, want 1", table, n)
		}
	}
	for _, name := range []string{w.errs.String(), s.errs.String()} {
		if strings.Contains(name, secret) {
			t.Error("a log contains the password")
		}
	}
	r.checkOnlyIn(secret, "password")
}

// getBody returns the body of a response of the API. It is closed when the test ends.
func (s *server) getBody(path string) io.Reader {
	s.t.Helper()
	token, err := os.ReadFile(filepath.Clean(s.token))
	must(s.t, err)
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "https://"+s.addr+path, nil)
	must(s.t, err)
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	s.t.Cleanup(client.CloseIdleConnections)
	resp, err := client.Do(req)
	must(s.t, err)
	s.t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		s.t.Fatalf("GET %s: %s", path, resp.Status)
	}
	return resp.Body
}
