package fleet

import (
	"fmt"
	"testing"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/lab/loopback"
)

// landed waits for the end of a plan whose n VMs land.
func (r *rig) landed(plan string, n int) {
	r.t.Helper()
	v := r.until(plan, "ended", func(v view) bool { return v.plan.State == fleetdb.PlanEnded })
	if v.count(fleetdb.Done) != n {
		r.t.Fatalf("not all are done: %s", v)
	}
}

// A server that lives on after a plan has nothing of it on any host.
func TestServerGivesBackWhatHostsLent(t *testing.T) {
	t.Parallel()
	cfg := many(2)
	cfg.NFS.Portmap = loopback.Reserve(t)
	r := newRig(t, cfg)
	s := r.begin("serve", "--listen", "127.0.0.1:0", "--name", "server", "--offer", r.vms())
	r.until("", "a server is there", func(view) bool { return true })
	r.submits(r.plan("lent", fmt.Sprintf("defaults: {to: [dir:%s], transport: landing, landing: {memory: 64M, listen: %q, portmap: %q}}\nselect: name ~ *\n",
		r.vms(), loopback.Reserve(t), cfg.NFS.Portmap)))
	r.landed("lent", 2)
	if len(r.lab.Mounts()) == 0 {
		t.Error("the datastore of the landing is gone with its last VM: the next one has to mount it again")
	}
	eventually(t, "what hosts lent is given back", func() bool { return len(r.lab.Mounts()) == 0 })
	if status := s.stops(); status != 0 {
		t.Errorf("the server ended with %d", status)
	}
}

// A server is killed with its plan's last VM, and the next one finds nothing to do: what hosts lent
// is given back all the same.
func TestNextServerGivesBackWhatHostsLent(t *testing.T) {
	t.Parallel()
	cfg := many(2)
	cfg.NFS.Portmap = loopback.Reserve(t)
	r := newRig(t, cfg)
	serve := func() *process {
		return r.begin("serve", "--listen", "127.0.0.1:0", "--name", "server", "--offer", r.vms())
	}
	s := serve()
	r.until("", "a server is there", func(view) bool { return true })
	r.submits(r.plan("lent", fmt.Sprintf("defaults: {to: [dir:%s], transport: landing, landing: {memory: 64M, listen: %q, portmap: %q}}\nselect: name ~ *\n",
		r.vms(), loopback.Reserve(t), cfg.NFS.Portmap)))
	r.landed("lent", 2)
	s.kill()
	if len(r.lab.Mounts()) == 0 {
		t.Fatal("nothing is left: there is nothing to test")
	}
	s = serve()
	s.says(s.errs, "decamp reverted that")
	if left := r.lab.Mounts(); len(left) > 0 {
		t.Errorf("a host still has %v", left)
	}
	if status := s.stops(); status != 0 {
		t.Errorf("the server ended with %d", status)
	}
}
