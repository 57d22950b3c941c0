package fleet

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/lab"
)

// A view is the state of a plan in the database at one moment.
type view struct {
	plan fleetdb.Plan
	vms  map[string]fleetdb.VM // VMs by name
}

// count returns the number of VMs in one of these states.
func (v view) count(states ...fleetdb.State) (n int) {
	for _, vm := range v.vms {
		for _, s := range states {
			if vm.State == s {
				n++
			}
		}
	}
	return n
}

// database opens the database, and returns the same handle for later calls.
func (r *testEnv) database() *fleetdb.Database {
	r.t.Helper()
	if r.seen == nil {
		url := r.db
		if url == "" {
			url = "sqlite:" + filepath.Join(r.stateDir(), "fleet.db")
		}
		ro, err := fleetdb.Open(r.t.Context(), fleetdb.Config{URL: url, Insecure: r.insecure})
		must(r.t, err)
		r.t.Cleanup(func() { must(r.t, ro.Close()) })
		r.seen = ro
	}
	return r.seen
}

// waitFor waits until cond holds for the plan, and returns its state. It repeats reads that fail.
func (r *testEnv) waitFor(plan, what string, cond func(view) bool) view {
	r.t.Helper()
	ro := r.database()
	ctx, cancel := context.WithTimeout(r.t.Context(), waitTimeout)
	defer cancel()
	v := view{vms: map[string]fleetdb.VM{}}
	for rev := int64(0); ; {
		c, err := ro.Feed.Changes(ctx, rev)
		if err == nil {
			v.applyChanges(plan, c)
			if cond(v) {
				return v
			}
			rev = c.Rev
			err = ro.Feed.WaitForChange(ctx, rev)
		}
		if ctx.Err() != nil {
			r.t.Fatalf("timeout while waiting for plan %s: %s; it is %s", plan, what, v)
		}
		if err != nil {
			sleepContext(ctx, 100*time.Millisecond)
		}
	}
}

func (v *view) applyChanges(plan string, c fleetdb.Changes) {
	for _, p := range c.Plans {
		if p.Name == plan {
			v.plan = p
		}
	}
	for _, vm := range c.VMs {
		if vm.Plan == plan {
			v.vms[vm.Name] = vm
		}
	}
}

func (v view) String() string {
	s := string(v.plan.State)
	if v.plan.Failure != nil {
		s += ": " + v.plan.Failure.Text
	}
	for name, vm := range v.vms {
		s += "\n" + name + ": " + string(vm.State) + " " + vm.Step + " on " + vm.Worker + " " + vm.WaitReason
		if vm.Failure != nil {
			s += " (" + vm.Failure.Text + ")"
		}
	}
	return s
}

// sleepContext waits for d, or until ctx ends.
func sleepContext(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// waitForSent waits until the lab has sent this number of bytes of disks. Then it reduces the rate of the lab, so that
// copies do not end before the test sets other limits.
func (r *testEnv) waitForSent(bytes int64) {
	r.t.Helper()
	r.lab.SetLimits(lab.Limits{DatastoreRate: slowRate})
	eventually(r.t, "bytes of disks are sent", func() bool { return r.lab.Stats().BodyBytes >= bytes })
	r.lab.SetLimits(lab.Limits{DatastoreRate: trickle})
}

// eventually polls until cond returns true. Between two calls it waits for at least four times the duration of a call,
// because some calls start a decamp process.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	for began := time.Now(); !cond(); began = time.Now() {
		if ctx.Err() != nil {
			t.Fatalf("timeout while waiting for: %s", what)
		}
		sleepContext(ctx, max(10*time.Millisecond, 4*time.Since(began)))
	}
}
