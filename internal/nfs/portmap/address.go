package portmap

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// A universal address (RFC 5665 section 5.2.3) is the host's address, and the two bytes of
// the port as decimal numbers after dots: 192.0.2.1.8.1 is port 2049 of 192.0.2.1.

// formatUniversal returns the universal address of a port of host a.
func formatUniversal(a netip.Addr, port uint16) string {
	const low = 8
	return fmt.Sprintf("%s.%d.%d", a, port>>low, port&0xff)
}

// parseUniversal parses a universal address.
func parseUniversal(s string) (netip.AddrPort, error) {
	rest, low := cutLast(s)
	host, high := cutLast(rest)
	h, err := strconv.ParseUint(high, 10, 8)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("universal address %q", s)
	}
	l, err := strconv.ParseUint(low, 10, 8)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("universal address %q", s)
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("universal address %q: %w", s, err)
	}
	return netip.AddrPortFrom(a, uint16(h<<8|l)), nil
}

// cutLast splits s at its last dot. Without a dot, all of s is after.
func cutLast(s string) (before, after string) {
	i := strings.LastIndexByte(s, '.')
	if i < 0 {
		return "", s
	}
	return s[:i], s[i+1:]
}
