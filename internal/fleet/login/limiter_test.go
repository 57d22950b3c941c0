package login

import (
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
)

var errDenied = fault.New(fault.Denied, "cannot complete login due to an incorrect user name or password").OfLogin()

// open returns an empty fleet database. Its clock is now, or the real one if now is nil.
func open(t *testing.T, now func() time.Time) *fleetdb.Database {
	t.Helper()
	db, err := fleetdb.Open(t.Context(), fleetdb.Config{URL: "sqlite:" + filepath.Join(t.TempDir(), "fleet.db"), Now: now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// try calls login once the limiter permits it.
func try(ctx context.Context, l *Limiter, login func() error) error {
	done, _, err := l.Admit(ctx)
	if err != nil {
		return err
	}
	err = login()
	done(err)
	return err
}

// Sessions of two processes find at the same time that the password expired: those of a process
// spend one login together, those of the next none. Resume lets them try again.
func TestSessionsSpendOneLoginTogether(t *testing.T) {
	r := open(t, nil)
	here, there := NewLimiter(r, "vc1:443", ""), NewLimiter(r, "vc1:443", "")
	var tried atomic.Int32
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if pass, _, err := here.Admit(t.Context()); err == nil {
				tried.Add(1)
				pass(errDenied)
			}
		})
	}
	all.Wait()
	if n := tried.Load(); n != 1 {
		t.Errorf("%d logins were refused", n)
	}
	if _, _, err := there.Admit(t.Context()); !fault.Is(err, fault.Denied) || fault.HintOf(err) == "" {
		t.Errorf("another process: %v", err)
	}
	if err := r.Records.Drop(t.Context(), recordKind, "vc1:443"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{true, false} {
		pass, again, err := here.Admit(t.Context())
		if err != nil || again != want {
			t.Fatalf("after resume: again is %v, want %v; %v", again, want, err)
		}
		pass(nil)
	}
}

// Logins of many processes follow each other. One that a process died in is over with its lease.
func TestLoginsFollowEachOther(t *testing.T) {
	now := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	r := open(t, func() time.Time { return now })
	life, dies := context.WithCancel(t.Context())
	if _, _, err := NewLimiter(r, "vc1:443", "").Admit(life); err != nil {
		t.Fatal(err)
	}
	waited, end := context.WithCancel(t.Context())
	end()
	if _, _, err := NewLimiter(r, "vc1:443", "").Admit(waited); err == nil {
		t.Fatal("two log in")
	}
	dies()
	now = now.Add(2 * leaseTTL)
	var under, over atomic.Int32
	var all sync.WaitGroup
	for range 4 {
		process := NewLimiter(r, "vc1:443", "")
		for range 5 {
			all.Go(func() {
				err := try(t.Context(), process, func() error {
					if under.Add(1) > 1 {
						t.Error("two log in")
					}
					runtime.Gosched()
					under.Add(-1)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
				over.Add(1)
			})
		}
	}
	all.Wait()
	if over.Load() != 20 {
		t.Errorf("%d logins, of 20", over.Load())
	}
}

// What keeps from a login is told to people once, as a refusal is.
func TestCertificateThatChangedIsARefusal(t *testing.T) {
	r := open(t, nil)
	here := NewLimiter(r, "vc1:443", "")
	changed := fault.New(fault.Denied, "the certificate changed").WithHint("compare it")
	if err := here.Refuse(t.Context(), changed); !errors.Is(err, fault.ErrLogin) || fault.HintOf(err) != "compare it" {
		t.Errorf("it is %v", err)
	}
	if err := here.Refuse(t.Context(), fault.New(fault.Unreachable, "no route to host")); errors.Is(err, fault.ErrLogin) {
		t.Errorf("marked: %v", err)
	}
	if _, _, err := NewLimiter(r, "vc1:443", "esx1").Admit(t.Context()); !errors.Is(err, fault.ErrLogin) {
		t.Errorf("somebody logs in by SSH: %v", err)
	}
}
