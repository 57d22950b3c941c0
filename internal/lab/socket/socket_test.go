package socket_test

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/lab/socket"
)

func reservePort(t *testing.T) *socket.ReservedPort {
	t.Helper()
	k, err := socket.ReservePort("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	return k
}

func TestReservedPortCanBeUsedRepeatedly(t *testing.T) {
	addr := reservePort(t).Addr()
	for range 2 {
		if c, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("connected to a port without a listener: %v, %v", c, err)
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// The kernel does not assign the reserved port, even if no other port is permitted. It assigns the
// port on another address.
func TestReservedPortIsNotAssigned(t *testing.T) {
	addr, err := netip.ParseAddrPort(reservePort(t).Addr())
	if err != nil {
		t.Fatal(err)
	}
	n := int(addr.Port())
	for addr, want := range map[string]error{"127.0.0.1:0": syscall.EADDRINUSE, "127.0.0.2:0": nil} {
		l, err := onlyPort(n).Listen(t.Context(), "tcp", addr)
		if err == nil {
			l.Close()
		}
		if !errors.Is(err, want) {
			t.Errorf("listen on %s with only port %d: %v, want %v", addr, n, err, want)
		}
	}
}

// onlyPort returns a configuration that permits the kernel to assign only one port. It needs Linux 6.3.
func onlyPort(n int) *net.ListenConfig {
	return &net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var set error
		err := c.Control(func(fd uintptr) {
			set = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_LOCAL_PORT_RANGE, n<<16|n)
		})
		return errors.Join(err, set)
	}}
}

func TestReservePortErrors(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for addr, want := range map[string]error{
		l.Addr().String(): syscall.EADDRINUSE, "localhost:0": socket.ErrNoIPv4, "[::1]:0": socket.ErrNoIPv4, ":0": socket.ErrNoIPv4, "127.0.0.1": socket.ErrNoIPv4,
	} {
		if k, err := socket.ReservePort(addr); !errors.Is(err, want) {
			t.Errorf("%s: %+v, %v, want %v", addr, k, err, want)
		}
	}
}

// Listen retries while another listener uses the port. A closed listener may stay open for a moment in
// a process that is starting.
func TestListenWaitsForAClosedListener(t *testing.T) {
	addr := reservePort(t).Addr()
	old, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(20*time.Millisecond, func() { old.Close() })
	l, err := socket.Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := socket.Listen("192.0.2.1:0"); err == nil {
		t.Error("listening on an address of another machine")
	}
}

// After WaitClosed, connections are refused, even if the listener stayed open for a moment.
func TestWaitClosed(t *testing.T) {
	addr := reservePort(t).Addr()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(20*time.Millisecond, func() { l.Close() })
	socket.WaitClosed(addr)
	if c, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("connected to a closed listener: %v, %v", c, err)
	}
}
