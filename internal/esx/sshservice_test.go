package esx_test

import (
	"testing"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab"
)

// oneHost returns the first host of a session.
func oneHost(t *testing.T, s *esx.Session) inventory.MoRef {
	t.Helper()
	hosts, err := s.Hosts(t.Context())
	if err != nil || len(hosts) == 0 {
		t.Fatalf("%v, %v", hosts, err)
	}
	return hosts[0].Ref
}

func TestSSHIsStartedAndStopped(t *testing.T) {
	for _, vcenter := range []bool{false, true} {
		b := startLab(t, lab.Config{VCenter: vcenter})
		s := b.dial(t)
		host := oneHost(t, s)
		checkRuns := func(want bool) {
			t.Helper()
			if runs, err := s.SSHRuns(t.Context(), host); err != nil || runs != want {
				t.Errorf("SSH runs: %v, %v; want %v", runs, err, want)
			}
		}
		checkRuns(false)
		for _, step := range []struct {
			call func() error
			runs bool
		}{
			{func() error { return s.StopSSH(t.Context(), host) }, false},
			{func() error { return s.StartSSH(t.Context(), host) }, true},
			{func() error { return s.StartSSH(t.Context(), host) }, true},
			{func() error { return s.StopSSH(t.Context(), host) }, false},
		} {
			if err := step.call(); err != nil {
				t.Error(err)
			}
			checkRuns(step.runs)
		}
	}
}

func TestSSHStartIsRefused(t *testing.T) {
	s := startLab(t, lab.Config{ReadOnlyLicence: true}).dial(t)
	err := s.StartSSH(t.Context(), oneHost(t, s))
	if !esx.Forbidden(err) || !fault.Is(err, fault.Denied) || fault.HintOf(err) != esx.StartSSHRemedy {
		t.Errorf("free licence: %v (%s)", err, fault.HintOf(err))
	}
	if err := s.StopSSH(t.Context(), oneHost(t, s)); err != nil {
		t.Errorf("StopSSH without a running service: %v", err)
	}
	s = startLab(t, lab.Config{SSH: lab.SSH{Unavailable: true}}).dial(t)
	if err := s.StartSSH(t.Context(), oneHost(t, s)); err == nil || esx.Forbidden(err) {
		t.Errorf("a host without SSH: %v", err)
	}
}

func TestSSHHostKeyFromTheAPI(t *testing.T) {
	b := startLab(t, lab.Config{})
	key, err := b.dial(t).SSHHostKey(t.Context())
	if err != nil || string(key) != b.SSHHostKey("") {
		t.Errorf("%q, %v", key, err)
	}
	for _, cfg := range []lab.Config{{VCenter: true}, {SSH: lab.SSH{SecretKey: true}}} {
		if key, err := startLab(t, cfg).dial(t).SSHHostKey(t.Context()); !fault.Is(err, fault.Unsupported) {
			t.Errorf("%q, %v", key, err)
		}
	}
}
