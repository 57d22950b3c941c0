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

// oneConn is a listener that has one connection.
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

// sendTo serves one request with send, by a clock of its own, and returns the client's end of the connection.
func sendTo(t *testing.T, send func(c *streamClient)) net.Conn {
	t.Helper()
	ours, theirs := net.Pipe()
	api := &eventAPI{metrics: newMetrics("test")}
	l := &oneConn{conns: make(chan net.Conn, 1), closed: make(chan struct{})}
	l.conns <- theirs
	web := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		send(&streamClient{api: api, r: r, w: w, rc: http.NewResponseController(w)})
	})}
	over := make(chan error, 1)
	go func() { over <- web.Serve(l) }()
	t.Cleanup(func() {
		ours.Close()
		web.Close()
		<-over
	})
	if _, err := io.WriteString(ours, "GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	return ours
}

// TestStreamEndsIfItsClientDoesNotRead sends to a client that never reads. The write fails after writeTime. Without
// the deadline all goroutines of the test wait for each other, which fails it at once.
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

// TestStreamOfAQuietServerGoesOn sends an event, nothing for an hour, and another event to a client that reads.
func TestStreamOfAQuietServerGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		conn := sendTo(t, func(c *streamClient) {
			err := c.sendTexts([]byte("event: one\n\n"))
			time.Sleep(time.Hour) // of the test's clock
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

// deadlines records what a writer is asked for, in order.
type deadlines struct {
	http.ResponseWriter
	asked []string
}

func (d *deadlines) Write(p []byte) (int, error) {
	d.asked = append(d.asked, "write")
	return len(p), nil
}
func (d *deadlines) FlushError() error { d.asked = append(d.asked, "flush"); return nil }
func (d *deadlines) SetWriteDeadline(at time.Time) error {
	if at.IsZero() {
		d.asked = append(d.asked, "no deadline")
	} else {
		d.asked = append(d.asked, time.Until(at).String())
	}
	return nil
}

// TestStreamHasNoDeadlineBetweenEvents: HTTP/2 ends a stream whose deadline passes, also if nothing is written.
func TestStreamHasNoDeadlineBetweenEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &deadlines{}
		c := &streamClient{api: &eventAPI{metrics: newMetrics("test")}, w: d, rc: http.NewResponseController(d)}
		if err := c.sendTexts([]byte("a"), []byte("b")); err != nil {
			t.Fatal(err)
		}
		if got, want := strings.Join(d.asked, ", "), "10s, write, write, flush, no deadline"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}

// The stream of a user ends with the first comment after the removal of the token: of the token itself, and of
// the session of a browser that began with it. The stream of another user continues.
func TestStreamEndsWithItsToken(t *testing.T) {
	for _, c := range []struct {
		name    string
		session bool   // the user has a session, and does not send the token
		removed string // token that is removed; the user's is "ours"
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
				secret := add(t, tokens, "ours", View, 0)
				add(t, tokens, "theirs", View, 0)
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
					t.Errorf("this took %v from the begin of the stream, want %v", took, 2*keepAliveTime)
				}
			})
		})
	}
}
