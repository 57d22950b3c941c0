package nfc

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/decamp/decamp/internal/fault"
)

const (
	// longestLine bounds a line from authd, in bytes; banners have about 200.
	longestLine = 1024

	// tag links the dialogue to the first classic message: both contain the same text. It is the word that
	// VMware's library sends; hosts refuse values with spaces or colons.
	tag = "PlainText"

	codeReady = "220" // reply code of a banner
	codeOK    = "200" // reply code of a command
)

// authd is the dialogue with the daemon on port 902. The daemon admits the holder of a ticket, and then
// connects it to the NFC service.
type authd struct {
	ticket Ticket            // presented to the daemon
	wire   Wire              // decides the service
	banner banner            // set by readBanner
	leaf   *x509.Certificate // certificate of the first TLS session
	tls    *tls.Conn         // the first session, which is abandoned and never closed
	lines  *bufio.Reader     // replies in the first session
}

// banner contains the features that the daemon announces before TLS.
type banner struct {
	sha2   bool // the daemon accepts THUMBPRINT_SHA2, and the service the tag message
	nfcTLS bool // the NFC service has a separate TLS session
}

// connectService turns a connection to authd into one to the NFC service. It returns the connection for
// all further messages: c, or a TLS session over it.
func connectService(ctx context.Context, c net.Conn, t Ticket, wire Wire) (net.Conn, *authd, error) {
	a := &authd{ticket: t, wire: wire}
	for _, step := range []func(context.Context, net.Conn) error{a.readBanner, a.startTLS, a.presentTicket} {
		if err := step(ctx, c); err != nil {
			return nil, nil, err
		}
	}
	if wire == Plain {
		return c, a, nil
	}
	again, err := a.startSecondTLS(ctx, c)
	return again, a, err
}

// readBanner reads the banner, byte by byte: the bytes after it belong to TLS. It fails if the host
// does not support the requested wire.
func (a *authd) readBanner(_ context.Context, c net.Conn) error {
	line, err := readLine(byteReader{c})
	if err != nil {
		return fmt.Errorf("read the banner: %w", err)
	}
	if a.banner, err = parseBanner(line); err != nil {
		return err
	}
	if a.wire == TLS && !a.banner.nfcTLS {
		return fault.New(fault.Unsupported, "the host offers NFC in clear only").
			WithHint("use --transport https; or --nfc-plain, if others on the network may read the data")
	}
	return nil
}

// parseBanner parses the first line of the daemon: a list, separated by commas.
func parseBanner(line string) (b banner, err error) {
	if !strings.HasPrefix(line, codeReady+" ") {
		return b, fault.New(fault.Unreachable, "what answers is not VMware's authentication daemon: %q", shortenText(line)).
			WithHint("check that the host's port 902 is open from here and not another service's")
	}
	for _, item := range strings.Split(line, ",") {
		item = strings.TrimSpace(item)
		b.sha2 = b.sha2 || strings.HasPrefix(item, "SHA256 supported")
		b.nfcTLS = b.nfcTLS || strings.HasPrefix(item, "NFCSSL supported") // "/t" follows on real hosts
	}
	return b, nil
}

// startTLS starts the first TLS session.
func (a *authd) startTLS(ctx context.Context, c net.Conn) error {
	a.tls = tls.Client(c, a.ticket.tlsConfig(func(leaf *x509.Certificate) error { a.leaf = leaf; return nil }))
	if err := a.tls.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("TLS with authd: %w", err)
	}
	a.lines = bufio.NewReaderSize(a.tls, longestLine)
	return nil
}

// presentTicket presents the ticket and requests the service. SESSION has no reply; a client that waits
// for one hangs. It fails if the host reports another certificate than it showed.
func (a *authd) presentTicket(context.Context, net.Conn) error {
	if err := a.sendLine("SESSION " + a.ticket.Session); err != nil {
		return err
	}
	if _, err := a.sendCommand("BANNER ", codeReady); err != nil {
		return err
	}
	if a.banner.sha2 {
		reported, err := a.sendCommand("THUMBPRINT_SHA2 "+tag, codeOK)
		if err != nil {
			return err
		}
		if !strings.EqualFold(reported, thumbprintSHA256(a.leaf)) {
			return fault.New(fault.Denied, "the host reports certificate %s and shows %s", shortenText(reported), thumbprintSHA256(a.leaf)).
				WithHint("something between here and the host ends its TLS; connect to the host directly")
		}
	}
	_, err := a.sendCommand("PROXY "+a.serviceName(), codeOK)
	return err
}

// serviceName returns the name of the service in PROXY. The service with TLS has the suffix "ssl".
func (a *authd) serviceName() string {
	if a.wire == TLS {
		return a.ticket.Service + "ssl"
	}
	return a.ticket.Service
}

// startSecondTLS starts the second TLS session on the bare connection, without closing the first. The
// host must show the same certificate.
func (a *authd) startSecondTLS(ctx context.Context, c net.Conn) (net.Conn, error) {
	second := tls.Client(c, a.ticket.tlsConfig(func(leaf *x509.Certificate) error {
		if leaf.Equal(a.leaf) {
			return nil
		}
		return fault.New(fault.Denied, "the NFC service shows another certificate than authd").
			WithHint("find out what answers on port 902 in the host's place")
	}))
	if err := second.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("TLS with the NFC service: %w", err)
	}
	return second, nil
}

// sendLine sends a line in the first TLS session.
func (a *authd) sendLine(line string) error {
	_, err := io.WriteString(a.tls, line+"\r\n")
	return err
}

// sendCommand sends a line and returns the text of the reply. It fails unless the reply has the code.
// Errors contain only the first word of the line: a ticket may follow it.
func (a *authd) sendCommand(line, code string) (string, error) {
	word, _, _ := strings.Cut(line, " ")
	if err := a.sendLine(line); err != nil {
		return "", fmt.Errorf("%s: %w", word, err)
	}
	reply, err := readLine(a.lines)
	if err != nil {
		return "", fmt.Errorf("%s: %w", word, err)
	}
	got, text, _ := strings.Cut(reply, " ")
	if got == code {
		return text, nil
	}
	return "", fault.New(fault.Denied, "%s: the host answers %q", word, shortenText(reply)).
		WithHint("the host did not take the ticket: look at its hostd or vpxa log; a restart of the management agents helps where they lost each other")
}

// readLine reads up to LF and returns the line without its end. The end of the connection is
// io.ErrUnexpectedEOF.
func readLine(r io.ByteReader) (string, error) {
	var line []byte
	for {
		b, err := r.ReadByte()
		switch {
		case err != nil:
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return "", err
		case b == '\n':
			return strings.TrimSuffix(string(line), "\r"), nil
		case len(line) == longestLine:
			return "", badAnswer("a line of more than %d bytes", longestLine)
		}
		line = append(line, b)
	}
}

// byteReader reads single bytes from a connection, without reading ahead.
type byteReader struct{ io.Reader }

// ReadByte is part of io.ByteReader.
func (r byteReader) ReadByte() (byte, error) {
	var b [1]byte
	_, err := io.ReadFull(r.Reader, b[:])
	return b[0], err
}

// shortenText returns the beginning of a host's text, for an error.
func shortenText(s string) string {
	const most = 120
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
