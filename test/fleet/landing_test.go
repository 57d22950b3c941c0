package fleet

import (
	"fmt"
	"testing"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/lab/loopback"
)

// waitForDone waits for the end of a plan, and checks that n VMs are done.
func (r *testEnv) waitForDone(plan string, n int) {
	r.t.Helper()
	v := r.waitFor(plan, "ended", func(v view) bool { return v.plan.State == fleetdb.PlanEnded })
	if v.count(fleetdb.Done) != n {
		r.t.Fatalf("not all VMs are done: %s", v)
	}
}

// A server removes the datastores of a plan from the hosts after the plan has ended.
func TestServerRemovesDatastoresFromHosts(t *testing.T) {
	t.Parallel()
	cfg := labOf(2)
	cfg.NFS.Portmap = loopback.Reserve(t)
	r := newTestEnv(t, cfg)
	s := r.startCommand("serve", "--listen", "127.0.0.1:0", "--name", "server", "--offer", r.vmFolder())
	r.waitFor("", "a server has opened the database", func(view) bool { return true })
	r.submitPlan(r.writePlan("lent", fmt.Sprintf("defaults: {to: [dir:%s], transport: landing, landing: {memory: 64M, listen: %q, portmap: %q}}\nselect: name ~ *\n",
		r.vmFolder(), loopback.Reserve(t), cfg.NFS.Portmap)))
	r.waitForDone("lent", 2)
	if len(r.lab.Mounts()) == 0 {
		t.Error("the datastore was removed with the last VM, want it to remain for the next plan")
	}
	eventually(t, "the datastores are removed from the hosts", func() bool { return len(r.lab.Mounts()) == 0 })
	if status := s.stop(); status != 0 {
		t.Errorf("the server ended with %d", status)
	}
}

// A server is killed after the last VM of its plan. The next server has no plan to execute, and removes the datastores.
func TestNextServerRemovesDatastoresFromHosts(t *testing.T) {
	t.Parallel()
	cfg := labOf(2)
	cfg.NFS.Portmap = loopback.Reserve(t)
	r := newTestEnv(t, cfg)
	serve := func() *process {
		return r.startCommand("serve", "--listen", "127.0.0.1:0", "--name", "server", "--offer", r.vmFolder())
	}
	s := serve()
	r.waitFor("", "a server has opened the database", func(view) bool { return true })
	r.submitPlan(r.writePlan("lent", fmt.Sprintf("defaults: {to: [dir:%s], transport: landing, landing: {memory: 64M, listen: %q, portmap: %q}}\nselect: name ~ *\n",
		r.vmFolder(), loopback.Reserve(t), cfg.NFS.Portmap)))
	r.waitForDone("lent", 2)
	s.kill()
	if len(r.lab.Mounts()) == 0 {
		t.Fatal("the hosts have no datastore of the killed server")
	}
	s = serve()
	s.waitForOutput(s.errs, "decamp reverted that")
	if left := r.lab.Mounts(); len(left) > 0 {
		t.Errorf("hosts still have the datastores %v", left)
	}
	if status := s.stop(); status != 0 {
		t.Errorf("the server ended with %d", status)
	}
}
