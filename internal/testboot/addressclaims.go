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

// Talker is a sender on one of the guest's network cards: its MAC, and the addresses that it claims. It
// shows that a static address still exists without an answering network.
type Talker struct {
	MAC       string       `json:"mac"`
	Addresses []netip.Addr `json:"addresses,omitempty"`
	DHCP      bool         `json:"dhcp,omitempty"` // the sender requests an address
}

// String describes the packets of a card.
func (t Talker) String() string {
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
	frameLen   = 512 // bytes that are kept of a frame
	maxTalkers = 64  // MACs that are remembered: a guest may bridge many
	maxClaims  = 16  // addresses of each
	etherARP   = 0x0806
	etherIPv4  = 0x0800
	etherIPv6  = 0x86dd
	etherVLAN  = 0x8100
)

// An ear hears what the cards of one guest send.
type ear struct {
	ipv4 bool // IPv6 does not count: EFI firmware speaks it by itself
	mu   sync.Mutex
	all  []Talker
}

// listen reads one card's frames, as pcap (the classic format, as QEMU's filter-dump writes it), to
// their end. What is no pcap ends it, too.
func (e *ear) listen(r io.Reader) {
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
		e.hear(frame)
	}
}

// talkers are those heard so far.
func (e *ear) talkers() []Talker {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := slices.Clone(e.all)
	for i := range all {
		all[i].Addresses = slices.Clone(all[i].Addresses)
	}
	return all
}

// hear takes note of who sends a frame, if it is an operating system's.
func (e *ear) hear(frame []byte) {
	if len(frame) < 14 {
		return
	}
	mac, kind, body := net.HardwareAddr(frame[6:12]), binary.BigEndian.Uint16(frame[12:]), frame[14:]
	if kind == etherVLAN && len(body) >= 4 {
		kind, body = binary.BigEndian.Uint16(body[2:]), body[4:]
	}
	switch {
	case kind == etherARP:
		e.note(mac, claimByARP(body), false)
	case kind == etherIPv4:
		if dhcp, firmware := asksDHCP(body); !firmware {
			e.note(mac, sourceIPv4(body), dhcp)
		}
	case kind == etherIPv6 && !e.ipv4:
		e.note(mac, claimByIPv6(body), false)
	}
}

func (e *ear) note(mac net.HardwareAddr, claim netip.Addr, dhcp bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	i := slices.IndexFunc(e.all, func(t Talker) bool { return t.MAC == mac.String() })
	if i < 0 {
		if len(e.all) == maxTalkers {
			return
		}
		i = len(e.all)
		e.all = append(e.all, Talker{MAC: mac.String()})
	}
	t := &e.all[i]
	t.DHCP = t.DHCP || dhcp
	if claim.IsValid() && !claim.IsUnspecified() && len(t.Addresses) < maxClaims && !slices.Contains(t.Addresses, claim) {
		t.Addresses = append(t.Addresses, claim)
	}
}

// claimByARP returns the address that a host claims: the sender's, or the target of a probe (RFC 5227).
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

func sourceIPv4(p []byte) netip.Addr {
	if len(p) < 20 || p[0]>>4 != 4 {
		return netip.Addr{}
	}
	return netip.AddrFrom4([4]byte(p[12:16]))
}

// asksDHCP reports a client's DHCP message, and whether firmware sends it, for a network boot: its
// class (option 60) shows that.
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

// claimByIPv6 returns the source, or the target of a neighbour solicitation without a source: the
// address that will be claimed (RFC 4862).
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
