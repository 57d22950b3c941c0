package esx_test

import (
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
)

func TestFingerprintShowsTheServersCertificate(t *testing.T) {
	r := newESX(t)
	c, err := esx.Fingerprint(t.Context(), r.addr())
	if err != nil {
		t.Fatal(err)
	}
	plain := strings.ToLower(strings.ReplaceAll(c.Fingerprint, ":", ""))
	if plain != r.fingerprint() || !c.NotAfter.Equal(r.Certificate().NotAfter) || c.Issuer == "" {
		t.Fatalf("%+v, want %s", c, r.fingerprint())
	}
	for _, form := range []string{c.Fingerprint, plain, strings.ToUpper(plain)} {
		cfg := r.config()
		cfg.Fingerprint = form
		dial(t, cfg)
	}
	if n := r.countCalls("Login"); n != 3 {
		t.Fatalf("%d logins, want 3", n)
	}
}

func TestFingerprintOfAnUnreachableHost(t *testing.T) {
	r := newESX(t)
	addr := r.addr()
	r.Close()
	if _, err := esx.Fingerprint(t.Context(), addr); !fault.Is(err, fault.Unreachable) {
		t.Fatal(err)
	}
}

// A certificate other than the pinned one is refused before the first request.
func TestChangedCertificateIsDenied(t *testing.T) {
	r := newESX(t)
	cfg := r.config()
	shown := r.fingerprint()
	cfg.Fingerprint = strings.Repeat("ab", 32)
	_, err := esx.Dial(t.Context(), cfg)
	if !fault.Is(err, fault.Denied) {
		t.Fatalf("%v", err)
	}
	text := strings.ToLower(strings.ReplaceAll(err.Error(), ":", ""))
	if !strings.Contains(text, shown) || !strings.Contains(text, cfg.Fingerprint) || !strings.Contains(fault.HintOf(err), "--fingerprint") {
		t.Errorf("%v; hint %q", err, fault.HintOf(err))
	}
	if got := r.calledMethods(); len(got) != 0 {
		t.Errorf("called %q", got)
	}
}

func TestInvalidPinIsRefused(t *testing.T) {
	r := newESX(t)
	for _, pin := range []string{"", "xyz", "abcd", strings.Repeat("ab", 33), strings.Repeat("AA:", 31)} {
		cfg := r.config()
		cfg.Fingerprint = pin
		if _, err := esx.Dial(t.Context(), cfg); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", pin, err)
		}
	}
}
