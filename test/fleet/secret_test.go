package fleet

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/lab/loopback"
)

// databaseSecret is the password of the database, which a worker gets in its environment.
const databaseSecret = "hush-db-51e9a2-do-not-tell"

// filesWith returns the files that contain a secret in plain text or in base64, as in HTTP.
func (r *testEnv) filesWith(secret string) (files []string) {
	r.t.Helper()
	coded := base64.StdEncoding.EncodeToString([]byte(secret))
	must(r.t, filepath.WalkDir(r.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte(secret)) || bytes.Contains(text, []byte(coded)) {
			name, _ := filepath.Rel(r.dir, path)
			files = append(files, name)
		}
		return err
	}))
	return files
}

// checkOnlyIn checks that only these files contain a secret.
func (r *testEnv) checkOnlyIn(secret string, files ...string) {
	r.t.Helper()
	if found := r.filesWith(secret); !slices.Equal(found, files) {
		r.t.Errorf("files with a secret: %q, want %q", found, files)
	}
}

// writeSpyingPlan writes a plan that logs in to its host by SSH. Its hooks write the environments and command lines
// that they can read to the file seen.
func (r *testEnv) writeSpyingPlan(name, port string) string {
	r.t.Helper()
	hook := r.writeHook("#!/bin/sh\ncat /proc/$$/environ /proc/$$/cmdline /proc/$PPID/cmdline >> seen\n")
	ends := "{pre: {command: [" + hook + "]}, post: {command: [" + hook + "]}}"
	return r.writePlan(name, "  ssh: {port: "+port+", credentials: {file: "+filepath.Join(r.dir, "password")+"}}\n"+
		"hooks: "+ends+"\ndefaults: {to: [dir:"+r.vmFolder()+"], sourceHash: true, hooks: "+ends+"}\nselect: name ~ *\n")
}

// checkSeen checks that the hooks have written to the file seen, so that filesWith searches their output.
func (r *testEnv) checkSeen(plan string) {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(r.dir, "seen"))
	must(r.t, err)
	for _, want := range []string{"DECAMP_PLAN=" + plan, "--state", "DECAMP_VM=vm02"} {
		if !strings.Contains(string(text), want) {
			r.t.Errorf("the hooks did not see %s: %q", want, text)
		}
	}
}

// sshLabOf is labOf with an SSH server on the host. It also returns the port of that server.
func sshLabOf(t *testing.T, n int) (cfg lab.Config, port string) {
	t.Helper()
	cfg = labOf(n)
	cfg.SSH.Enabled, cfg.SSH.Addr = true, loopback.Reserve(t)
	_, port, err := net.SplitHostPort(cfg.SSH.Addr)
	must(t, err)
	return cfg, port
}

// The passwords of the source and of SSH are only in the password file. A token's secret is only in the file to which
// it was printed. No state, database, log, output or hook contains them.
func TestSecretsAreOnlyInTheirFiles(t *testing.T) {
	t.Parallel()
	cfg, port := sshLabOf(t, 3)
	r := newTestEnv(t, cfg)
	file := r.writeSpyingPlan("alone", port)
	ran := r.run(append([]string{"plan", "run", file, "-v"}, r.logFlags("alone")...)...).wantExit(0).wantOutput("3 done", "hook")
	r.writeFile("alone.output", ran.stdout+ran.stderr)
	r.checkSeen("alone")

	s := r.startServer("127.0.0.1:0", append([]string{"--offer", r.vmFolder(), "-v"}, r.logFlags("serve")...)...)
	for _, args := range [][]string{{"status", "alone"}, {"watch", "alone"}, {"plan", "run", file}} {
		result := s.runClient(append(args, append([]string{"-v"}, r.logFlags("client")...)...)...).wantExit(0)
		r.writeFile(args[0]+".output", result.stdout+result.stderr)
	}
	token, err := os.ReadFile(s.token)
	must(t, err)
	r.writeFile("api.output", s.allResponses(strings.TrimSpace(string(token)), "alone"))
	s.stop()
	r.writeFile("serve.output", s.out.String()+s.errs.String())
	r.checkOnlyIn(secret, "password")
	r.checkOnlyIn(strings.TrimSpace(string(token)), "admin.token")
	key, err := os.ReadFile(filepath.Join(r.stateDir(), "fleet.key"))
	must(t, err)
	_, signing, ok := strings.Cut(string(key), "decamp-fleet-key-1:")
	if !ok || len(strings.TrimSpace(signing)) != 43 {
		t.Fatalf("not a fleet key: %d bytes", len(key))
	}
	r.checkOnlyIn(strings.TrimSpace(signing), "state/fleet.key")
}

// allResponses returns the responses of the API to every GET in its OpenAPI document, with an administrator's token.
func (s *server) allResponses(token, plan string) string {
	t := s.r.t
	t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, Timeout: time.Minute}
	defer client.CloseIdleConnections()
	get := func(path string) []byte {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.addr+path, nil)
		must(t, err)
		req.Header.Set("Authorization", "Bearer "+token)
		res, err := client.Do(req)
		must(t, err)
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		must(t, err)
		if res.StatusCode != http.StatusOK {
			t.Errorf("GET %s: %s: %s", path, res.Status, body)
		}
		return body
	}
	var document struct {
		Paths map[string]map[string]any `json:"paths"`
	}
	must(t, json.Unmarshal(get("/openapi.json"), &document))
	var page struct {
		Items []fleetdb.VM `json:"items"`
	}
	must(t, json.Unmarshal(get("/v1/plans/"+plan+"/vms"), &page))
	if len(page.Items) == 0 || len(document.Paths) < 10 {
		t.Fatalf("the API returned %d VMs and %d paths, want VMs and at least 10 paths", len(page.Items), len(document.Paths))
	}
	var all strings.Builder
	for path, methods := range document.Paths {
		if _, ok := methods["get"]; !ok || path == "/v1/events" { // an endless response
			continue
		}
		path = strings.NewReplacer("{plan}", plan, "{vm}", page.Items[0].VM).Replace(path)
		fmt.Fprintf(&all, "%s\n%s\n", path, get(path))
	}
	return all.String()
}

// No file contains the password of a worker for PostgreSQL, and only the password file contains that of the source.
func TestWorkerSecretsAreOnlyInTheirFiles(t *testing.T) {
	cfg, port := sshLabOf(t, 2)
	r, db := newPostgresServerEnv(t, cfg)
	db.SetPassword(databaseSecret)
	r.run("status").wantExit(4).wantOutput("Remedy: ")
	t.Setenv("PGPASSWORD", databaseSecret)
	w := r.startWorker("a", r.vmFolder(), "-v")
	submitted := r.run(append([]string{"plan", "run", r.writeSpyingPlan("far", port), "--detach", "-v"}, r.logFlags("submit")...)...).wantExit(0)
	r.writeFile("submit.output", submitted.stdout+submitted.stderr)
	r.waitFor("far", "ended", func(v view) bool { return v.plan.State == fleetdb.PlanEnded && v.count(fleetdb.Done) == 2 })
	r.checkSeen("far")
	if status := w.stop(); status != 0 {
		t.Errorf("the worker ended with %d", status)
	}
	r.writeFile("worker.output", w.out.String()+w.errs.String())
	dump, err := exec.Command("pg_dump", "-d", r.db).Output()
	must(t, err)
	if !bytes.Contains(dump, []byte("name: far")) {
		t.Errorf("the dump does not contain the plan: %s", dump)
	}
	r.writeFile("dump.sql", string(dump))
	r.checkOnlyIn(secret, "password")
	r.checkOnlyIn(databaseSecret)
}
