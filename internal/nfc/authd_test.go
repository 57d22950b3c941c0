package nfc

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"io"
	"math/big"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// daemon plays authd from its banner to the reply to PROXY, and tells what it was asked.
type daemon struct {
	t      *testing.T
	cert   tls.Certificate
	banner string
	heard  []string
}

const (
	bannerNew = "220 VMware Authentication Daemon Version 1.10: SSL Required, ServerDaemonProtocol:SOAP, MKSDisplayProtocol:VNC , VMXARGS supported, NFCSSL supported/t, SHA256 supported"
	bannerOld = "220 VMware Authentication Daemon Version 1.10: SSL Required, ServerDaemonProtocol:SOAP, MKSDisplayProtocol:VNC , VMXARGS supported, NFCSSL supported/t"
)

func newDaemon(t *testing.T, banner string) *daemon {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().AddDate(1, 0, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return &daemon{t: t, banner: banner, cert: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}}
}

// colons writes a sum as hosts do.
func colons(sum []byte) string {
	var pairs []string
	for _, b := range sum {
		pairs = append(pairs, strings.ToUpper(hex.EncodeToString([]byte{b})))
	}
	return strings.Join(pairs, ":")
}

func (d *daemon) ticket() Ticket {
	sum := sha1.Sum(d.cert.Certificate[0])
	return Ticket{Service: "nfc", Session: "52-secret", Thumbprint: colons(sum[:])}
}

// tls12 is what hosts speak; its client sends no byte after a reply of its own accord.
func (d *daemon) tls12() *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{d.cert}, MaxVersion: tls.VersionTLS12}
}

// serve speaks until PROXY was answered; what comes then is none of its business.
func (d *daemon) serve(c net.Conn) error {
	if _, err := io.WriteString(c, d.banner+"\r\n"); err != nil {
		return err
	}
	first := tls.Server(c, d.tls12())
	lines := bufio.NewReader(first)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return err
		}
		d.heard = append(d.heard, line)
		word, rest, _ := strings.Cut(strings.TrimSuffix(line, "\r\n"), " ")
		reply := ""
		switch word {
		case "BANNER":
			reply = d.banner
		case "THUMBPRINT_SHA2":
			sum := sha256.Sum256(d.cert.Certificate[0])
			reply = "200 " + colons(sum[:])
		case "PROXY":
			reply = "200 Connect ha-" + rest
		}
		if reply == "" {
			continue
		}
		if _, err := io.WriteString(first, reply+"\r\n"); err != nil || word == "PROXY" {
			return err
		}
	}
}

// The lines are the description's, to the byte; THUMBPRINT_SHA2 goes only to a daemon that
// says it knows it. After PROXY nothing of the first TLS session follows, no farewell
// either: the next byte is NFC's, or that of a second ClientHello.
func TestDialogueVectors(t *testing.T) {
	const clientHello = 0x16 // the type of a TLS record; an alert's is 0x15
	for _, v := range []struct {
		banner string
		wire   Wire
		want   []string
		next   byte
	}{
		{bannerNew, Plain, []string{"SESSION 52-secret\r\n", "BANNER \r\n", "THUMBPRINT_SHA2 PlainText\r\n", "PROXY nfc\r\n"}, classicTag},
		{bannerOld, Plain, []string{"SESSION 52-secret\r\n", "BANNER \r\n", "PROXY nfc\r\n"}, classicParams},
		{bannerNew, TLS, []string{"SESSION 52-secret\r\n", "BANNER \r\n", "THUMBPRINT_SHA2 PlainText\r\n", "PROXY nfcssl\r\n"}, clientHello},
	} {
		d := newDaemon(t, v.banner)
		ours, theirs := net.Pipe()
		over := make(chan error, 1)
		go func() {
			conn, a, err := connectService(t.Context(), ours, d.ticket(), v.wire)
			if err == nil {
				_, err = runHandshake(conn, a.banner.sha2)
			}
			over <- err
		}()
		if err := d.serve(theirs); err != nil {
			t.Fatal(err)
		}
		next := make([]byte, 1)
		if _, err := io.ReadFull(theirs, next); err != nil || next[0] != v.next {
			t.Errorf("%q: after PROXY comes %x (%v), want %x", v.wire, next, err, v.next)
		}
		theirs.Close()
		if <-over == nil {
			t.Error("a connection that ended led to a session")
		}
		ours.Close()
		if !slices.Equal(d.heard, v.want) {
			t.Errorf("%q: it said %q, want %q", v.wire, d.heard, v.want)
		}
	}
}

// TestNothingIsSaidToAStranger has a daemon show another certificate than the ticket's, in the first TLS session or
// in the second. It receives a ClientHello and no word of the dialogue or of NFC. In the bubble of synctest a
// client that waits forever fails the test.
func TestNothingIsSaidToAStranger(t *testing.T) {
	for name, second := range map[string]bool{"first session": false, "second session": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				host, stranger := newDaemon(t, bannerNew), newDaemon(t, bannerNew)
				ours, theirs := net.Pipe()
				over := make(chan error, 1)
				go func() {
					defer ours.Close()
					conn, _, err := connectService(t.Context(), ours, host.ticket(), TLS)
					if err == nil {
						_, err = io.WriteString(conn, "secret")
					}
					over <- err
				}()
				if second {
					if err := host.serve(theirs); err != nil {
						t.Fatal(err)
					}
					impostor := tls.Server(theirs, stranger.tls12())
					if heard, err := bufio.NewReader(impostor).Peek(1); err == nil {
						t.Errorf("the stranger heard %q", heard)
					}
				} else if err := stranger.serve(theirs); err == nil {
					t.Error("the stranger was told all that there is to tell")
				}
				theirs.Close()
				err := <-over
				if !fault.Is(err, fault.Denied) || fault.HintOf(err) == "" || strings.Contains(err.Error(), "secret") {
					t.Errorf("error %v (%v), want %v with a remedy", err, fault.KindOf(err), fault.Denied)
				}
				if len(stranger.heard) > 0 {
					t.Errorf("the stranger heard %q", stranger.heard)
				}
			})
		})
	}
}

// A daemon that falls silent, before its banner or after it, is given up in the time there is.
func TestSilentDaemonIsGivenUp(t *testing.T) {
	for name, says := range map[string]string{"nothing": "", "half a banner": bannerNew[:40], "its banner": bannerNew + "\r\n"} {
		d := newDaemon(t, bannerNew)
		ours, theirs := net.Pipe()
		go func() {
			_, _ = io.WriteString(theirs, says)
			_, _ = io.Copy(io.Discard, theirs) // whatever it is told
		}()
		_, err := Open(t.Context(), d.ticket(), "[ds] x.vmdk", Options{
			Setup: 50 * time.Millisecond,
			Dial:  func(context.Context, string) (net.Conn, error) { return ours, nil },
		})
		if !fault.Is(err, fault.Transient) || fault.HintOf(err) == "" {
			t.Errorf("after %s: got %v (%v)", name, err, fault.KindOf(err))
		}
		theirs.Close()
	}
}
