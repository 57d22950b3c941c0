package esx_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/decamp/decamp/internal/fault"
)

// Who admits logins decides alone: none is made without, and refusals do not count after.
func TestLoginsAreAdmitted(t *testing.T) {
	r := newESX(t)
	cfg := r.config()
	var shut error
	var told []error
	cfg.Admit = func(context.Context) (func(error), error) {
		return func(err error) { told = append(told, err) }, shut
	}
	s := dial(t, cfg)
	r.set(func(r *rig) {
		r.answer = func(c call, w http.ResponseWriter) bool {
			return c.method == "Login" && soapFault(w, "InvalidLogin", "")
		}
	})
	r.expire()
	const refused = 4 // more than a session would try by itself
	for range refused {
		if _, err := s.VMs(t.Context()); !fault.Is(err, fault.Denied) || !errors.Is(err, fault.ErrLogin) {
			t.Fatal(err)
		}
	}
	shut = fault.New(fault.Denied, "shut")
	if _, err := s.VMs(t.Context()); !fault.Is(err, fault.Denied) {
		t.Fatal(err)
	}
	if n := r.count("Login"); n != 1+refused || len(told) != n || told[0] != nil || !fault.Is(told[refused], fault.Denied) {
		t.Fatalf("%d logins; told %v", n, told)
	}
	shut = nil
	r.set(func(r *rig) { r.answer = nil })
	if _, err := s.VMs(t.Context()); err != nil {
		t.Fatal(err)
	}
}
