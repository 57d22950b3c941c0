package shell_test

import (
	"context"
	"errors"
	"testing"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/lab"
)

// Who admits logins decides alone: no password is sent without, and refusals do not count after.
func TestPasswordsAreAdmitted(t *testing.T) {
	l := startLab(t, lab.Config{})
	cfg := fromLab(l)
	password, sent := l.Password(), 0
	var shut error
	var told []error
	cfg.Password = func(context.Context) (esx.Secret, error) { sent++; return esx.Secret(password), nil }
	cfg.Admit = func(context.Context) (func(error), error) {
		return func(err error) { told = append(told, err) }, shut
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
	const refused = 3 // more than a Shell would try by itself
	for range refused {
		refusedFor("a refusal")
	}
	shut = fault.New(fault.Denied, "shut").OfLogin()
	refusedFor("nobody is let in")
	if sent != 1+refused || len(told) != sent || told[0] != nil || !errors.Is(told[refused], fault.ErrLogin) {
		t.Fatalf("%d passwords sent; told %v", sent, told)
	}
	shut, password = nil, l.Password()
	if _, err := s.Run(t.Context(), "true"); err != nil {
		t.Fatal(err)
	}
}

// A host that hangs up after the password says nothing of it: the second time counts as a refusal,
// and then it is for whoever admits logins to say when there is another.
func TestHostThatHangsUpAfterThePassword(t *testing.T) {
	r := startReal(t, []string{"sh", "-c"})
	cfg := r.config()
	password := "secret"
	var told []error
	cfg.Password = func(context.Context) (esx.Secret, error) { return esx.Secret(password), nil }
	cfg.Admit = func(context.Context) (func(error), error) {
		return func(err error) { told = append(told, err) }, nil
	}
	s := dial(t, cfg)
	r.drop()
	password = hangUp
	for range 4 {
		if _, err := s.Run(t.Context(), "true"); err == nil {
			t.Fatal("it got in")
		}
	}
	for i, want := range []fault.Kind{fault.Transient, fault.Denied, fault.Transient, fault.Denied} {
		if err := told[1+i]; !fault.Is(err, want) || errors.Is(err, fault.ErrLogin) != (want == fault.Denied) {
			t.Errorf("login %d: %v", i, err)
		}
	}
}
