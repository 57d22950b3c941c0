package nfchost

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"
)

// The lines of authd. The odd space before the comma and the /t are real.
const (
	// first line of authd, without the offered features
	bannerLine  = "220 VMware Authentication Daemon Version 1.10: SSL Required, ServerDaemonProtocol:SOAP, MKSDisplayProtocol:VNC , VMXARGS supported"
	bannerTLS   = ", NFCSSL supported/t"                 // offer of NFC over TLS
	bannerSHA   = ", SHA256 supported"                   // offer of THUMBPRINT_SHA2
	replyLogin  = "530 Please login with USER and PASS." // reply to a command that requires a ticket
	replyWrong  = "530 Login incorrect."                 // reply to USER and PASS, which never succeed
	replyBad    = "501 Invalid arguments"                // reply to an argument that is not accepted
	replyNo     = "500 Unknown command"                  // reply to an unknown command
	tlsSuffix   = "ssl"                                  // suffix of a service name that requests TLS
	maxLine     = 1024                                   // longest line in bytes
	maxLines    = 64                                     // most lines of one connection
	proxyPrefix = "200 Connect ha-"                      // reply to PROXY; a host behind vCenter sends the same as a standalone one
	sessionName = "nfc"                                  // name of the session in the reply to PROXY
)

// errAuthd ends a connection whose client sends too long a line, or too many lines.
var errAuthd = errors.New("authd: no way on")

// bannerText returns the first line of authd with the features of the rules.
func (c *conn) bannerText() string {
	line := bannerLine
	if !c.rules.NoTLS {
		line += bannerTLS
	}
	if !c.rules.NoSHA256 {
		line += bannerSHA
	}
	return line
}

// runLogin sends the banner, starts TLS and answers commands until PROXY succeeds.
func (c *conn) runLogin() error {
	if _, err := c.raw.Write([]byte(c.bannerText() + "\r\n")); err != nil {
		return err
	}
	config, err := c.tlsConfig(false)
	if err != nil {
		return err
	}
	first := tls.Server(c.raw, config)
	if err := first.Handshake(); err != nil { // a command in clear ends here too
		return err
	}
	d := &authdDialogue{conn: c, tls: first}
	for range maxLines {
		line, err := d.readLine()
		if err != nil {
			return err
		}
		reply, done := d.answerLine(line)
		if reply != "" {
			if _, err := first.Write([]byte(reply + "\r\n")); err != nil {
				return err
			}
		}
		if done {
			return nil
		}
	}
	return errAuthd
}

// tlsConfig returns the server's TLS configuration. If other is set, the certificate is not the host's.
func (c *conn) tlsConfig(other bool) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12, SessionTicketsDisabled: true, DynamicRecordSizingDisabled: true}
	if c.rules.TLS13 {
		config.MaxVersion = tls.VersionTLS13
	}
	cert := c.server.cfg.Certificate()
	if other {
		var err error
		if cert, err = foreignCertificate(); err != nil {
			return nil, err
		}
	}
	config.Certificates = []tls.Certificate{*cert}
	return config, nil
}

// foreignCertificate returns a new certificate, which is not the host's.
func foreignCertificate() (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "stranger"}, NotAfter: time.Now().AddDate(1, 0, 0)}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// An authdDialogue is the exchange of lines inside the first TLS session.
type authdDialogue struct {
	*conn
	tls     *tls.Conn // first TLS session
	service string    // service of the ticket; empty until the ticket is redeemed
}

// readLine reads a line byte by byte: the bytes after PROXY do not belong to this TLS session.
func (d *authdDialogue) readLine() (string, error) {
	var line []byte
	for one := make([]byte, 1); len(line) <= maxLine; {
		if _, err := d.tls.Read(one); err != nil {
			return "", err
		}
		if one[0] == '\n' {
			return strings.TrimSuffix(string(line), "\r"), nil
		}
		line = append(line, one[0])
	}
	return "", errAuthd
}

// answerLine returns the reply to a line, which may be empty, and whether NFC begins after it.
func (d *authdDialogue) answerLine(line string) (reply string, done bool) {
	verb, arg, _ := strings.Cut(line, " ")
	switch verb {
	case "SESSION":
		d.redeemTicket(arg)
		return "", false // never answered, right or wrong
	case "BANNER":
		return d.bannerText(), false
	case "THUMBPRINT_SHA2":
		return d.answerThumbprint(arg), false
	case "PROXY":
		return d.answerProxy(arg)
	case "USER", "PASS":
		return replyWrong, false
	}
	if d.grant == nil {
		return replyLogin, false
	}
	return replyNo, false
}

// redeemTicket redeems a ticket. A client detects an invalid ticket by the replies to later commands.
func (d *authdDialogue) redeemTicket(id string) {
	service, grant, ok := d.server.cfg.Tickets.Redeem(id)
	if f := d.nextFault(Op{Name: OpSession}); ok && !f.isKind(FaultRefuse) {
		d.service, d.grant = service, grant
	}
}

// answerThumbprint answers THUMBPRINT_SHA2 with the host's fingerprint, and records the tag for the
// handshake.
func (d *authdDialogue) answerThumbprint(tag string) string {
	switch {
	case d.grant == nil || d.rules.NoSHA256:
		return replyLogin
	case tag == "" || strings.ContainsAny(tag, ": "):
		return replyBad
	}
	d.tag, d.sha256 = tag, true
	sum := sha256.Sum256(d.server.cfg.Certificate().Certificate[0])
	return "200 " + strings.ReplaceAll(fmt.Sprintf("% X", sum[:]), " ", ":")
}

// answerProxy switches to the service of the ticket, or to the same service over TLS.
func (d *authdDialogue) answerProxy(service string) (reply string, done bool) {
	if d.grant == nil {
		return replyLogin, false
	}
	switch {
	case service == d.service:
		return proxyPrefix + sessionName, true
	case service == d.service+tlsSuffix && !d.rules.NoTLS:
		d.secure = true
		return proxyPrefix + sessionName + tlsSuffix, true
	}
	return replyBad, false
}
