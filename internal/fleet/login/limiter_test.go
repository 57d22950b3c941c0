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

// openDatabase returns an empty fleet database. Its clock is now, or the real one if now is nil.
func openDatabase(t *testing.T, now func() time.Time) *fleetdb.Database {
	t.Helper()
	db, err := fleetdb.Open(t.Context(), fleetdb.Config{URL: "sqlite:" + filepath.Join(t.TempDir(), "fleet.db"), Now: now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// tryLogin calls login when the limiter permits it.
func tryLogin(ctx context.Context, l *Limiter, login func() error) error {
	done, _, err := l.Admit(ctx)
	if err != nil {
		return err
	}
	err = login()
	done(err)
	return err
}

// The password has expired for the sessions of two processes. The sessions of the first process try one
// login in total, and those of the second try none. They try again when the refusal is removed.
func TestSessionsShareOneLoginAttempt(t *testing.T) {
	r := openDatabase(t, nil)
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
		t.Errorf("%d logins were refused, want 1", n)
	}
	if _, _, err := there.Admit(t.Context()); !fault.Is(err, fault.Denied) || fault.HintOf(err) == "" {
		t.Errorf("Admit in another process: got %v, want denied with a hint", err)
	}
	if err := r.Records.Drop(t.Context(), recordKind, "vc1:443"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{true, false} {
		pass, again, err := here.Admit(t.Context())
		if err != nil || again != want {
			t.Fatalf("after the refusal is removed: again is %v, want %v; %v", again, want, err)
		}
		pass(nil)
	}
}

// One process at a time logs in. The login of a dead process ends with its lease.
func TestOneProcessLogsInAtATime(t *testing.T) {
	now := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	r := openDatabase(t, func() time.Time { return now })
	alive, kill := context.WithCancel(t.Context())
	if _, _, err := NewLimiter(r, "vc1:443", "").Admit(alive); err != nil {
		t.Fatal(err)
	}
	waited, end := context.WithCancel(t.Context())
	end()
	if _, _, err := NewLimiter(r, "vc1:443", "").Admit(waited); err == nil {
		t.Fatal("two processes log in at a time")
	}
	kill()
	now = now.Add(2 * leaseTTL)
	var under, over atomic.Int32
	var all sync.WaitGroup
	for range 4 {
		process := NewLimiter(r, "vc1:443", "")
		for range 5 {
			all.Go(func() {
				err := tryLogin(t.Context(), process, func() error {
					if under.Add(1) > 1 {
						t.Error("two processes log in at a time")
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
		t.Errorf("%d logins, want 20", over.Load())
	}
}

// Refuse records a changed certificate like a refused login. An unreachable server is not recorded.
func TestChangedCertificateCountsAsRefusedLogin(t *testing.T) {
	r := openDatabase(t, nil)
	here := NewLimiter(r, "vc1:443", "")
	changed := fault.New(fault.Denied, "the certificate changed").WithHint("compare it")
	if err := here.Refuse(t.Context(), changed); !errors.Is(err, fault.ErrLogin) || fault.HintOf(err) != "compare it" {
		t.Errorf("Refuse of a changed certificate: got %v, want a refused login with the hint", err)
	}
	if err := here.Refuse(t.Context(), fault.New(fault.Unreachable, "no route to host")); errors.Is(err, fault.ErrLogin) {
		t.Errorf("Refuse of an unreachable server: got %v, want no refused login", err)
	}
	if _, _, err := NewLimiter(r, "vc1:443", "esx1").Admit(t.Context()); !errors.Is(err, fault.ErrLogin) {
		t.Errorf("Admit of a login by SSH: got %v, want the refused login", err)
	}
}
