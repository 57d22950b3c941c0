package fleetdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/lab/postgres"
)

// While PostgreSQL is down, every call returns Unreachable. When it is up again, the calls succeed without a restart,
// and no acknowledged write is lost.
func TestPostgresOutageLosesNoWrites(t *testing.T) {
	server := postgres.Start(t)
	outages := []struct {
		name       string
		begin, end func()
	}{
		{"stopped", server.Stop, server.Restart},
		{"killed", server.Kill, server.Restart},
		{"frozen", server.Suspend, server.Continue},
	}
	for i, o := range outages {
		t.Run(o.name, func(t *testing.T) {
			f := newFleet(t, (&testDatabase{t: t, url: server.NewDatabase(fmt.Sprint("outage", i))}).open(), writers)
			l := startLoad(t, f, 5*time.Second)
			l.waitForAll("succeed", func(w *loader) bool { return w.good > 2 })
			o.begin()
			l.resetCounts()
			l.waitForAll("notice the outage", func(w *loader) bool { return w.unreachable > 0 })
			o.end()
			l.resetCounts()
			l.waitForAll("succeed again", func(w *loader) bool { return w.good > 2 })
			l.end()
		})
	}
}

// A load is a group of loaders.
type load struct {
	t       *testing.T
	workers []*loader
	cancel  context.CancelFunc
	ends    sync.WaitGroup
}

// A loader calls the database for one VM all the time.
type loader struct {
	f     *fleet
	claim Claim

	mu                sync.Mutex
	good, unreachable int   // rounds since resetCounts
	acked             int   // last acknowledged step
	unexpected        error // last other error
}

// startLoad starts a loader for each VM. The VMs begin with the default patience of the database, because a
// failure there is not repeated. The loaders work with the given patience.
func startLoad(t *testing.T, f *fleet, patience time.Duration) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{t: t, cancel: cancel}
	for n := range writers {
		l.workers = append(l.workers, &loader{f: f, claim: f.runVM(n+1, "w1")})
	}
	f.db.patience = patience
	for _, w := range l.workers {
		l.ends.Go(func() { w.run(ctx) })
	}
	return l
}

func (w *loader) run(ctx context.Context) {
	lease, reported := w.f.workers["w1"], []Progress{{Key: w.claim.Key}}
	for step := 1; ctx.Err() == nil; step++ {
		err := errors.Join(
			w.f.Claims.SetStep(ctx, w.claim, fmt.Sprint(step), ""),
			w.f.Leases.Renew(ctx, &lease, aMinute),
			w.f.Progress.Report(ctx, lease, reported, nil),
			w.readChanges(ctx))
		if ctx.Err() == nil {
			w.countRound(step, err)
		}
	}
}

func (w *loader) readChanges(ctx context.Context) error {
	_, err := w.f.Feed.Changes(ctx, 0)
	return err
}

func (w *loader) countRound(step int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil:
		w.good++
		w.acked = step
	case allUnreachable(err):
		w.unreachable++
	default:
		w.unexpected = err
	}
}

func allUnreachable(err error) bool {
	for _, one := range err.(interface{ Unwrap() []error }).Unwrap() {
		if !fault.Is(one, fault.Unreachable) || fault.HintOf(one) == "" {
			return false
		}
	}
	return true
}

func (l *load) resetCounts() {
	for _, w := range l.workers {
		w.mu.Lock()
		w.good, w.unreachable = 0, 0
		w.mu.Unlock()
	}
}

// waitForAll waits until the condition holds for each loader.
func (l *load) waitForAll(what string, cond func(*loader) bool) {
	l.t.Helper()
	for began := time.Now(); ; <-time.After(10 * time.Millisecond) {
		n := 0
		for _, w := range l.workers {
			w.mu.Lock()
			if w.unexpected != nil {
				l.t.Errorf("loader of %s: error %v of kind %s, want Unreachable", w.claim.VM, w.unexpected, fault.KindOf(w.unexpected))
				n = len(l.workers)
				w.unexpected = nil
			} else if cond(w) {
				n++
			}
			w.mu.Unlock()
		}
		if n >= len(l.workers) {
			return
		}
		if time.Since(began) > waitTimeout {
			l.t.Fatalf("%d of %d loaders %s", n, len(l.workers), what)
		}
	}
}

func (l *load) end() {
	l.t.Helper()
	l.cancel()
	l.ends.Wait()
	for i, w := range l.workers {
		v := l.workers[0].f.getVM(i + 1)
		var step int
		if _, err := fmt.Sscan(v.Step, &step); err != nil || step < w.acked || v.State != Running {
			l.t.Errorf("%s is %s at step %q, want running at step %d or later", v.VM, v.State, v.Step, w.acked)
		}
	}
}

// PostgreSQL ends the transaction of a suspended process after a timeout. Other writers wait until then.
func TestTransactionOfSuspendedProcessIsEnded(t *testing.T) {
	p := newPostgres(t)
	ctx := t.Context()
	f := newFleet(t, p.open(), 1)
	claim := f.runVM(1, "w1")
	p.url += "&idle_in_transaction_session_timeout=3s"
	suspended := p.open()
	stopped, rev := beginWrite(t, suspended)
	if now := ok(f.Feed.Changes(ctx, 0))(t).Rev; now >= rev {
		t.Errorf("the newest revision is %d, but %d is not committed", now, rev)
	}
	must(t, f.Claims.SetStep(ctx, claim, "copy", ""))
	if err := stopped.Commit(); err == nil {
		t.Error("the suspended process committed its transaction")
	}
	must(t, suspended.Limits.Set(ctx, "x", 1)) // a new transaction succeeds
}

// Package workflow creates its tables under an advisory lock. The indexes that it builds then wait for all running
// statements. Opening a database must not wait for that lock: the two would wait for each other, and PostgreSQL does
// not detect that.
func TestOpenDoesNotWaitForWorkflowMigration(t *testing.T) {
	const engine = 0x646563616d70 // migrationLock of package workflow
	p := newPostgres(t)
	db, err := sql.Open("pgx", p.url)
	must(t, err)
	defer db.Close()
	c, err := db.Conn(t.Context())
	must(t, err)
	defer c.Close()
	_, err = c.ExecContext(t.Context(), `SELECT pg_advisory_lock($1)`, engine)
	must(t, err)
	p.open()
}

// Leases are renewed and progress is reported during a long transaction of another process.
func TestLeasesDoNotWaitForLongTransactions(t *testing.T) {
	p := newPostgres(t)
	ctx := t.Context()
	f := newFleet(t, p.open(), 1)
	f.runVM(1, "w1")
	p.url += "&idle_in_transaction_session_timeout=1h"
	stopped, _ := beginWrite(t, p.open())
	worker := f.workers["w1"]
	must(t, errors.Join(
		f.Leases.Renew(ctx, &worker, aMinute),
		f.Leases.Renew(ctx, &f.sched, aMinute),
		f.Progress.Report(ctx, worker, []Progress{{Key: key(1), Done: 1}}, nil),
		f.SchedulerState.Request(ctx), f.SchedulerState.Write(ctx, f.sched, []byte("{}"))))
	must(t, stopped.Rollback())
}

// beginWrite begins a transaction in the way of all writers, and does not end it.
func beginWrite(t *testing.T, r *Database) (open *sql.Tx, rev int64) {
	t.Helper()
	open, err := r.db.durable.BeginTx(t.Context(), nil)
	must(t, err)
	must(t, open.QueryRow(`UPDATE meta SET rev = rev + 1 WHERE id = 1 RETURNING rev`).Scan(&rev))
	return open, rev
}

// Connections that were closed while they were idle cause no error.
func TestIdleConnectionsSurvivePostgresRestart(t *testing.T) {
	server := postgres.Start(t)
	f := newFleet(t, (&testDatabase{t: t, url: server.NewDatabase("restarted")}).open(), writers)
	l := startLoad(t, f, patience) // opens several connections
	l.waitForAll("succeed", func(w *loader) bool { return w.good > 0 })
	l.end()
	server.Stop()
	server.Restart()
	for range 2 * postgresIdle {
		must(t, f.Claims.SetStep(t.Context(), l.workers[0].claim, "after", ""))
	}
}

func TestDatabaseOpenErrors(t *testing.T) {
	server := postgres.Start(t)
	cases := []struct {
		url  string
		kind fault.Kind
	}{
		{strings.Replace(server.URL(), "/postgres?", "/nothing?", 1), fault.NotFound},
		{strings.Replace(server.URL(), "decamp@", "nobody:secret@", 1), fault.Denied},
		{"postgres://decamp:secret@127.0.0.1:1/x?sslmode=disable", fault.Unreachable},
		{"postgres://decamp:secret@host.invalid/x", fault.Unreachable},
		{"postgres://decamp:secret@host:port/x", fault.Invalid},
		{"mysql://decamp:secret@host/x", fault.Invalid},
		{"sqlite:fleet.db", fault.Invalid},
		{"sqlite:/no/such/folder/fleet.db", fault.Denied},
	}
	for _, c := range cases {
		r, err := Open(t.Context(), Config{URL: c.url})
		if r != nil || !fault.Is(err, c.kind) || fault.HintOf(err) == "" || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v of kind %s, want %s with a hint (%q)", c.url, err, fault.KindOf(err), c.kind, fault.HintOf(err))
		}
	}
}

func TestCanceledContextIsReported(t *testing.T) {
	r := newSQLite(t).open()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Limits.Set(ctx, "x", 1); !fault.Is(err, fault.Canceled) {
		t.Errorf("with a canceled context: got %v, want Canceled", err)
	}
}
