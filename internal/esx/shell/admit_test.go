package shell_test

import (
	"context"
	"errors"
	"testing"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/lab"
)

// With Admit, each password needs its permission, and a refusal does not prevent later logins.
func TestEachPasswordRequiresAdmission(t *testing.T) {
	l := startLab(t, lab.Config{})
	cfg := fromLab(l)
	password, sent := l.Password(), 0
	var admitErr error
	var results []error
	cfg.Password = func(context.Context) (esx.Secret, error) { sent++; return esx.Secret(password), nil }
	cfg.Admit = func(context.Context) (func(error), error) {
		return func(err error) { results = append(results, err) }, admitErr
	}
	s := dial(t, cfg)
	refusedFor := func(why string) {
		t.Helper()
		l.DropSSH()
		eventually(t, why, func() bool {
			_, err := s.Run(t.Context(), "true")
			if err != nil && !errors.Is(err, fault.ErrLogin) && !fault.Is(err, fault.Transient) {
				t.Fatal(err)
			}
			return errors.Is(err, fault.ErrLogin)
		})
	}
	password = "expired"
	const refused = 3 // more than a Shell tries without Admit
	for range refused {
		refusedFor("a refusal")
	}
	admitErr = fault.New(fault.Denied, "shut").OfLogin()
	refusedFor("Admit refuses the login")
	if sent != 1+refused || len(results) != sent || results[0] != nil || !errors.Is(results[refused], fault.ErrLogin) {
		t.Fatalf("%d passwords sent, results %v", sent, results)
	}
	admitErr, password = nil, l.Password()
	if _, err := s.Run(t.Context(), "true"); err != nil {
		t.Fatal(err)
	}
}

// A host that hangs up after the password neither accepts nor refuses it. The second time in a row
// counts as a refusal. Admit then decides about later logins.
func TestHostDisconnectsAfterPassword(t *testing.T) {
	r := startRealHost(t, []string{"sh", "-c"})
	cfg := r.config()
	password := "secret"
	var results []error
	cfg.Password = func(context.Context) (esx.Secret, error) { return esx.Secret(password), nil }
	cfg.Admit = func(context.Context) (func(error), error) {
		return func(err error) { results = append(results, err) }, nil
	}
	s := dial(t, cfg)
	r.drop()
	password = hangUp
	for range 4 {
		if _, err := s.Run(t.Context(), "true"); err == nil {
			t.Fatal("the login succeeded")
		}
	}
	for i, want := range []fault.Kind{fault.Transient, fault.Denied, fault.Transient, fault.Denied} {
		if err := results[1+i]; !fault.Is(err, want) || errors.Is(err, fault.ErrLogin) != (want == fault.Denied) {
			t.Errorf("login %d: %v", i, err)
		}
	}
}
