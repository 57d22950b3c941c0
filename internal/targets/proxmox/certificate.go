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

// trust returns a configuration that accepts the certificate with that fingerprint and no other.
// Without one, the system's authorities vouch: nodes that use ACME have a certificate of theirs.
func trust(host, fingerprint string) (*tls.Config, error) {
	c := &tls.Config{NextProtos: []string{"http/1.1"}}
	if fingerprint == "" {
		return c, nil
	}
	pin, err := hex.DecodeString(strings.ReplaceAll(fingerprint, ":", ""))
	if err != nil || len(pin) != sha256.Size {
		return nil, fault.New(fault.Invalid, "fingerprint %q is not the SHA-256 of a certificate", fingerprint).
			WithHint("on the node: pvenode cert info --output-format json | jq -r '.[].fingerprint'")
	}
	c.InsecureSkipVerify = true // the pin is compared instead
	c.VerifyConnection = func(state tls.ConnectionState) error {
		return checkPin(host, pin, state.PeerCertificates)
	}
	return c, nil
}

func checkPin(host string, pin []byte, shown []*x509.Certificate) error {
	if len(shown) == 0 {
		return fault.New(fault.Denied, "%s shows no certificate", host)
	}
	got := sha256.Sum256(shown[0].Raw)
	if subtle.ConstantTimeCompare(got[:], pin) == 1 {
		return nil
	}
	return fault.New(fault.Denied, "the certificate of %s is not the pinned one: pinned %s, shown %s", host, colons(pin), colons(got[:])).
		WithHint("find out why it changed (renewed, or somebody in between); on the node: pvenode cert info")
}

func colons(sum []byte) string { return strings.ReplaceAll(fmt.Sprintf("% X", sum), " ", ":") }
