// Package loopback reserves ports for tests that need the address of a server before it starts.
package loopback

import (
	"net"
	"testing"

	"github.com/decamp/decamp/internal/lab/socket"
)

// Reserve returns an address of the loopback interface. Until the test ends, the kernel assigns it to
// no other socket: connections are refused, and only a listener that names the port can use it.
func Reserve(t testing.TB) string {
	t.Helper()
	return ReserveAt(t, "127.0.0.1")
}

// ReserveAt is Reserve at another address of this machine.
func ReserveAt(t testing.TB, host string) string {
	t.Helper()
	kept, err := socket.ReservePort(net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatalf("reserve a port: %v", err)
	}
	t.Cleanup(func() {
		if err := kept.Close(); err != nil {
			t.Error(err)
		}
	})
	return kept.Addr()
}
