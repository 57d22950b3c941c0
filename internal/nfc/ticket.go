package nfc

import (
	"crypto/sha1"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"log/slog"
	"net"
	"strconv"
	"strings"

	"github.com/decamp/decamp/internal/fault"
)

// defaultPort is the port of authd, for tickets without a port.
const defaultPort = 902

// A Ticket opens one connection to one host. It is a secret and valid once: the host revokes it when it
// is presented. Its text forms contain only the address.
type Ticket struct {
	Host        string // host that accepts the ticket; empty means the server that issued it
	Port        int    // port of authd; 0 means 902
	Thumbprint  string // SHA-1 of the host's certificate, in hexadecimal with or without colons
	Certificate string // certificate in PEM, in place of the thumbprint; from vSphere 9
	Service     string // "nfc" from an ESXi, "vpxa-nfc" from a vCenter
	Session     string // the secret
}

// Addr returns the host:port to connect to. server is the one that issued the ticket, as host or
// host:port.
func (t Ticket) Addr(server string) string {
	host, port := t.Host, t.Port
	if host == "" {
		host = server
		if h, _, err := net.SplitHostPort(server); err == nil {
			host = h
		}
	}
	if port == 0 {
		port = defaultPort
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), strconv.Itoa(port))
}

// String returns the service and the address, without the secret.
func (t Ticket) String() string { return "ticket for " + t.Service + " of " + t.Addr("the server") }

// GoString returns String, so that %#v does not print the secret.
func (t Ticket) GoString() string { return t.String() }

// LogValue returns String, so that logs do not contain the secret.
func (t Ticket) LogValue() slog.Value { return slog.StringValue(t.String()) }

// MarshalText returns String, so that JSON does not contain the secret.
func (t Ticket) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// check fails for incomplete tickets, and for tickets that would add a line to the dialogue.
func (t Ticket) check() error {
	switch {
	case t.Session == "" || t.Service == "":
		return fault.New(fault.Unsupported, "the ticket names no session or no service").
			WithHint("the server gave an answer decamp does not know; use --transport https")
	case strings.ContainsFunc(t.Session+t.Service, func(r rune) bool { return r <= ' ' || r > '~' }):
		return fault.New(fault.Corrupt, "the ticket has characters that tickets do not contain").
			WithHint("something between here and the server changes answers (a proxy, an inspecting firewall?); connect to it directly")
	case t.Thumbprint == "" && t.Certificate == "":
		return fault.New(fault.Denied, "the ticket names no certificate, so the host cannot be known").
			WithHint("log in to the ESXi host itself, or use --transport https")
	}
	return nil
}

// checkCertificate fails unless leaf is the ticket's certificate. No CA is needed, because the ticket
// came from a verified server.
func (t Ticket) checkCertificate(leaf *x509.Certificate) error {
	var is bool
	if t.Certificate != "" {
		block, _ := pem.Decode([]byte(t.Certificate))
		is = block != nil && subtle.ConstantTimeCompare(block.Bytes, leaf.Raw) == 1
	} else {
		want, err := hex.DecodeString(strings.ReplaceAll(t.Thumbprint, ":", ""))
		got := sha1.Sum(leaf.Raw)
		is = err == nil && subtle.ConstantTimeCompare(want, got[:]) == 1
	}
	if is {
		return nil
	}
	return fault.New(fault.Denied, "the certificate on the NFC port is not the ticket's (shown SHA-256 %s)", thumbprintSHA256(leaf)).
		WithHint("find out what answers on port 902 in the host's place; if the host's certificate was just replaced, restart its management agents")
}

// tlsConfig returns a TLS configuration that accepts only the ticket's certificate. seen is called with
// it, and its error ends the handshake.
func (t Ticket) tlsConfig(seen func(*x509.Certificate) error) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12, // hosts of 6.5 to 8 use it on this port
		InsecureSkipVerify: true,             // the ticket's certificate is compared instead
		VerifyConnection: func(c tls.ConnectionState) error {
			if len(c.PeerCertificates) == 0 {
				return fault.New(fault.Denied, "the host shows no certificate on the NFC port")
			}
			if err := t.checkCertificate(c.PeerCertificates[0]); err != nil {
				return err
			}
			return seen(c.PeerCertificates[0])
		},
	}
}

// thumbprintSHA256 returns the SHA-256 of a certificate in authd's format: AA:BB:…
func thumbprintSHA256(leaf *x509.Certificate) string {
	sum := sha256.Sum256(leaf.Raw)
	pairs := make([]string, len(sum))
	for i, b := range sum {
		pairs[i] = strings.ToUpper(hex.EncodeToString([]byte{b}))
	}
	return strings.Join(pairs, ":")
}
