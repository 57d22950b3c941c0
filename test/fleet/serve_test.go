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

// serving is a decamp serve that others come in at.
type serving struct {
	*process
	r           *rig
	addr        string
	fingerprint string
	token       string // file
}

// serve starts a server of the rig's state directory; more are its flags.
func (r *rig) serve(listen string, more ...string) *serving {
	r.t.Helper()
	return r.served(r.begin(append([]string{"serve", "--json", "--listen", listen, "--name", "server"}, more...)...))
}

// served is a server that was started with --json.
func (r *rig) served(p *process) *serving {
	r.t.Helper()
	s := &serving{process: p, r: r}
	var told struct{ Serving, Fingerprint string }
	line, _, _ := strings.Cut(p.says(p.out, "\n"), "\n")
	must(r.t, json.Unmarshal([]byte(line), &told))
	s.addr, s.fingerprint = told.Serving, told.Fingerprint
	s.token = filepath.Join(r.dir, "admin.token")
	if _, err := os.Stat(s.token); err != nil {
		r.write("admin.token", r.run("token", "add", "admin", "--role", "admin").ends(0).stdout)
	}
	return s
}

// flags returns the flags of a command that connects to the server.
func (s *serving) flags() []string {
	return []string{"--server", "https://" + s.addr, "--token-file", s.token, "--server-fingerprint", s.fingerprint}
}

// asks runs a command that connects to the server.
func (s *serving) asks(args ...string) result {
	s.r.t.Helper()
	return s.r.run(append(args, s.flags()...)...)
}

// A plan is submitted to a server and followed there. The server is killed, and a new one continues. SIGTERM stops it at
// the current step. No other process gets its state directory.
func TestServerIsKilledAndGoesOn(t *testing.T) {
	t.Parallel()
	cfg := many(8)
	cfg.Limits.DatastoreRate = 2 * slowRate
	cfg.VMs[7].Disks[0].Capacity = 32 << 20 // to be paused when the first of the others is done
	r := newRig(t, cfg)
	file := r.all("served")
	s := r.serve(loopback.Reserve(t), "--offer", r.vms()) // others must not get it between two servers
	r.run("serve", "--listen", "127.0.0.1:0", "--offer", r.vms()).ends(6).says("in use by process", "Remedy: ")
	s.asks("plan", "run", file, "--detach").ends(0).says("Plan served is submitted")
	follower := start(t, r.command(append([]string{"watch", "served"}, s.flags()...)...))
	r.until("served", "two VMs are under way", func(v view) bool { return v.count(fleetdb.Running) >= 2 })
	s.asks("status", "served").ends(0).says("Plan served", "8 VMs", "running", "server")
	r.sent(slowRate)
	s.kill()

	r.lab.SetLimits(lab.Limits{DatastoreRate: 8 * slowRate})
	s = r.serve(s.addr, "--offer", r.vms())
	r.until("served", "a VM is done", func(v view) bool { return v.count(fleetdb.Done) >= 1 })
	r.lab.SetLimits(lab.Limits{DatastoreRate: trickle})
	s.asks("pause", "served/vm08").ends(0)
	drained := s.signal(syscall.SIGTERM)
	if drained.ExitStatus() != 0 {
		t.Errorf("SIGTERM ended the server with %v", drained)
	}
	v := r.until("served", "stopped", func(v view) bool { return len(v.vms) == 8 })
	if n := v.count(fleetdb.Running, fleetdb.Assigned, fleetdb.Failed); n > 0 {
		t.Errorf("the server ended, and left %s", v)
	}

	r.lab.SetLimits(lab.Limits{})
	s = r.serve(s.addr, "--offer", r.vms())
	r.until("served", "all but the paused one are done", func(v view) bool { return v.count(fleetdb.Done) == 7 })
	s.asks("resume", "served/vm08").ends(0)
	follower.ends(0).says("vm01: done", "vm08: done", "8 done")
	s.asks("plan", "run", file).ends(0)
	r.allPublished(r.vms(), names(8)...)
	r.onlyPublished(r.vms(), names(8)...)
	r.asFound(inventory.PoweredOff, names(8)...)
	r.publishedOnce(r.until("served", "ended", func(v view) bool { return v.plan.State == fleetdb.PlanEnded }), r.state())
}

// Where a server has the state directory, plan run hands the plan over to it, and ends with it.
func TestPlanRunBesideAServer(t *testing.T) {
	t.Parallel()
	r := newRig(t, many(3))
	r.serve("127.0.0.1:0", "--offer", r.vms())
	r.run("plan", "run", r.all("beside")).ends(0).says("Another decamp process executes the plan", "3 done")
	r.allPublished(r.vms(), names(3)...)
}

// The database of a server is stopped and started again. The server reports that it is not ready. Its clients get the
// reason or wait, and those that follow a plan follow it to its end.
func TestServerOutlivesItsDatabase(t *testing.T) {
	t.Parallel()
	r, db := newFleetOf(t, slow(6))
	a := r.worker("a", r.vms())
	s := r.serve("127.0.0.1:0")
	s.asks("plan", "run", r.all("kept"), "--detach").ends(0)
	follower := start(t, r.command(append([]string{"watch", "kept"}, s.flags()...)...))
	follower.says(follower.errs, "vm0") // one that gets on: by the time it looks, none may begin any more
	r.lab.SetLimits(lab.Limits{DatastoreRate: slowRate / 2})
	eventually(t, "what limits is said", func() bool {
		return strings.Contains(s.asks("status", "kept").ends(0).stdout, "bottleneck: source")
	})
	s.asks("advise", "kept").ends(0).says("bottleneck: source", "PART", "- source: ")
	r.sent(slowRate)
	db.Stop()
	eventually(t, "it says that it is not ready", func() bool { return s.answers("/readyz") == http.StatusServiceUnavailable })
	if got := s.answers("/healthz"); got != http.StatusOK {
		t.Errorf("without its database the server is not well: %d", got)
	}
	s.asks("pause", "kept").ends(5).says("the database does not answer", "Remedy: ")
	db.Restart()
	eventually(t, "it is ready again", func() bool { return s.answers("/readyz") == http.StatusOK })
	s.asks("status", "kept").ends(0).says("6 VMs")
	r.lab.SetLimits(lab.Limits{})
	follower.ends(0).says("vm01: done", "6 done")
	r.allIsHere("kept", r.vms(), 6, a.state)
}

// answers returns the status of a request without a token; 0 without a response.
func (s *serving) answers(path string) int {
	s.r.t.Helper()
	// the certificate is not checked: the test is about the responses
	c := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	a, err := c.Get("https://" + s.addr + path)
	if err != nil {
		return 0
	}
	must(s.r.t, a.Body.Close())
	return a.StatusCode
}
