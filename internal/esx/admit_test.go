package esx_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/decamp/decamp/internal/fault"
)

// With Admit, each login needs its permission, and the session does not count refused passwords.
func TestEachLoginRequiresAdmission(t *testing.T) {
	r := newESX(t)
	cfg := r.config()
	var admitErr error
	var results []error
	cfg.Admit = func(context.Context) (func(error), error) {
		return func(err error) { results = append(results, err) }, admitErr
	}
	s := dial(t, cfg)
	r.set(func(r *simServer) {
		r.answer = func(c call, w http.ResponseWriter) bool {
			return c.method == "Login" && soapFault(w, "InvalidLogin", "")
		}
	})
	r.expireSessions()
	const refused = 4 // more than a session tries without Admit
	for range refused {
		if _, err := s.VMs(t.Context()); !fault.Is(err, fault.Denied) || !errors.Is(err, fault.ErrLogin) {
			t.Fatal(err)
		}
	}
	admitErr = fault.New(fault.Denied, "shut")
	if _, err := s.VMs(t.Context()); !fault.Is(err, fault.Denied) {
		t.Fatal(err)
	}
	if n := r.countCalls("Login"); n != 1+refused || len(results) != n || results[0] != nil || !fault.Is(results[refused], fault.Denied) {
		t.Fatalf("%d logins, results %v", n, results)
	}
	admitErr = nil
	r.set(func(r *simServer) { r.answer = nil })
	if _, err := s.VMs(t.Context()); err != nil {
		t.Fatal(err)
	}
}
