package fleet

import (
	"crypto/tls"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/lab/loopback"
)

// A server is a decamp serve process.
type server struct {
	*process
	r           *testEnv
	addr        string
	fingerprint string
	token       string // path of the file with an administrator's token
}

// startServer starts a server with the state directory of the environment. more are further flags.
func (r *testEnv) startServer(listen string, more ...string) *server {
	r.t.Helper()
	return r.newServer(r.startCommand(append([]string{"serve", "--json", "--listen", listen, "--name", "server"}, more...)...))
}

// newServer returns the server of a process that was started with --json.
func (r *testEnv) newServer(p *process) *server {
	r.t.Helper()
	s := &server{process: p, r: r}
	var started struct{ Serving, Fingerprint string }
	line, _, _ := strings.Cut(p.waitForOutput(p.out, "\n"), "\n")
	must(r.t, json.Unmarshal([]byte(line), &started))
	s.addr, s.fingerprint = started.Serving, started.Fingerprint
	s.token = filepath.Join(r.dir, "admin.token")
	if _, err := os.Stat(s.token); err != nil {
		r.writeFile("admin.token", r.run("token", "add", "admin", "--role", "admin").wantExit(0).stdout)
	}
	return s
}

// flags returns the flags of a command that connects to the server.
func (s *server) flags() []string {
	return []string{"--server", "https://" + s.addr, "--token-file", s.token, "--server-fingerprint", s.fingerprint}
}

// runClient runs a command that connects to the server.
func (s *server) runClient(args ...string) result {
	s.r.t.Helper()
	return s.r.run(append(args, s.flags()...)...)
}

// A client submits a plan to a server and follows it. The server is killed, and a new one continues. SIGTERM stops it
// at the current step. No other process can use its state directory.
func TestServerIsKilledAndContinues(t *testing.T) {
	t.Parallel()
	cfg := labOf(8)
	cfg.Limits.DatastoreRate = 2 * slowRate
	cfg.VMs[7].Disks[0].Capacity = 32 << 20 // so long that it is paused before it is done
	r := newTestEnv(t, cfg)
	file := r.writePlanOfAll("served")
	s := r.startServer(loopback.Reserve(t), "--offer", r.vmFolder()) // reserved, so that no other test gets the address between two servers
	r.run("serve", "--listen", "127.0.0.1:0", "--offer", r.vmFolder()).wantExit(6).wantOutput("in use by process", "Remedy: ")
	s.runClient("plan", "run", file, "--detach").wantExit(0).wantOutput("Plan served is submitted")
	follower := startProcess(t, r.command(append([]string{"watch", "served"}, s.flags()...)...))
	r.waitFor("served", "two VMs are under way", func(v view) bool { return v.count(fleetdb.Running) >= 2 })
	s.runClient("status", "served").wantExit(0).wantOutput("Plan served", "8 VMs", "running", "server")
	r.waitForSent(slowRate)
	s.kill()

	s = r.startServer(s.addr, "--offer", r.vmFolder())
	s.runClient("pause", "served/vm08").wantExit(0)
	r.lab.SetLimits(lab.Limits{DatastoreRate: 8 * slowRate})
	r.waitFor("served", "a VM is done", func(v view) bool { return v.count(fleetdb.Done) >= 1 })
	r.lab.SetLimits(lab.Limits{DatastoreRate: trickle})
	drained := s.signalAndWait(syscall.SIGTERM)
	if drained.ExitStatus() != 0 {
		t.Errorf("SIGTERM ended the server with %v", drained)
	}
	v := r.waitFor("served", "stopped", func(v view) bool { return len(v.vms) == 8 })
	if n := v.count(fleetdb.Running, fleetdb.Assigned, fleetdb.Failed); n > 0 {
		t.Errorf("the server ended with running or failed VMs: %s", v)
	}

	r.lab.SetLimits(lab.Limits{})
	s = r.startServer(s.addr, "--offer", r.vmFolder())
	r.waitFor("served", "all VMs except the paused one are done", func(v view) bool { return v.count(fleetdb.Done) == 7 })
	s.runClient("resume", "served/vm08").wantExit(0)
	follower.wantExit(0).wantOutput("vm01: done", "vm08: done", "8 done")
	s.runClient("plan", "run", file).wantExit(0)
	r.checkAllPublished(r.vmFolder(), vmNames(8)...)
	r.checkOnlyPublished(r.vmFolder(), vmNames(8)...)
	r.checkSourceClean(inventory.PoweredOff, vmNames(8)...)
	r.checkPublishedOnce(r.waitFor("served", "ended", func(v view) bool { return v.plan.State == fleetdb.PlanEnded }), r.stateDir())
}

// plan run submits its plan to the server if a server uses the state directory, and waits for the end of the plan.
func TestPlanRunWithARunningServer(t *testing.T) {
	t.Parallel()
	r := newTestEnv(t, labOf(3))
	r.startServer("127.0.0.1:0", "--offer", r.vmFolder())
	r.run("plan", "run", r.writePlanOfAll("beside")).wantExit(0).wantOutput("Another decamp process executes the plan", "3 done")
	r.checkAllPublished(r.vmFolder(), vmNames(3)...)
}

// The database of a server is stopped and started again. The server reports that it is not ready, and its clients get
// the reason. A client that follows a plan continues to follow it to its end.
func TestServerSurvivesDatabaseOutage(t *testing.T) {
	t.Parallel()
	cfg := slowLabOf(6)
	for i := range cfg.VMs {
		cfg.VMs[i].Disks[0].Capacity = 32 << 20 // the copies last longer than the commands below
	}
	r, db := newPostgresServerEnv(t, cfg)
	a := r.startWorker("a", r.vmFolder())
	s := r.startServer("127.0.0.1:0")
	s.runClient("plan", "run", r.writePlanOfAll("kept"), "--detach").wantExit(0)
	follower := startProcess(t, r.command(append([]string{"watch", "kept"}, s.flags()...)...))
	follower.waitForOutput(follower.errs, "vm0") // progress of a VM, because all may have begun before the follower reads
	r.lab.SetLimits(lab.Limits{DatastoreRate: slowRate / 2})
	eventually(t, "status reports the bottleneck", func() bool {
		return strings.Contains(s.runClient("status", "kept").wantExit(0).stdout, "bottleneck: source")
	})
	s.runClient("advise", "kept").wantExit(0).wantOutput("bottleneck: source", "PART", "- source: ")
	r.waitForSent(slowRate)
	db.Stop()
	eventually(t, "the server is not ready", func() bool { return s.getStatus("/readyz") == http.StatusServiceUnavailable })
	if got := s.getStatus("/healthz"); got != http.StatusOK {
		t.Errorf("GET /healthz without the database: status %d, want 200", got)
	}
	s.runClient("pause", "kept").wantExit(5).wantOutput("the database does not answer", "Remedy: ")
	db.Restart()
	eventually(t, "the server is ready again", func() bool { return s.getStatus("/readyz") == http.StatusOK })
	s.runClient("status", "kept").wantExit(0).wantOutput("6 VMs")
	r.lab.SetLimits(lab.Limits{})
	follower.wantExit(0).wantOutput("vm01: done", "6 done")
	r.checkAllMoved("kept", r.vmFolder(), 6, a.state)
}

// getStatus returns the status of a GET request without a token; 0 without a response.
func (s *server) getStatus(path string) int {
	s.r.t.Helper()
	// The certificate is not verified, because the test is about the responses.
	c := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	a, err := c.Get("https://" + s.addr + path)
	if err != nil {
		return 0
	}
	must(s.r.t, a.Body.Close())
	return a.StatusCode
}
