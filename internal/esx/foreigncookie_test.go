package esx_test

import (
	"context"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
)

// A session given by its cookie is used without a login and stays open.
func TestSessionOfGivenCookieIsUsed(t *testing.T) {
	r := newESX(t)
	owner := r.dial(t)
	cookie, err := owner.Cookie(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, given := range []string{cookie, strings.TrimPrefix(cookie, "vmware_soap_session=")} {
		cfg := r.config()
		cfg.AnyProduct, cfg.URL.Scheme, cfg.Cookie = true, "vcenter", esx.Secret(given)
		s, err := esx.Dial(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.VMs(t.Context()); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if in, out := r.countCalls("Login"), r.countCalls("Logout"); in != 1 || out != 0 {
		t.Errorf("%d logins, %d logouts", in, out)
	}
}

// If the session of the given cookie has ended, Dial logs in, and Close logs out.
func TestEndedSessionOfACookieIsReplaced(t *testing.T) {
	r := newESX(t)
	cfg := r.config()
	cfg.Cookie = "ended"
	s, err := esx.Dial(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if in, out := r.countCalls("Login"), r.countCalls("Logout"); in != 1 || out != 1 {
		t.Errorf("%d logins, %d logouts", in, out)
	}
	cfg.Password = func(context.Context) (esx.Secret, error) {
		return "", fault.New(fault.Denied, "no password")
	}
	if _, err := esx.Dial(t.Context(), cfg); !fault.Is(err, fault.Denied) {
		t.Errorf("without a password: %v", err)
	}
}
