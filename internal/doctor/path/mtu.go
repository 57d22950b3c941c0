package path

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/bench"
	"github.com/decamp/decamp/internal/doctor"
)

// jumboMTU is the usual MTU of jumbo frames, in bytes.
const jumboMTU = 9000

// checkFrames sends echo requests of several sizes to the host.
func (e *examiner) checkFrames(ctx context.Context) []doctor.Finding {
	w, out := e.remoteRoute(ctx)
	if !out {
		return nil
	}
	f, err := probeFrames(ctx, w.to, w.iface.MTU, e.Wait)
	if err != nil {
		remedy := pingRemedy(w)
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
			remedy = "# permit echo requests, or run decamp doctor as root:\nsudo sysctl -w net.ipv4.ping_group_range=\"0 2147483647\"\n# or test it manually:\n" + remedy
		}
		return []doctor.Finding{{Status: doctor.Unknown, Found: err.Error(), Want: "a successful echo request to the host", Remedy: remedy}}
	}
	return []doctor.Finding{judgeFrames(w, f)}
}

// pingRemedy returns commands that test the largest packet from both ends.
func pingRemedy(w route) string {
	payload := w.iface.MTU - ipHeader - icmpHeader
	return fmt.Sprintf("ping -M do -c 3 -s %d %s\nvmkping -d -c 3 -s %d %s   # on the host", payload, w.to, payload, w.from)
}

// judgeFrames returns the finding for frames that this machine sent.
func judgeFrames(w route, f frameResults) doctor.Finding {
	most := w.iface.MTU
	found := doctor.Finding{Want: fmt.Sprintf("packets of %d bytes, the MTU of %s", most, w.iface.Name)}
	if len(f.answered) == 0 {
		found.Status, found.Found = doctor.Unknown, fmt.Sprintf("%s does not answer echo requests", w.to)
		found.Remedy = pingRemedy(w)
		return found
	}
	largest := f.answered[len(f.answered)-1]
	lost := slices.DeleteFunc(slices.Clone(f.lost), func(size int) bool { return size < largest }) // the larger sizes were mere losses
	adapt := fmt.Sprintf("ip link set dev %s mtu %d", w.iface.Name, largest)
	switch {
	case len(lost) > 0:
		found.Status = doctor.Failure
		found.Found = fmt.Sprintf("packets of up to %d bytes arrive; packets of %s bytes are lost without an error, so connections stall (MTU black hole)", largest, joinSizes(lost))
		found.Remedy = fmt.Sprintf("# set the MTU of the switches, and of the host's vmknic and vSwitch, to %d; or lower the MTU of this machine:\n%s", most, adapt)
	case f.refusal.mtu > 0:
		found.Status = doctor.Advice
		found.Found = fmt.Sprintf("%s limits packets to %d bytes; TCP adapts, without the advantage of %d bytes", f.refusal.by, f.refusal.mtu, most)
		found.Remedy = fmt.Sprintf("# raise the MTU of that router's next link, or set the MTU of this machine to the limit:\nip link set dev %s mtu %d", w.iface.Name, f.refusal.mtu)
	default:
		found.Found = fmt.Sprintf("packets of %d bytes reach the host", largest)
	}
	return found
}

// joinSizes formats sizes for a message.
func joinSizes(sizes []int) string {
	words := make([]string, len(sizes))
	for i, s := range sizes {
		words[i] = fmt.Sprint(s)
	}
	return strings.Join(words, ", ")
}

// checkEnds compares the local MTU with that of the host's VMkernel interface or, if it
// is unknown, with the segment size in the host's handshake.
func (e *examiner) checkEnds(ctx context.Context) []doctor.Finding {
	w, out := e.remoteRoute(ctx)
	if !out {
		return nil
	}
	theirs, by := e.HostMTU, "vmknic"
	if theirs == 0 {
		theirs, by = e.shakeHands(ctx, w), "TCP handshake"
	}
	if theirs == 0 {
		return nil // no port of it answers, which another check reports
	}
	f := doctor.Finding{Found: fmt.Sprintf("MTU %d on this machine (%s), %d on the host (%s)", w.iface.MTU, w.iface.Name, theirs, by)}
	// The handshake never shows more than the local MTU permits, so a larger value is
	// no contradiction.
	if w.iface.MTU == theirs || e.HostMTU == 0 && theirs > w.iface.MTU {
		return []doctor.Finding{f}
	}
	f.Status, f.Want = doctor.Warning, "the same MTU on the host, this machine and all switches in between"
	f.Remedy = fmt.Sprintf("ip link set dev %s mtu %d", w.iface.Name, theirs)
	if theirs < w.iface.MTU && e.Transport != HTTPS {
		f.Remedy += fmt.Sprintf("\n# or on the host, for the vmknic of the data, after its vSwitch:\nesxcli network ip interface set -i vmk0 -m %d", w.iface.MTU)
	}
	return []doctor.Finding{f}
}

// checkJumbo returns the recommendation about jumbo frames, which depends on the transport.
func (e *examiner) checkJumbo(ctx context.Context) []doctor.Finding {
	w, out := e.remoteRoute(ctx)
	if !out || e.Transport == "" {
		return nil
	}
	mtu := w.iface.MTU
	if e.HostMTU > 0 {
		mtu = min(mtu, e.HostMTU)
	}
	f := doctor.Finding{Found: fmt.Sprintf("MTU %d with --transport %s", mtu, e.Transport)}
	switch {
	case e.Transport == Landing && mtu < jumboMTU:
		least, most := nfsGain()
		f.Status = doctor.Advice
		f.Want = fmt.Sprintf("MTU %d on the complete path; in published measurements it made NFS %.1f to %.1f %% faster", jumboMTU, least, most)
		f.Remedy = fmt.Sprintf("# after the switches, on this machine:\nip link set dev %s mtu %d\n# on the host:\nesxcli network ip interface set -i vmk0 -m %d", w.iface.Name, jumboMTU, jumboMTU)
	case e.Transport == HTTPS && mtu >= jumboMTU:
		jumbo, usual := httpsLoss()
		f.Status = doctor.Advice
		f.Want = fmt.Sprintf("MTU 1500; in a published measurement HTTPS reached %.0f Mbit/s with MTU %d, and %.0f with 1500", jumbo, jumboMTU, usual)
		f.Remedy = fmt.Sprintf("# to use 1500 for this host only:\nip route replace %s $(ip -o route get %s | grep -oE '(via [^ ]+ )?dev [^ ]+') advmss 1460", w.to, w.to)
	}
	return []doctor.Finding{f}
}

// nfsGain returns the smallest and the largest gain from an MTU of 9000 instead of 1500
// in published measurements, in percent.
func nfsGain() (least, most float64) {
	rates := map[bench.Setup]float64{}
	for _, r := range bench.Seed().Matrix {
		rates[r.Setup] = r.Rate()
	}
	for s, jumbo := range rates {
		if s.MTU != jumboMTU {
			continue
		}
		// The same setup with the usual MTU, if it was measured.
		s.MTU = 1500
		if usual := rates[s]; usual > 0 {
			gain := 100 * (jumbo/usual - 1)
			least, most = min(cmp.Or(least, gain), gain), max(most, gain)
		}
	}
	return least, most
}

// httpsLoss returns the mean rates of HTTPS with jumbo frames, and with as many
// connections and an MTU of 1500, in Mbit/s.
func httpsLoss() (jumbo, usual float64) {
	rows := bench.Seed().HTTPS.Rows
	middle := func(r bench.HTTPSRow) float64 { return (r.Megabits[0] + r.Megabits[1]) / 2 }
	for _, j := range rows {
		for _, u := range rows {
			if j.MTU >= jumboMTU && u.MTU < jumboMTU && j.Connections == u.Connections {
				jumbo, usual = middle(j), middle(u)
			}
		}
	}
	return jumbo, usual
}
