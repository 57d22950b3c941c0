package proxmox

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/decamp/decamp/internal/fault"
)

// tlsConfig returns a configuration that accepts only the certificate with the fingerprint. Without a
// fingerprint, the
// system's CAs are trusted, which is sufficient for nodes with an ACME certificate.
func tlsConfig(host, fingerprint string) (*tls.Config, error) {
	c := &tls.Config{NextProtos: []string{"http/1.1"}}
	if fingerprint == "" {
		return c, nil
	}
	pin, err := hex.DecodeString(strings.ReplaceAll(fingerprint, ":", ""))
	if err != nil || len(pin) != sha256.Size {
		return nil, fault.New(fault.Invalid, "fingerprint %q is not the SHA-256 of a certificate", fingerprint).
			WithHint("print it on the node: pvenode cert info --output-format json | jq -r '.[].fingerprint'")
	}
	c.InsecureSkipVerify = true // the pin is compared instead
	c.VerifyConnection = func(state tls.ConnectionState) error {
		return checkPin(host, pin, state.PeerCertificates)
	}
	return c, nil
}

// checkPin returns fault.Denied unless the SHA-256 of the server's certificate equals pin.
func checkPin(host string, pin []byte, shown []*x509.Certificate) error {
	if len(shown) == 0 {
		return fault.New(fault.Denied, "%s has no certificate", host)
	}
	got := sha256.Sum256(shown[0].Raw)
	if subtle.ConstantTimeCompare(got[:], pin) == 1 {
		return nil
	}
	return fault.New(fault.Denied, "the certificate of %s has another fingerprint: expected %s, got %s", host, formatFingerprint(pin), formatFingerprint(got[:])).
		WithHint("find out whether it was renewed, or whether another machine intercepts the connection; on the node: pvenode cert info")
}

// formatFingerprint returns the fingerprint in Proxmox's notation: upper-case hex with colons.
func formatFingerprint(sum []byte) string {
	return strings.ReplaceAll(fmt.Sprintf("% X", sum), " ", ":")
}
