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

func keep(t *testing.T) *socket.ReservedPort {
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

func TestWhoNamesItListensAgainAndAgain(t *testing.T) {
	addr := keep(t).Addr()
	for range 2 {
		if c, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("connected to what nobody serves: %v, %v", c, err)
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

// Who asks for any port does not get it, even where there is no other to choose from. At another
// address, where it is free, the same question gets it.
func TestNobodyElseGetsIt(t *testing.T) {
	addr, err := netip.ParseAddrPort(keep(t).Addr())
	if err != nil {
		t.Fatal(err)
	}
	n := int(addr.Port())
	for addr, want := range map[string]error{"127.0.0.1:0": syscall.EADDRINUSE, "127.0.0.2:0": nil} {
		l, err := onlyFrom(n).Listen(t.Context(), "tcp", addr)
		if err == nil {
			l.Close()
		}
		if !errors.Is(err, want) {
			t.Errorf("any port of %s, if it is %d: %v, want %v", addr, n, err, want)
		}
	}
}

// onlyFrom lets the kernel choose between one port and none, which it can be told since Linux 6.3.
func onlyFrom(n int) *net.ListenConfig {
	return &net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var set error
		err := c.Control(func(fd uintptr) {
			set = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_LOCAL_PORT_RANGE, n<<16|n)
		})
		return errors.Join(err, set)
	}}
}

func TestWhatIsNotKept(t *testing.T) {
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

// A listener that was closed may be there for a moment yet, in a process that is being started.
func TestListenOutwaitsWhatIsClosedAlready(t *testing.T) {
	addr := keep(t).Addr()
	was, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(20*time.Millisecond, func() { was.Close() })
	l, err := socket.Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := socket.Listen("192.0.2.1:0"); err == nil {
		t.Error("listening at an address that is not this machine's")
	}
}
