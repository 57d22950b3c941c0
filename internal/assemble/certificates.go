package assemble

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/knownhosts"
)

// certificate has the properties of a server's certificate that the user compares.
type certificate struct {
	Fingerprint string    // SHA-256 as AA:BB:…
	Subject     string    // distinguished name of the subject
	Issuer      string    // distinguished name of the issuer
	NotBefore   time.Time // start of validity
	NotAfter    time.Time // end of validity
}

// fingerprintCommand prints the fingerprint on an ESXi host itself.
const fingerprintCommand = "openssl x509 -in /etc/vmware/ssl/rui.crt -noout -fingerprint -sha256"

// verifyCertificate decides whether the certificate that addr presents is accepted, and records a new
// acceptance. The rules, in this order:
//
// - A credential of the access file: only its fingerprint counts, and nothing is recorded.
// - A fingerprint from the command line decides, also if the certificate changed.
// - A fingerprint in a submitted plan counts only for a host without a known certificate.
// - A known certificate must not have changed.
// - The user confirms an unknown certificate at the terminal.
func (a *Assembler) verifyCertificate(ctx context.Context, addr string, shown certificate, l Login) error {
	given := l.Fingerprint
	if l.bound != "" {
		if isSameFingerprint(l.bound, shown.Fingerprint) {
			return nil
		}
		return fault.New(fault.Denied, "the certificate of %s is not the one that the credential is bound to: bound to %s, shown %s", addr, l.bound, shown.Fingerprint).
			WithHint("find the cause (renewal, or an attack; on the host: %s); if the new certificate is valid, correct the access file", fingerprintCommand)
	}
	known, err := a.loadKnownHosts()
	if err != nil {
		return err
	}
	pinned, seen := known.Find(addr)
	switch {
	case l.submitted && seen && given != "" && !isSameFingerprint(given, pinned.SHA256):
		return fault.New(fault.Conflict, "the plan has the certificate %s for %s, and this machine has %s since %s", given, addr, pinned.SHA256, pinned.Since.Format(time.DateOnly)).
			WithHint("correct or remove the fingerprint in the plan; if the certificate changed, an administrator accepts it on this machine: decamp ls URL --fingerprint SHA-256")
	case given != "" && !isSameFingerprint(given, shown.Fingerprint):
		return fault.New(fault.Denied, "the certificate of %s differs from the given fingerprint: given %s, shown %s", addr, given, shown.Fingerprint).
			WithHint("compare both with the fingerprint on the host: %s", fingerprintCommand)
	case given != "":
		return known.Add(addr, shown.Fingerprint, shown.Subject)
	case seen && pinned.SHA256 == shown.Fingerprint:
		return nil
	case seen:
		return a.changedCertificateError(addr, pinned, shown)
	}
	return a.confirmCertificate(ctx, known, addr, shown)
}

// isSameFingerprint compares two fingerprints without regard to case and colons.
func isSameFingerprint(a, b string) bool {
	return strings.EqualFold(strings.ReplaceAll(a, ":", ""), strings.ReplaceAll(b, ":", ""))
}

// changedCertificateError is the error for a certificate that differs from the known one. Its remedy is
// the command of the user with the new fingerprint.
func (p *Prompts) changedCertificateError(addr string, pinned knownhosts.Host, shown certificate) error {
	return fault.New(fault.Denied, "the certificate of %s changed: known since %s is %s, shown is %s",
		addr, pinned.Since.Format(time.DateOnly), pinned.SHA256, shown.Fingerprint).
		WithHint("find the cause (renewal, or an attack; on the host: %s); if the new certificate is valid, run: %s",
			fingerprintCommand, p.Command("--fingerprint", shown.Fingerprint))
}

// confirmCertificate shows an unknown certificate to the user, and records it if the user accepts it.
// Without a terminal it returns fault.Denied with the command that accepts it.
func (p *Prompts) confirmCertificate(ctx context.Context, known *knownhosts.File, addr string, shown certificate) error {
	refused := fault.New(fault.Denied, "the certificate of %s is not known: it shows %s", addr, shown.Fingerprint).
		WithHint("compare it with the fingerprint on the host (%s), then run: %s", fingerprintCommand, p.Command("--fingerprint", shown.Fingerprint))
	t, err := p.Terminal()
	if err != nil {
		return refused
	}
	defer t.Close()
	answer, err := t.Ask(ctx, certificateQuestion(addr, shown))
	if err != nil {
		return err
	}
	if answer != "yes" {
		return refused
	}
	return known.Add(addr, shown.Fingerprint, shown.Subject)
}

// certificateQuestion returns the prompt with the properties of the certificate.
func certificateQuestion(addr string, c certificate) string {
	return fmt.Sprintf(`%s presents an unknown certificate:
  SHA-256  %s
  subject  %s
  issuer   %s
  valid    %s to %s
Compare it with the fingerprint on the host: %s
Is it correct? Type yes to continue: `,
		addr, c.Fingerprint, c.Subject, c.Issuer, c.NotBefore.Format(time.DateOnly), c.NotAfter.Format(time.DateOnly), fingerprintCommand)
}

// loadKnownHosts reads the file of confirmed certificates in the state directory.
func (a *Assembler) loadKnownHosts() (*knownhosts.File, error) {
	dir, err := a.StateDir()
	if err != nil {
		return nil, err
	}
	return knownhosts.Load(filepath.Join(dir, "known_hosts.json"))
}
