package assemble

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

const host = "esx1:443"

func shownCertificate(fingerprint string) certificate {
	return certificate{
		Fingerprint: fingerprint, Subject: "CN=esx1", Issuer: "CN=VMware",
		NotBefore: time.Date(2025, 1, 2, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2035, 1, 2, 0, 0, 0, 0, time.UTC),
	}
}

func (r *testAssembler) mustTrust(fingerprint, given string) {
	r.t.Helper()
	if err := r.verifyCertificate(r.t.Context(), host, shownCertificate(fingerprint), Login{Fingerprint: given}); err != nil {
		r.t.Fatal(err)
	}
}

// mustNotTrust checks that the certificate is refused with Denied and a hint that contains the words.
func (r *testAssembler) mustNotTrust(fingerprint, given string, hint ...string) {
	r.t.Helper()
	err := r.verifyCertificate(r.t.Context(), host, shownCertificate(fingerprint), Login{Fingerprint: given})
	if !fault.Is(err, fault.Denied) {
		r.t.Fatalf("got error %v, want Denied", err)
	}
	mustContain(r.t, fault.HintOf(err), hint...)
}

func TestUnknownCertificateRequiresConfirmation(t *testing.T) {
	r := newTestAssembler(t)
	r.mustNotTrust("AA:01", "", "openssl x509", "decamp ls esxi://root@esx1 --fingerprint AA:01")
	r.mustNotTrust("AA:01", "", "--fingerprint") // the refused certificate is not stored
}

func TestGivenFingerprintIsStored(t *testing.T) {
	r := newTestAssembler(t)
	r.mustTrust("AA:01", "aa01")
	r.mustTrust("AA:01", "")
	r.mustNotTrust("AA:02", "aa:01", "openssl x509")
	st, err := os.Stat(filepath.Join(r.State, "known_hosts.json"))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("known hosts: %v, %v", st.Mode(), err)
	}
}

func TestChangedCertificateIsRefused(t *testing.T) {
	r := newTestAssembler(t)
	r.mustTrust("AA:01", "AA:01")
	r.mustNotTrust("BB:02", "", "find the cause", "--fingerprint BB:02")
	r.mustTrust("BB:02", "BB:02")
	r.mustTrust("BB:02", "")
	r.mustNotTrust("AA:01", "", "find the cause")
}

func TestOperatorConfirmsACertificate(t *testing.T) {
	r, p := newTestAssembler(t), &fakeTerminal{answer: "yes"}
	r.setTerminal(p)
	r.mustTrust("AA:01", "")
	mustContain(t, p.prompts, "Type yes to continue: ", "SHA-256  AA:01", "subject  CN=esx1", "2025-01-02 to 2035-01-02")
	p.prompts = ""
	if r.mustTrust("AA:01", ""); p.prompts != "" {
		t.Errorf("got a second prompt: %s", p.prompts)
	}
}

func TestOnlyYesConfirmsACertificate(t *testing.T) {
	for _, typed := range []string{"", "no", "y", "YES"} {
		r := newTestAssembler(t)
		r.setTerminal(&fakeTerminal{answer: typed})
		r.mustNotTrust("AA:01", "", "--fingerprint")
		if _, err := os.Stat(filepath.Join(r.State, "known_hosts.json")); err == nil {
			t.Errorf("answer %q confirmed the certificate", typed)
		}
	}
}

func TestDamagedKnownHostsAreNotIgnored(t *testing.T) {
	r := newTestAssembler(t)
	path := filepath.Join(r.State, "known_hosts.json")
	if err := os.WriteFile(path, []byte("{torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := r.verifyCertificate(t.Context(), host, shownCertificate("AA:01"), Login{Fingerprint: "AA:01"})
	if !fault.Is(err, fault.Corrupt) || !strings.Contains(fault.HintOf(err), path) {
		t.Errorf("got %v, hint %q", err, fault.HintOf(err))
	}
}
