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
	vms  map[string]fleetdb.VM // by name
}

// count is how many VMs are in one of these states.
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

// database opens the database beside its other users.
func (r *rig) database() *fleetdb.Database {
	r.t.Helper()
	if r.seen == nil {
		url := r.db
		if url == "" {
			url = "sqlite:" + filepath.Join(r.state(), "fleet.db")
		}
		ro, err := fleetdb.Open(r.t.Context(), fleetdb.Config{URL: url, Insecure: r.insecure})
		must(r.t, err)
		r.t.Cleanup(func() { must(r.t, ro.Close()) })
		r.seen = ro
	}
	return r.seen
}

// until waits until the plan is as is asked for, and returns how it is then. A database that
// does not answer is asked again.
func (r *rig) until(plan, what string, is func(view) bool) view {
	r.t.Helper()
	ro := r.database()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	v := view{vms: map[string]fleetdb.VM{}}
	for rev := int64(0); ; {
		c, err := ro.Feed.Changes(ctx, rev)
		if err == nil {
			v.take(plan, c)
			if is(v) {
				return v
			}
			rev = c.Rev
			err = ro.Feed.WaitForChange(ctx, rev)
		}
		if ctx.Err() != nil {
			r.t.Fatalf("%s: never %s; it is %s", plan, what, v)
		}
		if err != nil {
			pause(ctx, 100*time.Millisecond)
		}
	}
}

func (v *view) take(plan string, c fleetdb.Changes) {
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

// pause waits, or less if ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// sent waits until the lab has sent so many bytes of disks. Then it slows the lab down, so that copies are still
// under way for all that the test does next, until it sets other limits.
func (r *rig) sent(bytes int64) {
	r.t.Helper()
	r.lab.SetLimits(lab.Limits{DatastoreRate: slowRate})
	eventually(r.t, "bytes of disks are sent", func() bool { return r.lab.Stats().BodyBytes >= bytes })
	r.lab.SetLimits(lab.Limits{DatastoreRate: trickle})
}

// eventually polls until is returns true. Between two calls it waits for at least four times as long as a call lasts:
// some start a decamp, and the processors have other work.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for began := time.Now(); !is(); began = time.Now() {
		if ctx.Err() != nil {
			t.Fatalf("never: %s", what)
		}
		pause(ctx, max(10*time.Millisecond, 4*time.Since(began)))
	}
}
