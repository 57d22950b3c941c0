package fleetdb

import (
	"crypto/tls"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/lab/postgres"
)

func TestUnverifiedDatabaseIsNotOpened(t *testing.T) {
	const url = "postgres://decamp:secret@db.invalid/x?sslmode=require"
	r, err := Open(t.Context(), Config{URL: url})
	if r != nil || !fault.Is(err, fault.Denied) || !strings.Contains(fault.HintOf(err), "--insecure-database") || strings.Contains(err.Error(), "secret") {
		t.Errorf("error %v (hint %q), want Denied with the hint", err, fault.HintOf(err))
	}
	if _, err := Open(t.Context(), Config{URL: url, Insecure: true}); !fault.Is(err, fault.Unreachable) {
		t.Errorf("with Insecure: got %v, want Unreachable because the host does not exist", err)
	}
}

// startUntrustedServer starts a server with TLS whose certificate no trusted CA has signed. It returns the number of
// bytes that clients sent inside TLS.
func startUntrustedServer(t *testing.T) (addr string, received *atomic.Int64) {
	t.Helper()
	unused := httptest.NewUnstartedServer(nil)
	unused.StartTLS() // makes the certificate
	conf := unused.TLS.Clone()
	unused.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	received = &atomic.Int64{}
	done := make(chan struct{})
	t.Cleanup(func() { l.Close(); <-done })
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			request := make([]byte, 8) // SSLRequest
			if _, err := io.ReadFull(conn, request); err == nil {
				conn.Write([]byte("S"))
				n, _ := io.Copy(io.Discard, tls.Server(conn, conf))
				received.Add(n)
			}
			conn.Close()
		}
	}()
	return l.Addr().String(), received
}

func TestUnverifiedDatabaseReceivesNoData(t *testing.T) {
	addr, received := startUntrustedServer(t)
	plain := postgres.Start(t).Addr()
	for _, addr := range []string{addr, plain} {
		_, err := Open(t.Context(), Config{URL: "postgres://decamp:secret@" + addr + "/postgres?sslmode=verify-full"})
		if !fault.Is(err, fault.Unreachable) || !strings.Contains(fault.HintOf(err), "sslrootcert") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v (hint %q), want Unreachable with a hint on sslrootcert", addr, err, fault.HintOf(err))
		}
	}
	if n := received.Load(); n != 0 {
		t.Errorf("%d bytes were sent to a server that is not verified, want 0", n)
	}
}
