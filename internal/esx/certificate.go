package esx

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/proxy"
)

// Certificate describes the certificate of a server. The user compares it with the
// certificate that the host's console or the vCenter shows.
type Certificate struct {
	Fingerprint string    `json:"fingerprint"` // SHA-256 of the certificate as AA:BB:…
	Subject     string    `json:"subject"`     // distinguished name of the server
	Issuer      string    `json:"issuer"`      // distinguished name of the issuer; equal to Subject if self-signed
	NotBefore   time.Time `json:"notBefore"`   // start of the validity
	NotAfter    time.Time `json:"notAfter"`    // end of the validity
}

// Fingerprint connects to addr ("host" or "host:port", 443 by default) and returns the
// server's certificate. It sends the TLS handshake only, and does not verify the
// certificate.
func Fingerprint(ctx context.Context, addr string) (Certificate, error) {
	chain, err := CertificateChain(ctx, addr)
	if err != nil {
		return Certificate{}, err
	}
	leaf := chain[0]
	return Certificate{
		Fingerprint: formatFingerprint(sha256.Sum256(leaf.Raw)),
		Subject:     leaf.Subject.String(),
		Issuer:      leaf.Issuer.String(),
		NotBefore:   leaf.NotBefore,
		NotAfter:    leaf.NotAfter,
	}, nil
}

// CertificateChain returns the certificates that the server at addr presents, its own
// first. It verifies none of them. The list is not empty.
func CertificateChain(ctx context.Context, addr string) ([]*x509.Certificate, error) {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		addr = net.JoinHostPort(strings.Trim(addr, "[]"), "443")
	}
	host, _, _ := net.SplitHostPort(addr)
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	raw, err := proxy.Dial(ctx, &net.Dialer{}, addr)
	if err != nil {
		return nil, fmt.Errorf("read the certificate of %s: %w", addr, classify(err))
	}
	defer raw.Close()
	conn := tls.Client(raw, &tls.Config{ServerName: host, InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("read the certificate of %s: %w", addr, classify(err))
	}
	// The handshake has succeeded, so there is at least one certificate.
	return conn.ConnectionState().PeerCertificates, nil
}

// pinnedTLS returns a configuration that accepts only the certificate with the
// fingerprint. It verifies in VerifyConnection, because VerifyPeerCertificate does not
// run on resumed connections. Names and CAs are not checked: ESXi hosts have
// self-signed certificates.
func pinnedTLS(e endpoint, fingerprint string) (*tls.Config, error) {
	pin, err := parseFingerprint(fingerprint)
	if err != nil {
		return nil, fmt.Errorf("log in to %s: %w", e.addr, err)
	}
	return &tls.Config{
		ServerName:         e.host,
		InsecureSkipVerify: true, // the pin is compared instead
		NextProtos:         []string{"http/1.1"},
		VerifyConnection: func(c tls.ConnectionState) error {
			return checkPin(e.addr, pin, c.PeerCertificates)
		},
	}, nil
}

// checkPin compares the first of the presented certificates with the pin, in constant
// time. The error is fault.Denied and contains both fingerprints.
func checkPin(addr string, pin [32]byte, shown []*x509.Certificate) error {
	if len(shown) == 0 {
		return fault.New(fault.Denied, "%s shows no certificate", addr)
	}
	got := sha256.Sum256(shown[0].Raw)
	if subtle.ConstantTimeCompare(got[:], pin[:]) == 1 {
		return nil
	}
	return fault.New(fault.Denied, "the certificate of %s differs from the known one: known %s, shown %s", addr, formatFingerprint(pin), formatFingerprint(got)).
		WithHint("find the cause (a renewal, or an attack on the connection); if the new certificate is correct, add --fingerprint %s", formatFingerprint(got))
}

// parseFingerprint reads 64 hex digits in either case, with or without colons.
// Everything else is fault.Invalid, and so is "".
func parseFingerprint(s string) (pin [32]byte, err error) {
	if s == "" {
		return pin, fault.New(fault.Invalid, "no certificate fingerprint is set").
			WithHint("confirm the certificate, or set --fingerprint")
	}
	b, err := hex.DecodeString(strings.ReplaceAll(s, ":", ""))
	if err == nil && len(b) != len(pin) {
		err = errors.New("it must have 64 hex digits (SHA-256)")
	}
	if err != nil {
		return pin, fault.New(fault.Invalid, "fingerprint %q: %w", s, err)
	}
	return [32]byte(b), nil
}

// formatFingerprint returns a SHA-256 sum as AA:BB:…, the form that ESXi and vCenter
// show.
func formatFingerprint(sum [32]byte) string {
	parts := make([]string, len(sum))
	for i, b := range sum {
		parts[i] = fmt.Sprintf("%02X", b)
	}
	return strings.Join(parts, ":")
}
