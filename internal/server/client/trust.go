package client

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"

	"github.com/decamp/decamp/internal/fault"
)

// tlsConfig returns a configuration that accepts the server's certificate by its fingerprint, or by its
// CA.
func tlsConfig(c Config) (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.Cert != "" || c.Key != "" {
		own, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, fault.New(fault.Invalid, "certificate of the client: %w", err)
		}
		conf.Certificates = []tls.Certificate{own}
	}
	var roots *x509.CertPool
	if c.CA != "" {
		text, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, fault.New(fault.NotFound, "CA of the server: %w", err)
		}
		roots = x509.NewCertPool()
		if !roots.AppendCertsFromPEM(text) {
			return nil, fault.New(fault.Invalid, "%s has no certificate", c.CA)
		}
	}
	conf.InsecureSkipVerify = true // VerifyConnection verifies it, and its error contains the fingerprint
	conf.VerifyConnection = func(state tls.ConnectionState) error { return verifyServer(state, c.Fingerprint, roots) }
	return conf, nil
}

// verifyServer returns fault.Denied unless the server's certificate has the fingerprint want. Without
// want, a CA in roots must have signed it for the server's name; nil roots are those of the system.
func verifyServer(state tls.ConnectionState, want string, roots *x509.CertPool) error {
	leaf := state.PeerCertificates[0]
	shown := fingerprintOf(leaf.Raw)
	if want != "" {
		if strings.EqualFold(want, shown) {
			return nil
		}
		return fault.New(fault.Denied, "the server shows the certificate %s, want %s", shown, want).
			WithHint("the server is another one, or the connection is intercepted; if decamp serve printed %s when it started, add --server-fingerprint %s", shown, shown)
	}
	between := x509.NewCertPool()
	for _, cert := range state.PeerCertificates[1:] {
		between.AddCert(cert)
	}
	_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, DNSName: state.ServerName})
	if err != nil {
		return fault.New(fault.Denied, "certificate of the server: %w", err).
			WithHint("compare %s with the fingerprint that decamp serve printed when it started; if it is the same, add --server-fingerprint %s, or remember the server: decamp server add NAME URL", shown, shown)
	}
	return nil
}

// fingerprintOf returns the SHA-256 hash of a certificate as AB:CD:…
func fingerprintOf(der []byte) string {
	var parts []string
	for _, b := range sha256.Sum256(der) {
		parts = append(parts, fmt.Sprintf("%02X", b))
	}
	return strings.Join(parts, ":")
}
