package fleetdb

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/lab/postgres"
)

// waitTimeout is the longest wait of a test for something that happens at once on an idle machine.
const waitTimeout = time.Minute

// A testDatabase is an empty database.
type testDatabase struct {
	t   testing.TB
	url string
	now func() time.Time // clock of the opened databases; nil for the real time
}

// onBoth runs a test on an empty database of each kind.
func onBoth(t *testing.T, test func(*testing.T, *testDatabase)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { test(t, newSQLite(t)) })
	t.Run("postgres", func(t *testing.T) { test(t, newPostgres(t)) })
}

func newSQLite(t testing.TB) *testDatabase {
	return &testDatabase{t: t, url: "sqlite:" + filepath.Join(t.TempDir(), "fleet.db")}
}

// newPostgres creates a database on a server that the tests share. Tests that stop a server start another one.
func newPostgres(t testing.TB) *testDatabase {
	t.Helper()
	return &testDatabase{t: t, url: shared.NewDatabase(t)}
}

var shared postgres.Shared

func TestMain(m *testing.M) {
	if url := os.Getenv(childURL); url != "" {
		os.Exit(runChild(url))
	}
	code := m.Run()
	shared.End()
	os.Exit(code)
}

// open opens the database like a process of the fleet.
func (p *testDatabase) open() *Database {
	p.t.Helper()
	r, err := Open(p.t.Context(), Config{URL: p.url, Now: p.now})
	if err != nil {
		p.t.Fatal(err)
	}
	r.db.patience = waitTimeout // the race detector is slow
	p.t.Cleanup(func() {
		if err := r.Close(); err != nil {
			p.t.Error(err)
		}
	})
	return r
}

// A fakeClock is a clock that tests advance.
type fakeClock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *fakeClock { return &fakeClock{at: time.Unix(1_800_000_000, 0)} }

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *fakeClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ok returns a function that returns v, or fails the test if err is not nil.
func ok[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		must(t, err)
		return v
	}
}

// someVMs returns the first n VMs of a plan.
func someVMs(plan string, n int) []VM {
	vms := make([]VM, n)
	for i := range vms {
		vms[i] = VM{
			Key: Key{plan, fmt.Sprintf("vm-%d", i+1)}, Name: fmt.Sprintf("web%04d", i+1), Seq: int64(i + 1),
			Source: "esx1:443", Host: "esx1", Datastore: "ds1", To: []string{"dir:/srv/vm"}, Runs: []string{"0123abcd"},
			Warm: i%2 == 1, Disks: 2, Bytes: 40 << 30, Spec: []byte(`{"to":["dir:/srv/vm"]}`),
		}
	}
	return vms
}

// A fleet is a database with a plan p, its VMs, a scheduler, and workers w1 and w2. Their leases last for a minute.
type fleet struct {
	*Database
	t       testing.TB
	sched   Lease
	workers map[string]Lease
}

const aMinute = time.Minute

func newFleet(t testing.TB, r *Database, vms int) *fleet {
	t.Helper()
	ctx := t.Context()
	ok(r.Plans.Add(ctx, Plan{Name: "p", Text: "version: 1\n", By: "ann"}))(t)
	must(t, r.VMs.Add(ctx, someVMs("p", vms)))
	f := &fleet{Database: r, t: t, workers: map[string]Lease{}}
	f.sched = ok(r.Leases.Acquire(ctx, "scheduler", "s1", aMinute))(t)
	for _, w := range []string{"w1", "w2"} {
		f.workers[w] = ok(r.Workers.Join(ctx, Worker{Name: w, Version: "1", VMs: 10, Offers: map[string]string{"/srv/vm": "id-" + w}}, aMinute))(t)
	}
	return f
}

func key(n int) Key { return Key{"p", fmt.Sprintf("vm-%d", n)} }

// grantVM grants VM n to a worker, and returns the claim.
func (f *fleet) grantVM(n int, worker string) Claim {
	f.t.Helper()
	vms := ok(f.Scheduling.Grant(f.t.Context(), f.sched, []Granted{{Key: key(n), Worker: worker, Expected: time.Hour}}))(f.t)
	if len(vms) != 1 || vms[0].State != Assigned || !vms[0].Granted || vms[0].Worker != worker {
		f.t.Fatalf("granted %+v", vms)
	}
	return Claim{key(n), worker, vms[0].Epoch}
}

// runVM grants VM n to a worker and begins it.
func (f *fleet) runVM(n int, worker string) Claim {
	f.t.Helper()
	c := f.grantVM(n, worker)
	must(f.t, f.Claims.Begin(f.t.Context(), c, []string{"id-" + worker}))
	return c
}

func (f *fleet) getVM(n int) VM {
	f.t.Helper()
	return ok(f.VMs.Get(f.t.Context(), key(n)))(f.t)
}
