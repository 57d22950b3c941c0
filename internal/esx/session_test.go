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

func TestDialReadsWhatTheServerIs(t *testing.T) {
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

// A session ends in the middle of many calls: all of them succeed, by one login.
func TestExpiredSessionIsRenewedOnceForAll(t *testing.T) {
	r := newESX(t)
	s := r.dial(t)
	r.expire()
	var all sync.WaitGroup
	errs := make([]error, 16)
	for i := range errs {
		all.Go(func() { _, errs[i] = s.VMs(t.Context()) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if n := r.count("Login"); n != 2 {
		t.Fatalf("%d logins, want one at first and one more", n)
	}
}

func TestExpiredCookieIsRenewedOnceForAll(t *testing.T) {
	r := newESX(t)
	s := r.dial(t)
	stale, err := s.Cookie(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	r.expire()
	var all sync.WaitGroup
	got := make([]string, 16)
	for i := range got {
		all.Go(func() {
			c, err := s.Cookie(t.Context(), stale)
			if err != nil {
				t.Error(err)
			}
			got[i] = c
		})
	}
	all.Wait()
	for _, c := range got {
		if c == stale || c != got[0] {
			t.Fatalf("cookies %q after %q", got, stale)
		}
	}
	if n := r.count("Login"); n != 2 {
		t.Fatalf("%d logins, want 2", n)
	}
}

func TestHTTP401FromTheAPIRenewsTheSession(t *testing.T) {
	r := newESX(t)
	s := r.dial(t)
	refused := false
	r.set(func(r *rig) {
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
	if n := r.count("Login"); n != 2 {
		t.Fatalf("%d logins, want 2", n)
	}
}

// The clock stands for days without a call: touches come, logins do not.
func TestSessionIsKeptAlive(t *testing.T) {
	r := newESX(t)
	r.dial(t)
	<-r.clock.asked
	const touches = 300 // two days
	for range touches {
		r.clock.advance(10 * time.Minute)
		<-r.clock.asked
	}
	if n := r.count("RetrievePropertiesEx"); n != touches {
		t.Errorf("%d touches, want %d", n, touches)
	}
	if n := r.count("Login"); n != 1 {
		t.Errorf("%d logins, want 1", n)
	}
}

func TestKeepAliveRenewsASessionThatEnded(t *testing.T) {
	r := newESX(t)
	r.dial(t)
	<-r.clock.asked
	r.expire()
	r.clock.advance(10 * time.Minute)
	<-r.clock.asked
	if n := r.count("Login"); n != 2 {
		t.Fatalf("%d logins, want 2", n)
	}
}

func TestCookieIsTheSessionsOwnUntouched(t *testing.T) {
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

func TestCookieIsCheckedOnceAndThenCheap(t *testing.T) {
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

// The machine slept, so that the keep-alive did not run: the cookie is looked after
// before it is given out.
func TestOldCookieIsLookedAfterBeforeUse(t *testing.T) {
	r := newESX(t)
	cfg := r.config()
	cfg.After = func(time.Duration) <-chan time.Time { return nil }
	s := dial(t, cfg)
	first, err := s.Cookie(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	r.expire()
	r.clock.advance(24 * time.Minute)
	second, err := s.Cookie(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if first == second || r.count("Login") != 2 {
		t.Fatalf("cookie %q after %q, %d logins", second, first, r.count("Login"))
	}
}

func TestFolderThatWantsBasicIsAskedOnceIn25Minutes(t *testing.T) {
	r := newESX(t)
	r.set(func(r *rig) { r.basic = true })
	s := r.dial(t)
	basics := func() (n int) {
		for _, line := range r.requests() {
			if strings.HasSuffix(line, "basic") {
				n++
			}
		}
		return n
	}
	first := cookie(t, s, "")
	for range 10 {
		if c := cookie(t, s, ""); c != first {
			t.Fatalf("cookie %q, then %q", first, c)
		}
	}
	if n := basics(); n != 1 {
		t.Fatalf("%d Basic requests for 11 cookies", n)
	}
	r.clock.advance(25 * time.Minute)
	second := cookie(t, s, "")
	if second == first || basics() != 2 {
		t.Fatalf("after 25 minutes: cookie %q, %d Basic requests", second, basics())
	}
	if third := cookie(t, s, second); third == second || basics() != 3 {
		t.Fatalf("after a 401: cookie %q, %d Basic requests", third, basics())
	}
}

func cookie(t *testing.T, s *esx.Session, stale string) string {
	t.Helper()
	c, err := s.Cookie(t.Context(), stale)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestWrongPasswordSaysWhatToDo(t *testing.T) {
	r := newESX(t)
	cfg := r.config()
	cfg.Password = func(context.Context) (esx.Secret, error) { return "wrong", nil }
	_, err := esx.Dial(t.Context(), cfg)
	if !fault.Is(err, fault.Denied) || !strings.Contains(fault.HintOf(err), "locks after 5 failures in 15 minutes") {
		t.Fatalf("%v; hint %q", err, fault.HintOf(err))
	}
	if n := r.count("Login"); n != 1 {
		t.Fatalf("%d logins", n)
	}
}

// The password is changed on the host while decamp runs. However many calls follow, it
// is tried twice in 15 minutes, and asked for anew each time.
func TestLoginsStopBeforeTheAccountLocks(t *testing.T) {
	r := newESX(t)
	cfg := r.config()
	cfg.After = func(time.Duration) <-chan time.Time { return nil } // keep-alive would log in too, and use a try up
	asked := 0
	cfg.Password = func(context.Context) (esx.Secret, error) {
		if asked++; asked == 1 || asked > 3 {
			return password, nil
		}
		return "was changed", nil
	}
	s := dial(t, cfg)
	r.set(func(r *rig) {
		r.answer = func(c call, w http.ResponseWriter) bool {
			return c.method == "Login" && soapFault(w, "InvalidLogin", "")
		}
	})
	r.expire()
	for range 20 {
		if _, err := s.VMs(t.Context()); !fault.Is(err, fault.Denied) || fault.HintOf(err) == "" {
			t.Fatalf("%v; hint %q", err, fault.HintOf(err))
		}
	}
	if n := r.count("Login"); n != 3 {
		t.Fatalf("%d logins, want the first and 2 more", n)
	}
	r.set(func(r *rig) { r.answer = nil })
	r.clock.advance(899 * time.Second)
	if _, err := s.VMs(t.Context()); !fault.Is(err, fault.Denied) {
		t.Fatalf("899 s later: %v", err)
	}
	r.clock.advance(time.Second)
	if _, err := s.VMs(t.Context()); !fault.Is(err, fault.Denied) || r.count("Login") != 4 {
		t.Fatalf("900 s later: %v after %d logins, want one more refused", err, r.count("Login"))
	}
	if _, err := s.VMs(t.Context()); err != nil {
		t.Fatalf("with the right password: %v", err)
	}
}

func TestNobodyAnswers(t *testing.T) {
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
	if n := r.count("Logout"); n != 1 {
		t.Fatalf("%d logouts", n)
	}
}

func TestCloseAfterTheHostWent(t *testing.T) {
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

func TestSecretDoesNotTell(t *testing.T) {
	const s = esx.Secret("hunter2")
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "a", s, "b", struct{ P esx.Secret }{s})
	text, err := json.Marshal(map[string]esx.Secret{"p": s})
	if err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{fmt.Sprint(s), fmt.Sprintf("%v %s %#v %+v", s, s, s, struct{ P esx.Secret }{s}), log.String(), string(text)} {
		if strings.Contains(out, "hunter2") || !strings.Contains(out, "***") {
			t.Errorf("printed as %s", out)
		}
	}
}
