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

// databaseSecret is the database's password, which comes in the environment.
const databaseSecret = "hush-db-51e9a2-do-not-tell"

// holders are the files of the rig that hold a secret, as it is or as HTTP carries it.
func (r *rig) holders(secret string) (files []string) {
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

// onlyIn checks that no file of the rig holds a secret but those that the test wrote.
func (r *rig) onlyIn(secret string, files ...string) {
	r.t.Helper()
	if found := r.holders(secret); !slices.Equal(found, files) {
		r.t.Errorf("files with a secret: %q, want %q", found, files)
	}
}

// nosy writes a plan whose hooks write down all they can see, and whose hosts are asked by SSH.
func (r *rig) nosy(name, port string) string {
	r.t.Helper()
	hook := r.writeHook("#!/bin/sh\ncat /proc/$$/environ /proc/$$/cmdline /proc/$PPID/cmdline >> seen\n")
	ends := "{pre: {command: [" + hook + "]}, post: {command: [" + hook + "]}}"
	return r.plan(name, "  ssh: {port: "+port+", credentials: {file: "+filepath.Join(r.dir, "password")+"}}\n"+
		"hooks: "+ends+"\ndefaults: {to: [dir:"+r.vms()+"], sourceHash: true, hooks: "+ends+"}\nselect: name ~ *\n")
}

// saw checks that the hooks ran, and that what they saw is on record: the search looks there.
func (r *rig) saw(plan string) {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(r.dir, "seen"))
	must(r.t, err)
	for _, want := range []string{"DECAMP_PLAN=" + plan, "--state", "DECAMP_VM=vm02"} {
		if !strings.Contains(string(text), want) {
			r.t.Errorf("the hooks did not see %s: %q", want, text)
		}
	}
}

// behindSSH is a lab of n VMs whose host has SSH on, at the port returned.
func behindSSH(t *testing.T, n int) (cfg lab.Config, port string) {
	t.Helper()
	cfg = many(n)
	cfg.SSH.Enabled, cfg.SSH.Addr = true, loopback.Reserve(t)
	_, port, err := net.SplitHostPort(cfg.SSH.Addr)
	must(t, err)
	return cfg, port
}

// The passwords of source and SSH are in the file they came from, a token's secret is in the
// file it was printed to, and in no other: no state, database, log, output, hook.
func TestSecretsStayWhereTheyAre(t *testing.T) {
	t.Parallel()
	cfg, port := behindSSH(t, 3)
	r := newRig(t, cfg)
	file := r.nosy("alone", port)
	ran := r.run(append([]string{"plan", "run", file, "-v"}, r.log("alone")...)...).ends(0).says("3 done", "hook")
	r.write("alone.said", ran.stdout+ran.stderr)
	r.saw("alone")

	s := r.serve("127.0.0.1:0", append([]string{"--offer", r.vms(), "-v"}, r.log("serve")...)...)
	for _, args := range [][]string{{"status", "alone"}, {"watch", "alone"}, {"plan", "run", file}} {
		asked := s.asks(append(args, append([]string{"-v"}, r.log("client")...)...)...).ends(0)
		r.write(args[0]+".said", asked.stdout+asked.stderr)
	}
	token, err := os.ReadFile(s.token)
	must(t, err)
	r.write("api.said", s.allAnswers(strings.TrimSpace(string(token)), "alone"))
	s.stops()
	r.write("serve.said", s.out.String()+s.errs.String())
	r.onlyIn(secret, "password")
	r.onlyIn(strings.TrimSpace(string(token)), "admin.token")
	key, err := os.ReadFile(filepath.Join(r.state(), "fleet.key"))
	must(t, err)
	_, signing, ok := strings.Cut(string(key), "decamp-fleet-key-1:")
	if !ok || len(strings.TrimSpace(signing)) != 43 {
		t.Fatalf("not a fleet key: %d bytes", len(key))
	}
	r.onlyIn(strings.TrimSpace(signing), "state/fleet.key")
}

// allAnswers returns what the API answers to every GET of its document, with an administrator's token.
func (s *serving) allAnswers(token, plan string) string {
	t := s.r.t
	t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, Timeout: time.Minute} // to itself
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
		t.Fatalf("%d VMs and %d paths: is the API being read right?", len(page.Items), len(document.Paths))
	}
	var all strings.Builder
	for path, methods := range document.Paths {
		if _, ok := methods["get"]; !ok || path == "/v1/events" { // which does not end
			continue
		}
		path = strings.NewReplacer("{plan}", plan, "{vm}", page.Items[0].VM).Replace(path)
		fmt.Fprintf(&all, "%s\n%s\n", path, get(path))
	}
	return all.String()
}

// The password of a worker for PostgreSQL appears nowhere else, and no other secret does.
func TestSecretsOfAWorkerStayWhereTheyAre(t *testing.T) {
	cfg, port := behindSSH(t, 2)
	r, db := newFleetOf(t, cfg)
	db.SetPassword(databaseSecret)
	r.run("status").ends(4).says("Remedy: ")
	t.Setenv("PGPASSWORD", databaseSecret)
	w := r.worker("a", r.vms(), "-v")
	submitted := r.run(append([]string{"plan", "run", r.nosy("far", port), "--detach", "-v"}, r.log("submit")...)...).ends(0)
	r.write("submit.said", submitted.stdout+submitted.stderr)
	r.until("far", "ended", func(v view) bool { return v.plan.State == fleetdb.PlanEnded && v.count(fleetdb.Done) == 2 })
	r.saw("far")
	if status := w.stops(); status != 0 {
		t.Errorf("the worker ended with %d", status)
	}
	r.write("worker.said", w.out.String()+w.errs.String())
	dump, err := exec.Command("pg_dump", "-d", r.db).Output()
	must(t, err)
	if !bytes.Contains(dump, []byte("name: far")) {
		t.Errorf("the dump lacks the plan: %s", dump)
	}
	r.write("dump.sql", string(dump))
	r.onlyIn(secret, "password")
	r.onlyIn(databaseSecret)
}
