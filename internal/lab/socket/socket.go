// Package socket reserves TCP ports for servers that start after their addresses are needed, or that
// stop and start again. The kernel assigns a closed port to the next request for any port.
package socket

import (
	"errors"
	"net/netip"
	"os"
	"syscall"
)

// ReservedPort is a port that the kernel does not assign until Close. Connections to it are refused; servers
// may listen there repeatedly.
type ReservedPort struct {
	fd   int            // bound socket that does not listen
	addr netip.AddrPort // address with the chosen port
}

// ErrNoIPv4 is the error of ReservePort for addresses that cannot be reserved.
var ErrNoIPv4 = errors.New("not an IPv4 address with a port")

// ReservePort reserves an IPv4 address and port. Port 0 is any free port.
//
// It binds a socket that does not listen. With SO_REUSEADDR, which Go sets for listeners, Linux permits
// another socket to listen at that port, but does not assign the port to sockets without a fixed port.
func ReservePort(addr string) (*ReservedPort, error) {
	want, err := netip.ParseAddrPort(addr)
	if err != nil || !want.Addr().Is4() {
		return nil, ErrNoIPv4
	}
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	k := &ReservedPort{fd: fd}
	if err := k.bindPort(want); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return k, nil
}

// bindPort binds the socket and records the port that the kernel chose.
func (k *ReservedPort) bindPort(want netip.AddrPort) error {
	if err := syscall.SetsockoptInt(k.fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	if err := syscall.Bind(k.fd, &syscall.SockaddrInet4{Addr: want.Addr().As4(), Port: int(want.Port())}); err != nil {
		return os.NewSyscallError("bind", err)
	}
	at, err := syscall.Getsockname(k.fd)
	if err != nil {
		return os.NewSyscallError("getsockname", err)
	}
	k.addr = netip.AddrPortFrom(want.Addr(), uint16(at.(*syscall.SockaddrInet4).Port))
	return nil
}

// Addr returns the address, with the port that was chosen.
func (k *ReservedPort) Addr() string { return k.addr.String() }

// Close releases the port. A server that listens there is not affected.
func (k *ReservedPort) Close() error { return os.NewSyscallError("close", syscall.Close(k.fd)) }
