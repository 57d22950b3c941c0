package server

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// oneConn is a listener with one connection.
type oneConn struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *oneConn) Close() error   { close(l.closed); return nil }
func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// sendTo serves one request with send and returns the connection of the client.
func sendTo(t *testing.T, send func(c *streamClient)) net.Conn {
	t.Helper()
	ours, theirs := net.Pipe()
	api := &eventAPI{metrics: newMetrics("test")}
	l := &oneConn{conns: make(chan net.Conn, 1), closed: make(chan struct{})}
	l.conns <- theirs
	web := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		send(&streamClient{api: api, r: r, w: w, rc: http.NewResponseController(w)})
	})}
	served := make(chan error, 1)
	go func() { served <- web.Serve(l) }()
	t.Cleanup(func() {
		ours.Close()
		web.Close()
		<-served
	})
	if _, err := io.WriteString(ours, "GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	return ours
}

// A write to a client that never reads fails after writeTime. Without the deadline, the goroutines of the test
// wait for each other, and synctest fails the test.
func TestStreamEndsIfItsClientDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		began := time.Now()
		sendTo(t, func(c *streamClient) {
			for {
				if err := c.sendTexts(bytes.Repeat([]byte("data: x\n"), 1<<10)); err != nil {
					ended <- err
					return
				}
			}
		})
		if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the stream ended with %v, want an exceeded deadline", err)
		}
		if took := time.Since(began); took != writeTime {
			t.Errorf("the stream ended after %v, want %v", took, writeTime)
		}
	})
}

// A stream without events for an hour stays open.
func TestStreamWithoutEventsStaysOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		conn := sendTo(t, func(c *streamClient) {
			err := c.sendTexts([]byte("event: one\n\n"))
			time.Sleep(time.Hour) // fake time of synctest
			ended <- errors.Join(err, c.sendTexts([]byte("event: two\n\n")))
		})
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		got, want := make([]byte, len("event: one\n\nevent: two\n\n")), "event: one\n\nevent: two\n\n"
		if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != want {
			t.Errorf("read %q, %v", got, err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// recordingWriter records the calls of its methods.
type recordingWriter struct {
	http.ResponseWriter
	calls []string
}

func (d *recordingWriter) Write(p []byte) (int, error) {
	d.calls = append(d.calls, "write")
	return len(p), nil
}
func (d *recordingWriter) FlushError() error { d.calls = append(d.calls, "flush"); return nil }
func (d *recordingWriter) SetWriteDeadline(at time.Time) error {
	if at.IsZero() {
		d.calls = append(d.calls, "no deadline")
	} else {
		d.calls = append(d.calls, time.Until(at).String())
	}
	return nil
}

// A stream has no write deadline between events: HTTP/2 ends a stream when its deadline passes, even without a
// write.
func TestStreamHasNoDeadlineBetweenEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &recordingWriter{}
		c := &streamClient{api: &eventAPI{metrics: newMetrics("test")}, w: d, rc: http.NewResponseController(d)}
		if err := c.sendTexts([]byte("a"), []byte("b")); err != nil {
			t.Fatal(err)
		}
		if got, want := strings.Join(d.calls, ", "), "10s, write, write, flush, no deadline"; got != want {
			t.Errorf("got calls %s, want %s", got, want)
		}
	})
}

// The stream of a token, and of a browser session of the token, ends at the first comment after the removal of the
// token. The streams of other users continue.
func TestStreamEndsWithItsToken(t *testing.T) {
	for _, c := range []struct {
		name    string
		session bool   // the request has a session cookie instead of the token
		removed string // removed token; the stream belongs to "ours"
	}{
		{"token", false, "ours"},
		{"session", true, "ours"},
		{"token of another", false, "theirs"},
		{"session of another", true, "theirs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				tokens := NewTokens(dir)
				secret := addToken(t, tokens, "ours", View, 0)
				addToken(t, tokens, "theirs", View, 0)
				auth := &authenticator{tokens, newSessions(true), newThrottle(time.Now)}
				token, _ := tokens.Check(secret)
				cookie, err := auth.sessions.newCookie(token)
				if err != nil {
					t.Fatal(err)
				}
				conn := sendTo(t, func(s *streamClient) {
					s.api.auth, s.api.hub, s.l = auth, &hub{}, &listener{}
					if c.session {
						s.r.AddCookie(cookie)
					} else {
						s.r.Header.Set("Authorization", "Bearer "+secret)
					}
					s.sendLoop()
				})
				resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now().Add(-keepAliveTime) // the first comment has arrived
				comment := make([]byte, len(":\n\n"))
				if _, err := io.ReadFull(resp.Body, comment); err != nil || string(comment) != ":\n\n" {
					t.Fatalf("read %q, %v", comment, err)
				}
				if err := tokens.Remove(c.removed); err != nil {
					t.Fatal(err)
				}
				n, err := io.ReadFull(resp.Body, comment)
				if ended := n == 0 && err == io.EOF; ended != (c.removed == "ours") {
					t.Errorf("read %q, %v after the removal", comment[:n], err)
				}
				if took := time.Since(began); took != 2*keepAliveTime {
					t.Errorf("the read ended after %v, want %v", took, 2*keepAliveTime)
				}
			})
		})
	}
}
