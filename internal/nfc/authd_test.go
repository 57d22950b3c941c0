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

// daemon imitates authd from its banner to the reply to PROXY, and records the received lines.
type daemon struct {
	t        *testing.T
	cert     tls.Certificate
	banner   string
	received []string // lines of the client
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

// withColons formats a hash as hosts do: upper-case hex with colons.
func withColons(sum []byte) string {
	var pairs []string
	for _, b := range sum {
		pairs = append(pairs, strings.ToUpper(hex.EncodeToString([]byte{b})))
	}
	return strings.Join(pairs, ":")
}

func (d *daemon) newTicket() Ticket {
	sum := sha1.Sum(d.cert.Certificate[0])
	return Ticket{Service: "nfc", Session: "52-secret", Thumbprint: withColons(sum[:])}
}

// tls12 returns the configuration of TLS 1.2, which hosts use. A TLS 1.2 client sends no unrequested records.
func (d *daemon) tls12() *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{d.cert}, MaxVersion: tls.VersionTLS12}
}

// serve runs the dialogue until the reply to PROXY.
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
		d.received = append(d.received, line)
		word, rest, _ := strings.Cut(strings.TrimSuffix(line, "\r\n"), " ")
		reply := ""
		switch word {
		case "BANNER":
			reply = d.banner
		case "THUMBPRINT_SHA2":
			sum := sha256.Sum256(d.cert.Certificate[0])
			reply = "200 " + withColons(sum[:])
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

// The client sends exactly the lines of the description, and THUMBPRINT_SHA2 only to a daemon
// that announces it. After PROXY, the client does not use the first TLS session, not even for
// a closing alert. The next byte belongs to NFC or to a second ClientHello.
func TestDialogueVectors(t *testing.T) {
	const clientHello = 0x16 // type of a TLS record; an alert has 0x15
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
		client, server := net.Pipe()
		result := make(chan error, 1)
		go func() {
			conn, a, err := connectService(t.Context(), client, d.newTicket(), v.wire)
			if err == nil {
				_, err = runHandshake(conn, a.banner.sha2)
			}
			result <- err
		}()
		if err := d.serve(server); err != nil {
			t.Fatal(err)
		}
		next := make([]byte, 1)
		if _, err := io.ReadFull(server, next); err != nil || next[0] != v.next {
			t.Errorf("%q: got %x (%v) after PROXY, want %x", v.wire, next, err, v.next)
		}
		server.Close()
		if <-result == nil {
			t.Error("a closed connection led to a session")
		}
		client.Close()
		if !slices.Equal(d.received, v.want) {
			t.Errorf("%q: got lines %q, want %q", v.wire, d.received, v.want)
		}
	}
}

// TestUnknownServerReceivesNoData has a daemon present a certificate other than the ticket's, in the first or the second
// TLS session. The daemon receives a ClientHello, but no data of the dialogue or of NFC. synctest fails the test if
// the client waits forever.
func TestUnknownServerReceivesNoData(t *testing.T) {
	for name, second := range map[string]bool{"first session": false, "second session": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				host, stranger := newDaemon(t, bannerNew), newDaemon(t, bannerNew)
				client, server := net.Pipe()
				result := make(chan error, 1)
				go func() {
					defer client.Close()
					conn, _, err := connectService(t.Context(), client, host.newTicket(), TLS)
					if err == nil {
						_, err = io.WriteString(conn, "secret")
					}
					result <- err
				}()
				if second {
					if err := host.serve(server); err != nil {
						t.Fatal(err)
					}
					tlsServer := tls.Server(server, stranger.tls12())
					if data, err := bufio.NewReader(tlsServer).Peek(1); err == nil {
						t.Errorf("the stranger received %q", data)
					}
				} else if err := stranger.serve(server); err == nil {
					t.Error("the stranger received the complete dialogue")
				}
				server.Close()
				err := <-result
				if !fault.Is(err, fault.Denied) || fault.HintOf(err) == "" || strings.Contains(err.Error(), "secret") {
					t.Errorf("error %v (%v), want %v with a remedy", err, fault.KindOf(err), fault.Denied)
				}
				if len(stranger.received) > 0 {
					t.Errorf("the stranger received %q", stranger.received)
				}
			})
		})
	}
}

// If a daemon stops answering before or after its banner, Open fails when its time limit ends.
func TestSilentDaemonTimesOut(t *testing.T) {
	for name, greeting := range map[string]string{"nothing": "", "half a banner": bannerNew[:40], "its banner": bannerNew + "\r\n"} {
		d := newDaemon(t, bannerNew)
		client, server := net.Pipe()
		go func() {
			_, _ = io.WriteString(server, greeting)
			_, _ = io.Copy(io.Discard, server)
		}()
		_, err := Open(t.Context(), d.newTicket(), "[ds] x.vmdk", Options{
			Setup: 50 * time.Millisecond,
			Dial:  func(context.Context, string) (net.Conn, error) { return client, nil },
		})
		if !fault.Is(err, fault.Transient) || fault.HintOf(err) == "" {
			t.Errorf("after %s: got %v (%v)", name, err, fault.KindOf(err))
		}
		server.Close()
	}
}
