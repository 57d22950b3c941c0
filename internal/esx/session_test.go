package esx_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
)

func TestDialReadsTheProduct(t *testing.T) {
	if a := newESX(t).dial(t).About(); a.VCenter || a.Name != "VMware ESXi" || a.Version == "" || a.Build == "" {
		t.Errorf("ESXi is %+v", a)
	}
	if a := newVPX(t).dial(t).About(); !a.VCenter || a.InstanceUUID == "" {
		t.Errorf("vCenter is %+v", a)
	}
}

func TestDialRefusesTheWrongScheme(t *testing.T) {
	r := newESX(t)
	cfg := r.config()
	cfg.URL.Scheme = "vcenter"
	_, err := esx.Dial(t.Context(), cfg)
	if !fault.Is(err, fault.Invalid) || fault.HintOf(err) != "use esxi://root@"+r.addr() {
		t.Fatalf("%v; hint %q", err, fault.HintOf(err))
	}
}

// If a session ends during many calls, all calls succeed after one login.
func TestExpiredSessionIsRenewedOnceForAll(t *testing.T) {
	r := newESX(t)
	s := r.dial(t)
	r.expireSessions()
	var calls sync.WaitGroup
	errs := make([]error, 16)
	for i := range errs {
		calls.Go(func() { _, errs[i] = s.VMs(t.Context()) })
	}
	calls.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if n := r.countCalls("Login"); n != 2 {
		t.Fatalf("%d logins, want 2", n)
	}
}

func TestExpiredCookieIsRenewedOnceForAll(t *testing.T) {
	r := newESX(t)
	s := r.dial(t)
	stale, err := s.Cookie(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	r.expireSessions()
	var calls sync.WaitGroup
	got := make([]string, 16)
	for i := range got {
		calls.Go(func() {
			c, err := s.Cookie(t.Context(), stale)
			if err != nil {
				t.Error(err)
			}
			got[i] = c
		})
	}
	calls.Wait()
	for _, c := range got {
		if c == stale || c != got[0] {
			t.Fatalf("cookies %q after %q", got, stale)
		}
	}
	if n := r.countCalls("Login"); n != 2 {
		t.Fatalf("%d logins, want 2", n)
	}
}

func TestHTTP401FromTheAPIRenewsTheSession(t *testing.T) {
	r := newESX(t)
	s := r.dial(t)
	refused := false
	r.set(func(r *simServer) {
		r.answer = func(c call, w http.ResponseWriter) bool {
			if c.method != "CreateContainerView" || refused {
				return false
			}
			refused = true
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
	})
	if _, err := s.Hosts(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := r.countCalls("Login"); n != 2 {
		t.Fatalf("%d logins, want 2", n)
	}
}

// The keep-alive calls the API for days of idle time, so no new login is needed.
func TestSessionIsKeptAlive(t *testing.T) {
	r := newESX(t)
	r.dial(t)
	<-r.clock.timers
	const keepAlives = 300 // two days
	for range keepAlives {
		r.clock.advance(10 * time.Minute)
		<-r.clock.timers
	}
	if n := r.countCalls("RetrievePropertiesEx"); n != keepAlives {
		t.Errorf("%d keep-alive calls, want %d", n, keepAlives)
	}
	if n := r.countCalls("Login"); n != 1 {
		t.Errorf("%d logins, want 1", n)
	}
}

func TestKeepAliveRenewsEndedSession(t *testing.T) {
	r := newESX(t)
	r.dial(t)
	<-r.clock.timers
	r.expireSessions()
	r.clock.advance(10 * time.Minute)
	<-r.clock.timers
	if n := r.countCalls("Login"); n != 2 {
		t.Fatalf("%d logins, want 2", n)
	}
}

func TestCookieIsNotChanged(t *testing.T) {
	r := newESX(t)
	c, err := r.dial(t).Cookie(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if want := `vmware_soap_session="520001/+=="`; c != want {
		t.Fatalf("cookie %s, want %s", c, want)
	}
	for _, line := range r.requests() {
		if line != "HEAD /folder cookie" {
			t.Errorf("request %q", line)
		}
	}
}

func TestCookieIsCheckedOnce(t *testing.T) {
	r := newESX(t)
	s := r.dial(t)
	for range 100 {
		if _, err := s.Cookie(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(r.requests()); n != 1 {
		t.Fatalf("%d requests for 100 cookies, want 1", n)
	}
}

// If the keep-alive did not run, because the machine slept, Cookie checks the cookie
// before it returns it.
func TestOldCookieIsCheckedBeforeUse(t *testing.T) {
	r := newESX(t)
	cfg := r.config()
	cfg.After = func(time.Duration) <-chan time.Time { return nil }
	s := dial(t, cfg)
	first, err := s.Cookie(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	r.expireSessions()
	r.clock.advance(24 * time.Minute)
	second, err := s.Cookie(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if first == second || r.countCalls("Login") != 2 {
		t.Fatalf("cookie %q after %q, %d logins", second, first, r.countCalls("Login"))
	}
}

func TestBasicLoginOncePer25Minutes(t *testing.T) {
	r := newESX(t)
	r.set(func(r *simServer) { r.basic = true })
	s := r.dial(t)
	basics := func() (n int) {
		for _, line := range r.requests() {
			if strings.HasSuffix(line, "basic") {
				n++
			}
		}
		return n
	}
	first := sessionCookie(t, s, "")
	for range 10 {
		if c := sessionCookie(t, s, ""); c != first {
			t.Fatalf("cookie %q, then %q", first, c)
		}
	}
	if n := basics(); n != 1 {
		t.Fatalf("%d Basic requests for 11 cookies", n)
	}
	r.clock.advance(25 * time.Minute)
	second := sessionCookie(t, s, "")
	if second == first || basics() != 2 {
		t.Fatalf("after 25 minutes: cookie %q, %d Basic requests", second, basics())
	}
	if third := sessionCookie(t, s, second); third == second || basics() != 3 {
		t.Fatalf("after a 401: cookie %q, %d Basic requests", third, basics())
	}
}

func sessionCookie(t *testing.T, s *esx.Session, stale string) string {
	t.Helper()
	c, err := s.Cookie(t.Context(), stale)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestWrongPasswordHasARemedy(t *testing.T) {
	r := newESX(t)
	cfg := r.config()
	cfg.Password = func(context.Context) (esx.Secret, error) { return "wrong", nil }
	_, err := esx.Dial(t.Context(), cfg)
	if !fault.Is(err, fault.Denied) || !strings.Contains(fault.HintOf(err), "locks after 5 failures in 15 minutes") {
		t.Fatalf("%v; hint %q", err, fault.HintOf(err))
	}
	if n := r.countCalls("Login"); n != 1 {
		t.Fatalf("%d logins", n)
	}
}

// The password is changed on the host while decamp runs. The session then tries at most
// two passwords in 15 minutes, and calls Password for each.
func TestLoginsStopBeforeTheAccountLocks(t *testing.T) {
	r := newESX(t)
	cfg := r.config()
	cfg.After = func(time.Duration) <-chan time.Time { return nil } // a login of the keep-alive would count too
	passwords := 0
	cfg.Password = func(context.Context) (esx.Secret, error) {
		if passwords++; passwords == 1 || passwords > 3 {
			return password, nil
		}
		return "was changed", nil
	}
	s := dial(t, cfg)
	r.set(func(r *simServer) {
		r.answer = func(c call, w http.ResponseWriter) bool {
			return c.method == "Login" && soapFault(w, "InvalidLogin", "")
		}
	})
	r.expireSessions()
	for range 20 {
		if _, err := s.VMs(t.Context()); !fault.Is(err, fault.Denied) || fault.HintOf(err) == "" {
			t.Fatalf("%v; hint %q", err, fault.HintOf(err))
		}
	}
	if n := r.countCalls("Login"); n != 3 {
		t.Fatalf("%d logins, want 3", n)
	}
	r.set(func(r *simServer) { r.answer = nil })
	r.clock.advance(899 * time.Second)
	if _, err := s.VMs(t.Context()); !fault.Is(err, fault.Denied) {
		t.Fatalf("899 s later: %v", err)
	}
	r.clock.advance(time.Second)
	if _, err := s.VMs(t.Context()); !fault.Is(err, fault.Denied) || r.countCalls("Login") != 4 {
		t.Fatalf("900 s later: %v after %d logins, want a refused fourth login", err, r.countCalls("Login"))
	}
	if _, err := s.VMs(t.Context()); err != nil {
		t.Fatalf("with the right password: %v", err)
	}
}

func TestUnreachableServerHasRemedy(t *testing.T) {
	r := newESX(t)
	cfg := r.config()
	r.Close()
	_, err := esx.Dial(t.Context(), cfg)
	if !fault.Is(err, fault.Unreachable) || fault.HintOf(err) == "" {
		t.Fatalf("%v; hint %q", err, fault.HintOf(err))
	}
}

func TestCanceledDialIsCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := esx.Dial(ctx, newESX(t).config()); !fault.Is(err, fault.Canceled) {
		t.Fatal(err)
	}
}

func TestCloseLogsOut(t *testing.T) {
	r := newESX(t)
	s, err := esx.Dial(t.Context(), r.config())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n := r.countCalls("Logout"); n != 1 {
		t.Fatalf("%d logouts", n)
	}
}

func TestCloseOfAnUnreachableHost(t *testing.T) {
	r := newESX(t)
	s, err := esx.Dial(t.Context(), r.config())
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestSecretIsNotPrinted(t *testing.T) {
	const s = esx.Secret("hunter2")
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "a", s, "b", struct{ P esx.Secret }{s})
	text, err := json.Marshal(map[string]esx.Secret{"p": s})
	if err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{fmt.Sprint(s), fmt.Sprintf("%v %s %#v %+v", s, s, s, struct{ P esx.Secret }{s}), log.String(), string(text)} {
		if strings.Contains(out, "hunter2") || !strings.Contains(out, "***") {
			t.Errorf("the printed secret is %s", out)
		}
	}
}
