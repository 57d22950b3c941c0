package testboot

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
)

// Sender is a source of frames on one of the guest's network cards: the guest, or a VM
// or container in it. The addresses that it claims show that a static address is
// configured, even if the network does not answer.
type Sender struct {
	MAC       string       `json:"mac"`                 // source address of the frames
	Addresses []netip.Addr `json:"addresses,omitempty"` // addresses that the sender claims
	DHCP      bool         `json:"dhcp,omitempty"`      // the sender requests an address
}

// String describes what the sender does, for messages.
func (t Sender) String() string {
	var words []string
	for _, a := range t.Addresses {
		words = append(words, "is "+a.String())
	}
	if t.DHCP {
		words = append(words, "requests an address (DHCP)")
	}
	if len(words) == 0 {
		return "speaks"
	}
	return strings.Join(words, ", ")
}

const (
	frameLen   = 512    // bytes to capture of a frame
	maxSenders = 64     // limit of MACs; a guest may bridge many
	maxClaims  = 16     // limit of addresses per MAC
	etherARP   = 0x0806 // EtherType of ARP
	etherIPv4  = 0x0800 // EtherType of IPv4
	etherIPv6  = 0x86dd // EtherType of IPv6
	etherVLAN  = 0x8100 // EtherType of a VLAN tag (IEEE 802.1Q)
)

// A capture collects the senders on the cards of one guest. It is safe for concurrent
// use.
type capture struct {
	ipv4 bool       // ignore IPv6, because EFI firmware sends it as well
	mu   sync.Mutex // protects all
	all  []Sender   // senders in the order of their first frame
}

// readFrames reads the frames of one card until the end of r, in the classic pcap
// format of QEMU's filter-dump. It stops at invalid data.
func (e *capture) readFrames(r io.Reader) {
	in := bufio.NewReader(r)
	head := make([]byte, 24)
	if _, err := io.ReadFull(in, head); err != nil || binary.NativeEndian.Uint32(head) != 0xa1b2c3d4 {
		return
	}
	for record := make([]byte, 16); ; {
		if _, err := io.ReadFull(in, record); err != nil {
			return
		}
		n := binary.NativeEndian.Uint32(record[8:])
		if n > 1<<16 {
			return
		}
		frame := make([]byte, n)
		if _, err := io.ReadFull(in, frame); err != nil {
			return
		}
		e.addFrame(frame)
	}
}

// snapshot returns a copy of the senders so far.
func (e *capture) snapshot() []Sender {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := slices.Clone(e.all)
	for i := range all {
		all[i].Addresses = slices.Clone(all[i].Addresses)
	}
	return all
}

// addFrame records the sender of a frame, unless firmware sent it.
func (e *capture) addFrame(frame []byte) {
	if len(frame) < 14 {
		return
	}
	mac, kind, body := net.HardwareAddr(frame[6:12]), binary.BigEndian.Uint16(frame[12:]), frame[14:]
	// A tagged frame has the type of its contents after the tag.
	if kind == etherVLAN && len(body) >= 4 {
		kind, body = binary.BigEndian.Uint16(body[2:]), body[4:]
	}
	switch {
	case kind == etherARP:
		e.addClaim(mac, claimByARP(body), false)
	case kind == etherIPv4:
		if dhcp, firmware := asksDHCP(body); !firmware {
			e.addClaim(mac, sourceIPv4(body), dhcp)
		}
	case kind == etherIPv6 && !e.ipv4:
		e.addClaim(mac, claimByIPv6(body), false)
	}
}

// addClaim records a sender and an address, which may be invalid or unspecified.
func (e *capture) addClaim(mac net.HardwareAddr, claim netip.Addr, dhcp bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	// A sender is identified by its MAC; a bridge in the guest has several.
	i := slices.IndexFunc(e.all, func(t Sender) bool { return t.MAC == mac.String() })
	if i < 0 {
		if len(e.all) == maxSenders {
			return
		}
		i = len(e.all)
		e.all = append(e.all, Sender{MAC: mac.String()})
	}
	t := &e.all[i]
	t.DHCP = t.DHCP || dhcp
	if claim.IsValid() && !claim.IsUnspecified() && len(t.Addresses) < maxClaims && !slices.Contains(t.Addresses, claim) {
		t.Addresses = append(t.Addresses, claim)
	}
}

// claimByARP returns the address that a host claims: the sender's, or the target of a
// probe (RFC 5227).
func claimByARP(p []byte) netip.Addr {
	if len(p) < 28 || !bytes.Equal(p[:6], []byte{0, 1, 8, 0, 6, 4}) {
		return netip.Addr{}
	}
	sender := netip.AddrFrom4([4]byte(p[14:18]))
	if sender.IsUnspecified() {
		return netip.AddrFrom4([4]byte(p[24:28]))
	}
	return sender
}

// sourceIPv4 returns the source of an IPv4 packet, or an invalid address.
func sourceIPv4(p []byte) netip.Addr {
	if len(p) < 20 || p[0]>>4 != 4 {
		return netip.Addr{}
	}
	return netip.AddrFrom4([4]byte(p[12:16]))
}

// asksDHCP reports whether a packet is a client's DHCP message, and whether firmware
// sends it for a network boot. The vendor class (option 60) of firmware is PXEClient or
// HTTPClient.
func asksDHCP(p []byte) (asks, firmware bool) {
	if len(p) < 20 || p[0]>>4 != 4 || p[9] != 17 {
		return false, false
	}
	udp := p[min(len(p), int(p[0]&15)*4):]
	if len(udp) < 8 || binary.BigEndian.Uint16(udp) != 68 {
		return false, false
	}
	return true, bytes.Contains(udp[8:], []byte("PXEClient")) || bytes.Contains(udp[8:], []byte("HTTPClient"))
}

// claimByIPv6 returns the source, or the target of a neighbour solicitation without a
// source: the address that will be claimed (RFC 4862).
func claimByIPv6(p []byte) netip.Addr {
	if len(p) < 40 || p[0]>>4 != 6 {
		return netip.Addr{}
	}
	source := netip.AddrFrom16([16]byte(p[8:24]))
	const icmp, solicitation = 58, 135
	if source.IsUnspecified() && p[6] == icmp && len(p) >= 40+24 && p[40] == solicitation {
		return netip.AddrFrom16([16]byte(p[48:64]))
	}
	return source
}
