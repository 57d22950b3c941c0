package server

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// A certificate has the highest of the roles among its organizational units, in any order.
func TestRoleOfACertificate(t *testing.T) {
	for _, tt := range []struct {
		name  string
		units []string
		want  Role
	}{
		{"ann", []string{"view"}, View},
		{"ann", []string{"admin", "view"}, Admin},
		{"ann", []string{"view", "operate"}, Operate},
		{"ann", []string{"operate", "staff"}, Operate},
		{"ann", []string{"staff"}, Nobody},
		{"ann", nil, Nobody},
		{"", []string{"admin"}, Nobody},
	} {
		who, err := byCertificate(&x509.Certificate{Subject: pkix.Name{CommonName: tt.name, OrganizationalUnit: tt.units}}, "192.0.2.1")
		if who.Role != tt.want || (tt.want == Nobody) != fault.Is(err, fault.Denied) || who.From != "192.0.2.1" {
			t.Errorf("name %q, units %q: got %+v, %v", tt.name, tt.units, who, err)
		}
		if tt.want == Nobody && who.Name != "" {
			t.Errorf("name %q, units %q: the user has a name, but no role", tt.name, tt.units)
		}
	}
}

func TestBearer(t *testing.T) {
	for header, want := range map[string]string{
		"Bearer decamp_x": "decamp_x", "bearer  decamp_x ": "decamp_x", "Basic decamp_x": "", "Bearer": "", "decamp_x": "", "": "",
	} {
		secret, ok := bearerToken(&http.Request{Header: http.Header{"Authorization": {header}}})
		if !ok {
			secret = ""
		}
		if secret != want || ok != (want != "") {
			t.Errorf("header %q: got %q, %v; want %q", header, secret, ok, want)
		}
	}
}

// The audit trail quotes the text of clients without characters that a terminal or a database interprets.
func TestAuditTrailQuotesSafeText(t *testing.T) {
	for text, want := range map[string]string{
		"wave-1/vm-42": "wave-1/vm-42", "a\x00b\x1b[2J": "a.b.[2J", "\xff\u202e\ufffd": "...", "Žižkov": "Žižkov",
		strings.Repeat("x", maxNote) + "y": strings.Repeat("x", maxNote),
	} {
		if got := shortenText(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// Retry-After has whole seconds and is rounded up.
func TestRetryAfterIsRoundedUp(t *testing.T) {
	for after, want := range map[time.Duration]string{time.Millisecond: "1", 1500 * time.Millisecond: "2", 9 * time.Second: "10"} {
		if got := (&tooManyError{after: after}).retrySeconds(); got != want {
			t.Errorf("%s: %s, want %s", after, got, want)
		}
	}
}

// A logout removes the cookie of the session.
func TestLogoutRemovesTheCookie(t *testing.T) {
	if c := newSessions(true).expiredCookie(); c.MaxAge >= 0 || c.Value != "" || c.Name != "__Host-decamp" {
		t.Errorf("got cookie %+v", c)
	}
}
