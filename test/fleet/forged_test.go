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

// hookedPlan writes a plan with hooks that write their time to a file, whose path is returned, too.
func (r *rig) hookedPlan(name string) (plan, hooked string) {
	r.t.Helper()
	hook, hooked := r.writeHook("#!/bin/sh\necho \"$DECAMP_WHEN\" >> hooked\n"), filepath.Join(r.dir, "hooked")
	ends := "{pre: {command: [" + hook + "]}, post: {command: [" + hook + "]}}"
	return r.plan(name, "hooks: "+ends+"\ndefaults: {to: [dir:"+r.vms()+"], hooks: "+ends+"}\nselect: name ~ *\n"), hooked
}

// untouched checks that nothing of a plan was begun.
func (r *rig) untouched(hooked string) {
	r.t.Helper()
	if _, err := os.Stat(hooked); !errors.Is(err, fs.ErrNotExist) {
		r.t.Errorf("a hook was run: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(r.vms(), "vm*")); err != nil || len(left) > 0 {
		r.t.Errorf("VMs were moved: %q, %v", left, err)
	}
}

// Who can write to the database puts a plan there, with hooks, in the name of an admin. Nothing of
// it is done. Submitted with the fleet's key, the same plan is carried out.
func TestForgedPlanIsNotCarriedOut(t *testing.T) {
	t.Parallel()
	r := newFleet(t, many(2))
	path, hooked := r.hookedPlan("forged")
	text, err := os.ReadFile(path)
	must(t, err)
	_, err = r.database().Plans.Add(t.Context(), fleetdb.Plan{Name: "forged", Text: string(text), Folder: r.dir, By: "root", Role: "admin"})
	must(t, err)
	r.worker("a", r.vms())
	v := r.until("forged", "refused", func(v view) bool { return v.plan.Failure != nil })
	if f := v.plan.Failure; f.Kind != fault.Denied.String() || !strings.Contains(f.Text, "no signature") || f.Hint == "" || len(v.vms) != 0 {
		t.Errorf("failure %+v with %d VMs", f, len(v.vms))
	}
	r.run("retry", "forged") // an order makes it no better
	r.until("forged", "refused again", func(v view) bool { return v.plan.Failure != nil })
	r.untouched(hooked)

	r.run("plan", "run", path, "--detach").ends(0)
	r.until("forged", "ended", func(v view) bool { return v.plan.State == fleetdb.PlanEnded && v.count(fleetdb.Done) == 2 })
	said, err := os.ReadFile(hooked)
	must(t, err)
	if n := strings.Count(string(said), "\n"); n != 6 {
		t.Errorf("%d hooks ran, want 6", n)
	}
}

// Without --allow-hooks a plan with hooks waits, and goes on where they are allowed.
func TestHooksWaitForAllowHooks(t *testing.T) {
	t.Parallel()
	r := newFleet(t, many(2))
	r.hookless = true
	w := r.worker("a", r.vms())
	path, hooked := r.hookedPlan("hooked")
	r.run("plan", "run", path, "--detach").ends(0)
	v := r.until("hooked", "refused", func(v view) bool { return v.plan.Failure != nil })
	if f := v.plan.Failure; f.Kind != fault.Denied.String() || !strings.Contains(f.Hint, "--allow-hooks") {
		t.Errorf("failure %+v", f)
	}
	r.untouched(hooked)
	w.stops()
	r.hookless = false
	r.worker("a", r.vms())
	r.run("resume", "hooked").ends(0)
	r.until("hooked", "ended", func(v view) bool { return v.plan.State == fleetdb.PlanEnded && v.count(fleetdb.Done) == 2 })
}

// Processes of a common database do not start without the fleet's key, or with an unverified
// database on another machine.
func TestFleetNeedsItsKeyAndAVerifiedDatabase(t *testing.T) {
	t.Parallel()
	r := newFleet(t, many(1))
	r.keyless = true
	path := r.all("wave")
	for _, args := range [][]string{{"worker", "--join", r.db, "--offer", r.vms()}, {"serve", "--listen", "127.0.0.1:0"}, {"plan", "run", path, "--detach"}} {
		r.run(args...).ends(3).says("fleet.key", "decamp key new")
	}
	key := filepath.Join(r.dir, "own.key")
	r.run("key", "new", key).ends(0).says("signs and verifies")
	r.run("key", "new", key).ends(6).says("decamp key add")
	r.run("key", "add", key).ends(0)
	r.run("key", "list", key).ends(0).says("signs and verifies", "\n", "  verifies")
	must(t, os.Chmod(key, 0o644))
	r.run("plan", "run", path, "--detach", "--fleet-key", key).ends(4).says("chmod 600")

	r.keyless = false
	r.db = strings.Replace(r.db, "127.0.0.1", "192.0.2.1", 1)
	for _, args := range [][]string{{"worker", "--join", r.db, "--offer", r.vms()}, {"serve", "--listen", "127.0.0.1:0"}, {"plan", "run", path}, {"status"}, {"audit"}} {
		r.run(args...).ends(4).says("verify-full", "--insecure-database")
	}
}
