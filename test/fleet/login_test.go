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

// The password expires during a plan with running VMs. It is tried once; the plan reports the remedy and continues
// after it. Hooks of VMs that are retried do not run again.
func TestPasswordExpires(t *testing.T) {
	t.Parallel()
	r := newRig(t, slow(8))
	hook := r.writeHook("#!/bin/sh\necho \"$DECAMP_WHEN $DECAMP_VM\" >> hooked\n")
	p := r.begin("plan", "run", r.plan("expired", "defaults: {to: [dir:"+r.vms()+"], hooks: {pre: {command: ["+hook+"]}, post: {command: ["+hook+"]}}}\nselect: name ~ *\n"), "--vms", "2")
	r.until("expired", "two VMs are under way", func(v view) bool { return v.count(fleetdb.Running) == 2 })
	r.sent(1 << 20)
	r.lab.ExpirePassword()
	before := r.lab.Stats().SOAP["Login"]
	r.lab.KillSessions()
	r.lab.SetLimits(lab.Limits{DatastoreRate: slowRate}) // requests under way end without a session
	v := r.until("expired", "waits for the password", func(v view) bool { return v.plan.Failure != nil && v.count(fleetdb.Running, fleetdb.Assigned) == 0 })
	if v.plan.Failure.Kind != "denied" || v.plan.Failure.Hint == "" {
		t.Errorf("the plan's failure is %+v", v.plan.Failure)
	}
	if n := r.lab.Stats().SOAP["Login"] - before; n != 1 {
		t.Errorf("%d logins with the expired password", n)
	}
	r.run("status", "expired").ends(0).says("Remedy: ", "decamp resume expired")
	r.lab.RenewPassword()
	r.lab.SetLimits(lab.Limits{})
	r.run("resume", "expired").ends(0)
	p.ends(0)
	r.allIsHere("expired", r.vms(), 8, r.state())
	text, err := os.ReadFile(filepath.Join(r.dir, "hooked"))
	must(t, err)
	lines := strings.Fields(strings.ReplaceAll(string(text), " ", "-"))
	slices.Sort(lines)
	if len(lines) != 16 || len(slices.Compact(lines)) != 16 {
		t.Errorf("two hooks of eight VMs, some of which were tried twice, ran so: %q", lines)
	}
}

// The password for SSH is wrong, which all VMs need: it is sent once, and those who correct it have
// the plan go on.
func TestPasswordForSSHIsRefused(t *testing.T) {
	t.Parallel()
	cfg, port := behindSSH(t, 6)
	r := newRig(t, cfg)
	ssh := r.write("ssh", "wrong\n")
	file := r.plan("behind", "  ssh: {port: "+port+", credentials: {file: "+ssh+"}}\ndefaults: {to: [dir:"+r.vms()+"], sourceHash: true}\nselect: name ~ *\n")
	p := r.begin("plan", "run", file, "--vms", "6")
	r.until("behind", "waits for the password", func(v view) bool { return v.plan.Failure != nil && v.count(fleetdb.Running, fleetdb.Assigned) == 0 })
	if n := r.lab.Stats().SSHRefused; n != 1 {
		t.Errorf("the wrong password was sent %d times", n)
	}
	r.run("status", "behind").ends(0).says("by SSH", "decamp resume behind")
	r.write("ssh", secret+"\n")
	r.run("resume", "behind").ends(0)
	p.ends(0)
	r.allIsHere("behind", r.vms(), 6, r.state())
}
