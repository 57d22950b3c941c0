package fleet

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
)

// writeHookedPlan writes a plan with hooks that append "pre" or "post" to the file hooked. It returns both paths.
func (r *testEnv) writeHookedPlan(name string) (plan, hooked string) {
	r.t.Helper()
	hook, hooked := r.writeHook("#!/bin/sh\necho \"$DECAMP_WHEN\" >> hooked\n"), filepath.Join(r.dir, "hooked")
	ends := "{pre: {command: [" + hook + "]}, post: {command: [" + hook + "]}}"
	return r.writePlan(name, "hooks: "+ends+"\ndefaults: {to: [dir:"+r.vmFolder()+"], hooks: "+ends+"}\nselect: name ~ *\n"), hooked
}

// checkNothingBegun checks that no hook and no VM of a plan has begun.
func (r *testEnv) checkNothingBegun(hooked string) {
	r.t.Helper()
	if _, err := os.Stat(hooked); !errors.Is(err, fs.ErrNotExist) {
		r.t.Errorf("a hook has run: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(r.vmFolder(), "vm*")); err != nil || len(left) > 0 {
		r.t.Errorf("files of VMs exist: %q, %v", left, err)
	}
}

// A user with write access to the database adds a plan with hooks in the name of an administrator. It is not executed.
// The same plan is executed after it is submitted with the fleet's key.
func TestForgedPlanIsNotExecuted(t *testing.T) {
	t.Parallel()
	r := newPostgresEnv(t, labOf(2))
	path, hooked := r.writeHookedPlan("forged")
	text, err := os.ReadFile(path)
	must(t, err)
	_, err = r.database().Plans.Add(t.Context(), fleetdb.Plan{Name: "forged", Text: string(text), Folder: r.dir, By: "root", Role: "admin"})
	must(t, err)
	r.startWorker("a", r.vmFolder())
	v := r.waitFor("forged", "refused", func(v view) bool { return v.plan.Failure != nil })
	if f := v.plan.Failure; f.Kind != fault.Denied.String() || !strings.Contains(f.Text, "no signature") || f.Hint == "" || len(v.vms) != 0 {
		t.Errorf("the failure is %+v with %d VMs", f, len(v.vms))
	}
	r.run("retry", "forged") // a command adds no signature
	r.waitFor("forged", "refused again", func(v view) bool { return v.plan.Failure != nil })
	r.checkNothingBegun(hooked)

	r.run("plan", "run", path, "--detach").wantExit(0)
	r.waitFor("forged", "ended", func(v view) bool { return v.plan.State == fleetdb.PlanEnded && v.count(fleetdb.Done) == 2 })
	text, err = os.ReadFile(hooked)
	must(t, err)
	if n := strings.Count(string(text), "\n"); n != 6 {
		t.Errorf("%d hooks ran, want 6", n)
	}
}

// A plan with hooks waits without --allow-hooks, and continues on a worker that has the flag.
func TestHooksWaitForAllowHooks(t *testing.T) {
	t.Parallel()
	r := newPostgresEnv(t, labOf(2))
	r.hookless = true
	w := r.startWorker("a", r.vmFolder())
	path, hooked := r.writeHookedPlan("hooked")
	r.run("plan", "run", path, "--detach").wantExit(0)
	v := r.waitFor("hooked", "refused", func(v view) bool { return v.plan.Failure != nil })
	if f := v.plan.Failure; f.Kind != fault.Denied.String() || !strings.Contains(f.Hint, "--allow-hooks") {
		t.Errorf("the failure is %+v", f)
	}
	r.checkNothingBegun(hooked)
	w.stop()
	r.hookless = false
	r.startWorker("a", r.vmFolder())
	r.run("resume", "hooked").wantExit(0)
	r.waitFor("hooked", "ended", func(v view) bool { return v.plan.State == fleetdb.PlanEnded && v.count(fleetdb.Done) == 2 })
}

// Processes with a common database do not start without the fleet's key. They do not start with an unverified database
// on another machine either.
func TestFleetNeedsItsKeyAndAVerifiedDatabase(t *testing.T) {
	t.Parallel()
	r := newPostgresEnv(t, labOf(1))
	r.keyless = true
	path := r.writePlanOfAll("wave")
	for _, args := range [][]string{{"worker", "--join", r.db, "--offer", r.vmFolder()}, {"serve", "--listen", "127.0.0.1:0"}, {"plan", "run", path, "--detach"}} {
		r.run(args...).wantExit(3).wantOutput("fleet.key", "decamp key new")
	}
	key := filepath.Join(r.dir, "own.key")
	r.run("key", "new", key).wantExit(0).wantOutput("signs and verifies")
	r.run("key", "new", key).wantExit(6).wantOutput("decamp key add")
	r.run("key", "add", key).wantExit(0)
	r.run("key", "list", key).wantExit(0).wantOutput("signs and verifies", "\n", "  verifies")
	must(t, os.Chmod(key, 0o644))
	r.run("plan", "run", path, "--detach", "--fleet-key", key).wantExit(4).wantOutput("chmod 600")

	r.keyless = false
	r.db = strings.Replace(r.db, "127.0.0.1", "192.0.2.1", 1)
	for _, args := range [][]string{{"worker", "--join", r.db, "--offer", r.vmFolder()}, {"serve", "--listen", "127.0.0.1:0"}, {"plan", "run", path}, {"status"}, {"audit"}} {
		r.run(args...).wantExit(4).wantOutput("verify-full", "--insecure-database")
	}
}
