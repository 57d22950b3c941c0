package path

import (
	"bytes"
	"encoding/binary"
)

// Echo messages of RFC 792, over IPv4.
const (
	echoRequest = 8 // ICMP type of an echo request
	echoReply   = 0 // ICMP type of an echo reply

	ipHeader   = 20 // bytes of an IPv4 header without options
	icmpHeader = 8  // bytes of an echo message's header
	cookieSize = 8  // bytes of the cookie after the header

	// leastFrame is the packet size that each host must accept (RFC 791), in bytes.
	leastFrame = 576
)

// newEcho returns an echo request that is a packet of size bytes with its IP header.
// The cookie identifies replies to this process; the sequence number identifies the
// size.
func newEcho(size int, sequence uint16, cookie [cookieSize]byte) []byte {
	p := make([]byte, size-ipHeader)
	p[0] = echoRequest
	binary.BigEndian.PutUint16(p[6:], sequence)
	copy(p[icmpHeader:], cookie[:])
	for i := icmpHeader + cookieSize; i < len(p); i++ {
		p[i] = byte(i) // zeros would be compressed where something compresses
	}
	binary.BigEndian.PutUint16(p[2:], checksum(p))
	return p
}

// parseReply returns the sequence number of a reply to one of our requests. Packets
// from a raw socket start with the IP header.
func parseReply(p []byte, raw bool, cookie [cookieSize]byte) (sequence uint16, ok bool) {
	if raw {
		if len(p) < ipHeader || p[0]>>4 != 4 {
			return 0, false
		}
		// The header length is in units of four bytes.
		n := int(p[0]&0xf) * 4
		if n < ipHeader || n > len(p) {
			return 0, false
		}
		p = p[n:]
	}
	if len(p) < icmpHeader+cookieSize || p[0] != echoReply || !bytes.Equal(p[icmpHeader:icmpHeader+cookieSize], cookie[:]) {
		return 0, false
	}
	return binary.BigEndian.Uint16(p[6:]), true
}

// checksum returns the checksum of RFC 1071 for a message whose checksum field is zero.
func checksum(p []byte) uint16 {
	var sum uint32
	for ; len(p) >= 2; p = p[2:] {
		sum += uint32(p[0])<<8 | uint32(p[1])
	}
	if len(p) == 1 {
		sum += uint32(p[0]) << 8
	}
	// Carries are added to the lower 16 bits.
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// A refusal is a router's report that a packet was too large for the next link.
type refusal struct {
	mtu int    // limit of the next link, in bytes; 0 if there was no report
	by  string // address of the router; empty for the local interface
}

// parseRefusal parses a struct sock_extended_err and the address after it (ip(7),
// IP_RECVERR). A packet that is too large for the local interface has the same error,
// without an address.
func parseRefusal(p []byte) (refusal, bool) {
	const (
		messageSize = 90 // EMSGSIZE
		fromICMP    = 2  // SO_EE_ORIGIN_ICMP
		extended    = 16 // bytes of the struct, a sockaddr_in after it
		address     = extended + 4
		mostMTU     = 65535
	)
	if len(p) < extended || binary.NativeEndian.Uint32(p) != messageSize {
		return refusal{}, false
	}
	r := refusal{mtu: int(min(binary.NativeEndian.Uint32(p[8:]), mostMTU))}
	if p[4] == fromICMP && len(p) >= address+4 {
		a := p[address:]
		r.by = ipv4(a)
	}
	return r, true
}
