package fleet

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/lab"
)

// The password expires during a plan with running VMs. It is tried once. The plan reports the remedy and continues
// after it. Hooks of retried VMs do not run again.
func TestPasswordExpires(t *testing.T) {
	t.Parallel()
	r := newTestEnv(t, slowLabOf(8))
	hook := r.writeHook("#!/bin/sh\necho \"$DECAMP_WHEN $DECAMP_VM\" >> hooked\n")
	p := r.startCommand("plan", "run", r.writePlan("expired", "defaults: {to: [dir:"+r.vmFolder()+"], hooks: {pre: {command: ["+hook+"]}, post: {command: ["+hook+"]}}}\nselect: name ~ *\n"), "--vms", "2")
	r.waitFor("expired", "two VMs are under way", func(v view) bool { return v.count(fleetdb.Running) == 2 })
	r.waitForSent(1 << 20)
	r.lab.ExpirePassword()
	before := r.lab.Stats().SOAP["Login"]
	r.lab.KillSessions()
	r.lab.SetLimits(lab.Limits{DatastoreRate: slowRate}) // lets running requests end, whose sessions are closed
	v := r.waitFor("expired", "waits for the password", func(v view) bool { return v.plan.Failure != nil && v.count(fleetdb.Running, fleetdb.Assigned) == 0 })
	if v.plan.Failure.Kind != "denied" || v.plan.Failure.Hint == "" {
		t.Errorf("the plan's failure is %+v", v.plan.Failure)
	}
	if n := r.lab.Stats().SOAP["Login"] - before; n != 1 {
		t.Errorf("%d logins with the expired password, want 1", n)
	}
	r.run("status", "expired").wantExit(0).wantOutput("Remedy: ", "decamp resume expired")
	r.lab.RenewPassword()
	r.lab.SetLimits(lab.Limits{})
	r.run("resume", "expired").wantExit(0)
	p.wantExit(0)
	r.checkAllMoved("expired", r.vmFolder(), 8, r.stateDir())
	text, err := os.ReadFile(filepath.Join(r.dir, "hooked"))
	must(t, err)
	lines := strings.Fields(strings.ReplaceAll(string(text), " ", "-"))
	slices.Sort(lines)
	if len(lines) != 16 || len(slices.Compact(lines)) != 16 {
		t.Errorf("hooks ran as %q, want two of each of the eight VMs", lines)
	}
}

// The password for SSH, which all VMs need, is wrong. It is sent once, and the plan continues after the user corrects
// the password and resumes the plan.
func TestPasswordForSSHIsRefused(t *testing.T) {
	t.Parallel()
	cfg, port := sshLabOf(t, 6)
	r := newTestEnv(t, cfg)
	ssh := r.writeFile("ssh", "wrong\n")
	file := r.writePlan("behind", "  ssh: {port: "+port+", credentials: {file: "+ssh+"}}\ndefaults: {to: [dir:"+r.vmFolder()+"], sourceHash: true}\nselect: name ~ *\n")
	p := r.startCommand("plan", "run", file, "--vms", "6")
	r.waitFor("behind", "waits for the password", func(v view) bool { return v.plan.Failure != nil && v.count(fleetdb.Running, fleetdb.Assigned) == 0 })
	if n := r.lab.Stats().SSHRefused; n != 1 {
		t.Errorf("the wrong password was sent %d times, want 1", n)
	}
	r.run("status", "behind").wantExit(0).wantOutput("by SSH", "decamp resume behind")
	r.writeFile("ssh", secret+"\n")
	r.run("resume", "behind").wantExit(0)
	p.wantExit(0)
	r.checkAllMoved("behind", r.vmFolder(), 6, r.stateDir())
}
