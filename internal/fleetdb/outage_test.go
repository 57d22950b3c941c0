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

// While PostgreSQL is gone everything is Unreachable, and nothing else; when it is back all goes
// on by itself, and what was acknowledged is there.
func TestPostgresIsGoneAndBack(t *testing.T) {
	server := postgres.Start(t)
	outages := []struct {
		name      string
		out, back func()
	}{
		{"stopped", server.Stop, server.Restart},
		{"killed", server.Kill, server.Restart},
		{"frozen", server.Suspend, server.Continue},
	}
	for i, o := range outages {
		t.Run(o.name, func(t *testing.T) {
			f := newFleet(t, (&place{t: t, url: server.NewDatabase(fmt.Sprint("outage", i))}).open(), writers)
			l := startLoad(t, f, time.Second)
			l.all("works", func(w *loader) bool { return w.good > 2 })
			o.out()
			l.mark()
			l.all("sees that it is gone", func(w *loader) bool { return w.away > 0 })
			o.back()
			l.mark()
			l.all("works again", func(w *loader) bool { return w.good > 2 })
			l.end()
		})
	}
}

// load is a worker for each VM, all busy.
type load struct {
	t       *testing.T
	workers []*loader
	cancel  context.CancelFunc
	ends    sync.WaitGroup
}

type loader struct {
	f     *fleet
	claim Claim

	mu         sync.Mutex
	good, away int // since the last mark
	acked      int // the last step that was acknowledged
	wrong      error
}

// startLoad has them begin with the usual patience, as nobody makes up for what fails there, and work
// with another.
func startLoad(t *testing.T, f *fleet, patience time.Duration) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{t: t, cancel: cancel}
	for n := range writers {
		l.workers = append(l.workers, &loader{f: f, claim: f.run(n+1, "w1")})
	}
	f.db.patience = patience
	for _, w := range l.workers {
		l.ends.Go(func() { w.work(ctx) })
	}
	return l
}

func (w *loader) work(ctx context.Context) {
	lease, told := w.f.workers["w1"], []Progress{{Key: w.claim.Key}}
	for step := 1; ctx.Err() == nil; step++ {
		err := errors.Join(
			w.f.Claims.SetStep(ctx, w.claim, fmt.Sprint(step), ""),
			w.f.Leases.Renew(ctx, &lease, aMinute),
			w.f.Progress.Report(ctx, lease, told, nil),
			w.follow(ctx))
		if ctx.Err() == nil {
			w.count(step, err)
		}
	}
}

func (w *loader) follow(ctx context.Context) error {
	_, err := w.f.Feed.Changes(ctx, 0)
	return err
}

func (w *loader) count(step int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil:
		w.good++
		w.acked = step
	case allUnreachable(err):
		w.away++
	default:
		w.wrong = err
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

func (l *load) mark() {
	for _, w := range l.workers {
		w.mu.Lock()
		w.good, w.away = 0, 0
		w.mu.Unlock()
	}
}

// all waits until each worker fulfils a condition.
func (l *load) all(what string, is func(*loader) bool) {
	l.t.Helper()
	for began := time.Now(); ; <-time.After(10 * time.Millisecond) {
		n := 0
		for _, w := range l.workers {
			w.mu.Lock()
			if w.wrong != nil {
				l.t.Errorf("worker of %s: %v is a %s", w.claim.VM, w.wrong, fault.KindOf(w.wrong))
				n = len(l.workers)
				w.wrong = nil
			} else if is(w) {
				n++
			}
			w.mu.Unlock()
		}
		if n >= len(l.workers) {
			return
		}
		if time.Since(began) > patient {
			l.t.Fatalf("%d of %d workers: it %s", n, len(l.workers), what)
		}
	}
}

func (l *load) end() {
	l.t.Helper()
	l.cancel()
	l.ends.Wait()
	for i, w := range l.workers {
		v := l.workers[0].f.vm(i + 1)
		var step int
		if _, err := fmt.Sscan(v.Step, &step); err != nil || step < w.acked || v.State != Running {
			l.t.Errorf("%s is %s at step %q: %d was acknowledged", v.VM, v.State, v.Step, w.acked)
		}
	}
}

// A process that stands still amid its transaction is cut off by PostgreSQL. The others wait for
// that.
func TestAProcessThatStandsStillIsCutOff(t *testing.T) {
	p := postgresPlace(t)
	ctx := t.Context()
	f := newFleet(t, p.open(), 1)
	claim := f.run(1, "w1")
	p.url += "&idle_in_transaction_session_timeout=300ms"
	still := p.open()
	stopped, rev := standStill(t, still)
	if now := ok(f.Feed.Changes(ctx, 0))(t).Rev; now >= rev {
		t.Errorf("revision %d is to be seen, nobody committed it", now)
	}
	must(t, f.Claims.SetStep(ctx, claim, "copy", ""))
	if err := stopped.Commit(); err == nil {
		t.Error("who stood still goes on with what it began")
	}
	must(t, still.Limits.Set(ctx, "x", 1)) // and with all else
}

// Package flow makes its tables under a lock of its own, and builds indexes there that wait for
// every statement under way. A database that is opened meanwhile must not wait for that lock: each
// would wait for the other, and PostgreSQL would not know.
func TestOpeningDoesNotWaitForTheEngine(t *testing.T) {
	const engine = 0x646563616d70 // flow's migrationLock
	p := postgresPlace(t)
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

// Leases are renewed, and progress is told, beside a transaction that takes long.
func TestLeasesDoNotWaitForWhoStandsStill(t *testing.T) {
	p := postgresPlace(t)
	ctx := t.Context()
	f := newFleet(t, p.open(), 1)
	f.run(1, "w1")
	p.url += "&idle_in_transaction_session_timeout=1h"
	stopped, _ := standStill(t, p.open())
	worker := f.workers["w1"]
	must(t, errors.Join(
		f.Leases.Renew(ctx, &worker, aMinute),
		f.Leases.Renew(ctx, &f.sched, aMinute),
		f.Progress.Report(ctx, worker, []Progress{{Key: key(1), Done: 1}}, nil),
		f.SchedulerState.Request(ctx), f.SchedulerState.Write(ctx, f.sched, []byte("{}"))))
	must(t, stopped.Rollback())
}

// standStill begins a transaction as all that write do, and returns in its middle.
func standStill(t *testing.T, r *Database) (amid *sql.Tx, rev int64) {
	t.Helper()
	amid, err := r.db.durable.BeginTx(t.Context(), nil)
	must(t, err)
	must(t, amid.QueryRow(`UPDATE meta SET rev = rev + 1 WHERE id = 1 RETURNING rev`).Scan(&rev))
	return amid, rev
}

// Connections that ended while they were idle are nobody's error.
func TestPostgresWasRestartedMeanwhile(t *testing.T) {
	server := postgres.Start(t)
	f := newFleet(t, (&place{t: t, url: server.NewDatabase("restarted")}).open(), writers)
	l := startLoad(t, f, patience) // opens several
	l.all("works", func(w *loader) bool { return w.good > 0 })
	l.end()
	server.Stop()
	server.Restart()
	for range 2 * postgresIdle {
		must(t, f.Claims.SetStep(t.Context(), l.workers[0].claim, "after", ""))
	}
}

func TestNoPostgresThere(t *testing.T) {
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
			t.Errorf("%s: %v is %s, not %s (%s)", c.url, err, fault.KindOf(err), c.kind, fault.HintOf(err))
		}
	}
}

func TestWhoGivesUpWaitingHearsThat(t *testing.T) {
	r := sqlitePlace(t).open()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Limits.Set(ctx, "x", 1); !fault.Is(err, fault.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}
