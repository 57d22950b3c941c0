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

// defaultPort is authd's, where a ticket names none.
const defaultPort = 902

// A Ticket opens one connection to one host. It is a secret, and good for one use: the
// host takes it back when it is shown. Its text forms tell the address only.
type Ticket struct {
	Host        string // empty: the server that gave the ticket
	Port        int    // 0: 902
	Thumbprint  string // SHA-1 of the host's certificate, hex with or without colons
	Certificate string // PEM, in place of the thumbprint; vSphere 9
	Service     string // "nfc" from an ESXi, "vpxa-nfc" from a vCenter
	Session     string // the secret itself
}

// Addr returns the address to connect to. server is the one that gave the ticket, as host
// or host:port.
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

// String returns the service and the address, not the secret.
func (t Ticket) String() string { return "ticket for " + t.Service + " of " + t.Addr("the server") }

// GoString returns what String does, so that %#v does not tell.
func (t Ticket) GoString() string { return t.String() }

// LogValue returns what String does.
func (t Ticket) LogValue() slog.Value { return slog.StringValue(t.String()) }

// MarshalText returns what String does, so that JSON does not tell.
func (t Ticket) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// check refuses tickets that cannot be used, and such as would put a line of their own
// into the dialogue.
func (t Ticket) check() error {
	switch {
	case t.Session == "" || t.Service == "":
		return fault.New(fault.Unsupported, "the ticket names no session or no service").
			WithHint("the server gave an answer decamp does not know; use --transport https")
	case strings.ContainsFunc(t.Session+t.Service, func(r rune) bool { return r <= ' ' || r > '~' }):
		return fault.New(fault.Corrupt, "the ticket holds characters that are none of a ticket's").
			WithHint("something between here and the server changes answers (a proxy, an inspecting firewall?); connect to it directly")
	case t.Thumbprint == "" && t.Certificate == "":
		return fault.New(fault.Denied, "the ticket names no certificate, so the host cannot be known").
			WithHint("log in to the ESXi host itself, or use --transport https")
	}
	return nil
}

// checkCertificate returns an error unless the leaf is the ticket's certificate. No CA is asked: the
// ticket came from a server that was known.
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

// tlsConfig returns the TLS configuration that takes the ticket's certificate and no other.
// seen, if not nil, is told it.
func (t Ticket) tlsConfig(seen func(*x509.Certificate) error) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12, // what hosts of 6.5 to 8 speak on this port
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

// thumbprintSHA256 is the certificate's SHA-256 as authd tells it: AA:BB:…
func thumbprintSHA256(leaf *x509.Certificate) string {
	sum := sha256.Sum256(leaf.Raw)
	pairs := make([]string, len(sum))
	for i, b := range sum {
		pairs[i] = strings.ToUpper(hex.EncodeToString([]byte{b}))
	}
	return strings.Join(pairs, ":")
}
