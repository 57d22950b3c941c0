package path

import (
	"encoding/binary"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A connection is a TCP connection of this machine, of any process.
type connection struct {
	local, remote netip.AddrPort // addresses of both ends
	info          unix.TCPInfo   // kernel's statistics; trailing fields are zero on older kernels
}

// Sizes and places of <linux/inet_diag.h>.
const (
	diagByFamily = 20 // SOCK_DIAG_BY_FAMILY
	diagInfo     = 2  // INET_DIAG_INFO

	requestSize = 56 // size of struct inet_diag_req_v2
	messageSize = 72 // size of struct inet_diag_msg

	established = 1 << 1 // TCP_ESTABLISHED as a bit mask
)

// establishedTo returns the established connections between this machine and an
// address.
func establishedTo(to netip.Addr) ([]connection, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	var found []connection
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} { // listeners on both have IPv4 in IPv6
		all, err := listConnections(fd, family)
		if err != nil {
			return nil, err
		}
		found = append(found, slices.DeleteFunc(all, func(c connection) bool { return c.remote.Addr() != to })...)
	}
	return found, nil
}

// listConnections requests all established connections of an address family.
func listConnections(fd int, family byte) (all []connection, err error) {
	request := make([]byte, unix.NLMSG_HDRLEN+requestSize)
	binary.NativeEndian.PutUint32(request, uint32(len(request)))
	binary.NativeEndian.PutUint16(request[4:], diagByFamily)
	binary.NativeEndian.PutUint16(request[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	body := request[unix.NLMSG_HDRLEN:]
	// struct inet_diag_req_v2: family, protocol, requested extensions.
	body[0], body[1], body[2] = family, unix.IPPROTO_TCP, 1<<(diagInfo-1)
	binary.NativeEndian.PutUint32(body[4:], established)
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, os.NewSyscallError("sendto", err)
	}
	buf := make([]byte, 1<<16)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return nil, os.NewSyscallError("recvfrom", err)
		}
		some, last, err := parseDump(buf[:n])
		if all = append(all, some...); last || err != nil {
			return all, err
		}
	}
}

// parseDump parses messages of the kernel. last is true after the final message or an
// error.
func parseDump(p []byte) (all []connection, last bool, err error) {
	messages, err := syscall.ParseNetlinkMessage(p)
	if err != nil {
		return nil, true, os.NewSyscallError("netlink", err)
	}
	for _, m := range messages {
		switch m.Header.Type {
		case unix.NLMSG_DONE:
			return all, true, nil
		case unix.NLMSG_ERROR:
			return all, true, os.NewSyscallError("sock_diag", unix.EOPNOTSUPP)
		case diagByFamily:
			if c, ok := parseConnection(m.Data); ok {
				all = append(all, c)
			}
		}
	}
	return all, false, nil
}

// parseConnection parses a struct inet_diag_msg with its attribute INET_DIAG_INFO. It
// returns false for messages without the attribute, and for invalid lengths.
func parseConnection(p []byte) (c connection, ok bool) {
	if len(p) < messageSize {
		return connection{}, false
	}
	id := p[4:] // struct inet_diag_sockid
	c.local = addrPortOf(p[0], id[4:20], binary.BigEndian.Uint16(id))
	c.remote = addrPortOf(p[0], id[20:36], binary.BigEndian.Uint16(id[2:]))
	const header, align = 4, 4
	for rest := p[messageSize:]; len(rest) >= header; {
		n := int(binary.NativeEndian.Uint16(rest))
		if n < header || n > len(rest) {
			return connection{}, false
		}
		if binary.NativeEndian.Uint16(rest[2:]) == diagInfo {
			// An older kernel returns a shorter structure, so only its length is
			// copied.
			info := unsafe.Slice((*byte)(unsafe.Pointer(&c.info)), unsafe.Sizeof(c.info))
			copy(info, rest[header:n])
			ok = true
		}
		rest = rest[min(len(rest), (n+align-1)&^(align-1)):]
	}
	return c, ok
}

// addrPortOf converts an address in network byte order. IPv4 addresses within IPv6 are
// unmapped.
func addrPortOf(family byte, addr []byte, port uint16) netip.AddrPort {
	a := netip.AddrFrom16([16]byte(addr[:16]))
	if family == unix.AF_INET {
		a = netip.AddrFrom4([4]byte(addr[:4]))
	}
	return netip.AddrPortFrom(a.Unmap(), port)
}
