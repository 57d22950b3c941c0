package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/url"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/proxy"
)

// Identity is the certificate that a server shows.
type Identity struct {
	Fingerprint string // SHA-256 as AB:CD:…
	Trusted     bool   // a CA of the system signed it for the name of the server
}

// ReadIdentity returns the certificate of the server at https://host:port. It sends the TLS handshake only.
func ReadIdentity(ctx context.Context, address string) (id Identity, err error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" {
		return id, fault.New(fault.Invalid, "a server without TLS has no certificate").WithHint("use https://HOST:8470")
	}
	at := u.Host
	if u.Port() == "" {
		at = net.JoinHostPort(u.Hostname(), "443")
	}
	raw, err := proxy.Dial(ctx, &net.Dialer{Timeout: dialTime}, at)
	if err != nil {
		return id, (&Client{base: u}).connectionFault(ctx, err)
	}
	defer raw.Close()
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	conn := tls.Client(raw, &tls.Config{ServerName: u.Hostname(), InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}) // the user compares it
	if err := conn.HandshakeContext(ctx); err != nil {
		return id, (&Client{base: u}).connectionFault(ctx, err)
	}
	state := conn.ConnectionState()
	id.Fingerprint = fingerprintOf(state.PeerCertificates[0].Raw)
	id.Trusted = verifyServer(state, "", (*x509.CertPool)(nil)) == nil
	return id, nil
}
