package testboot

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"slices"
	"testing"
)

// Frames of a guest with the MAC 00:50:56:ab:cd:01.
const (
	frameHead  = "ffffffffffff" + "005056abcd01"
	arpProbe   = frameHead + "0806" + "0001080006040001" + "005056abcd01" + "00000000" + "000000000000" + "0a000005"
	arpRequest = frameHead + "0806" + "0001080006040001" + "005056abcd01" + "0a000005" + "000000000000" + "0a000001"
	tagged     = frameHead + "8100" + "000a" + "0806" + "0001080006040001" + "005056abcd01" + "0a140005" + "000000000000" + "0a140001"
	dhcp       = frameHead + "0800" + "4500002400000000" + "4011" + "0000" + "00000000" + "ffffffff" + "0044" + "0043" + "0010" + "0000" + "0101060000000000"
	dhcpPXE    = frameHead + "0800" + "4500002800000000" + "4011" + "0000" + "00000000" + "ffffffff" + "0044" + "0043" + "0014" + "0000" + "5058" + "45436c69656e74" + "3a41"
	solicit    = frameHead + "86dd" + "60000000" + "0018" + "3a" + "ff" + "00000000000000000000000000000000" + "ff0200000000000000000001ffabcd01" + "8700" + "0000" + "00000000" + "fd000000000000000000000000000005"
	shortFrame = frameHead + "08"
)

func decodeFrame(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// pcapOf returns a capture file of frames as QEMU writes it.
func pcapOf(frames ...[]byte) []byte {
	b := binary.NativeEndian.AppendUint32(nil, 0xa1b2c3d4)
	b = append(b, make([]byte, 20)...)
	for _, f := range frames {
		b = append(b, make([]byte, 8)...)
		b = binary.NativeEndian.AppendUint32(b, uint32(len(f)))
		b = binary.NativeEndian.AppendUint32(b, uint32(len(f)))
		b = append(b, f...)
	}
	return b
}

func TestNetworkSendersAreCaptured(t *testing.T) {
	for name, c := range map[string]struct {
		frames []string
		ipv4   bool
		claims []string
		dhcp   bool
		none   bool // whether no sender is recorded
	}{
		"address probe":           {frames: []string{arpProbe}, claims: []string{"10.0.0.5"}},
		"request for the router":  {frames: []string{arpRequest, arpRequest, arpProbe}, claims: []string{"10.0.0.5"}},
		"in a VLAN":               {frames: []string{tagged}, claims: []string{"10.20.0.5"}},
		"DHCP":                    {frames: []string{dhcp}, dhcp: true},
		"firmware":                {frames: []string{dhcpPXE}, none: true},
		"IPv6":                    {frames: []string{solicit}, claims: []string{"fd00::5"}},
		"IPv6, maybe of firmware": {frames: []string{solicit}, ipv4: true, none: true},
		"truncated":               {frames: []string{shortFrame}, none: true},
	} {
		e := &capture{ipv4: c.ipv4}
		var frames [][]byte
		for _, f := range c.frames {
			frames = append(frames, decodeFrame(t, f))
		}
		e.readFrames(bytes.NewReader(pcapOf(frames...)))
		all := e.snapshot()
		if c.none {
			if len(all) > 0 {
				t.Errorf("%s: got senders %+v, want none", name, all)
			}
			continue
		}
		var claims []netip.Addr
		for _, a := range c.claims {
			claims = append(claims, netip.MustParseAddr(a))
		}
		if len(all) != 1 || all[0].MAC != "00:50:56:ab:cd:01" || !slices.Equal(all[0].Addresses, claims) || all[0].DHCP != c.dhcp {
			t.Errorf("%s: got senders %+v", name, all)
		}
	}
}

func FuzzListen(f *testing.F) {
	for _, text := range []string{arpProbe, tagged, dhcp, dhcpPXE, solicit, shortFrame} {
		b, _ := hex.DecodeString(text)
		f.Add(pcapOf(b))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		e := &capture{}
		e.readFrames(bytes.NewReader(text))
		if len(e.snapshot()) > maxSenders {
			t.Errorf("%d senders are recorded, want at most %d", len(e.snapshot()), maxSenders)
		}
	})
}
