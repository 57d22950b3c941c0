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
	bannerLine  = "220 VMware Authentication Daemon Version 1.10: SSL Required, ServerDaemonProtocol:SOAP, MKSDisplayProtocol:VNC , VMXARGS supported"
	bannerTLS   = ", NFCSSL supported/t"
	bannerSHA   = ", SHA256 supported"
	replyLogin  = "530 Please login with USER and PASS."
	replyWrong  = "530 Login incorrect."
	replyBad    = "501 Invalid arguments"
	replyNo     = "500 Unknown command"
	tlsSuffix   = "ssl"
	maxLine     = 1024
	maxLines    = 64
	proxyPrefix = "200 Connect ha-" // a host behind vCenter says the same as one alone
	sessionName = "nfc"
)

// errAuthd ends a connection whose client said too much, or nothing that leads on.
var errAuthd = errors.New("authd: no way on")

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

// runLogin speaks with the client until it is handed on to NFC.
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

// foreignCertificate is not the host's.
func foreignCertificate() (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "stranger"}, NotAfter: time.Now().AddDate(1, 0, 0)}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// dialogue is the part inside the first TLS session.
type authdDialogue struct {
	*conn
	tls     *tls.Conn
	service string // of the ticket, once it was taken
}

// readLine reads byte by byte: what follows PROXY is not TLS of this session any more.
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

// answerLine returns the reply, which may be none, and whether NFC begins after it.
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

// redeemTicket takes the ticket. A client learns of a bad one from what follows.
func (d *authdDialogue) redeemTicket(id string) {
	service, grant, ok := d.server.cfg.Tickets.Redeem(id)
	if f := d.nextFault(Op{Name: OpSession}); ok && !f.isKind(FaultRefuse) {
		d.service, d.grant = service, grant
	}
}

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

// answerProxy hands on to the ticket's service, or to the same behind TLS.
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
