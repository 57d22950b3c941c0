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

// jumboMTU is what "jumbo frames" are in the field.
const jumboMTU = 9000

func (e *examiner) frames(ctx context.Context) []doctor.Finding {
	w, out := e.beyond(ctx)
	if !out {
		return nil
	}
	f, err := probeFrames(ctx, w.to, w.iface.MTU, e.Wait)
	if err != nil {
		remedy := pingRemedy(w)
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
			remedy = "sudo sysctl -w net.ipv4.ping_group_range=\"0 2147483647\"   # or run doctor as root, or try it by hand:\n" + remedy
		}
		return []doctor.Finding{{Status: doctor.Unknown, Seen: err.Error(), Want: "an echo to the host", Remedy: remedy}}
	}
	return []doctor.Finding{judgeFrames(w, f)}
}

// pingRemedy tries it by hand, from both ends.
func pingRemedy(w way) string {
	payload := w.iface.MTU - ipHeader - icmpHeader
	return fmt.Sprintf("ping -M do -c 3 -s %d %s\nvmkping -d -c 3 -s %d %s   # on the host", payload, w.to, payload, w.from)
}

// judgeFrames returns the finding for frames sent by this machine.
func judgeFrames(w way, f frames) doctor.Finding {
	most := w.iface.MTU
	found := doctor.Finding{Want: fmt.Sprintf("packets of %d bytes, as %s has them", most, w.iface.Name)}
	if len(f.answered) == 0 {
		found.Status, found.Seen = doctor.Unknown, fmt.Sprintf("%s answers no echo", w.to)
		found.Remedy = pingRemedy(w)
		return found
	}
	largest := f.answered[len(f.answered)-1]
	lost := slices.DeleteFunc(slices.Clone(f.lost), func(size int) bool { return size < largest }) // the larger sizes were mere losses
	adapt := fmt.Sprintf("ip link set dev %s mtu %d", w.iface.Name, largest)
	switch {
	case len(lost) > 0:
		found.Status = doctor.Failure
		found.Seen = fmt.Sprintf("packets up to %d bytes get through, and of %s bytes none does, without a word: a black hole, where connections stand still", largest, list(lost))
		found.Remedy = fmt.Sprintf("set the MTU of the switches in between, and of the host's vmknic and vSwitch, to %d; or here to what gets through:\n%s", most, adapt)
	case f.refusal.mtu > 0:
		found.Status = doctor.Advice
		found.Seen = fmt.Sprintf("%s reports a limit of %d bytes: TCP adapts, and the advantage of %d is lost", f.refusal.by, f.refusal.mtu, most)
		found.Remedy = fmt.Sprintf("raise the MTU of that router's next link, or here:\nip link set dev %s mtu %d", w.iface.Name, f.refusal.mtu)
	default:
		found.Seen = fmt.Sprintf("%d bytes get there and back", largest)
	}
	return found
}

func list(sizes []int) string {
	words := make([]string, len(sizes))
	for i, s := range sizes {
		words[i] = fmt.Sprint(s)
	}
	return strings.Join(words, ", ")
}

// ends compares the local MTU with the vmknic's, or if that is unknown, with the host's handshake.
func (e *examiner) ends(ctx context.Context) []doctor.Finding {
	w, out := e.beyond(ctx)
	if !out {
		return nil
	}
	theirs, by := e.HostMTU, "its vmknic"
	if theirs == 0 {
		theirs, by = e.shakeHands(ctx, w), "its handshake"
	}
	if theirs == 0 {
		return nil // no port of it answers, which another check reports
	}
	f := doctor.Finding{Seen: fmt.Sprintf("%d bytes here (%s), %d at the host (%s)", w.iface.MTU, w.iface.Name, theirs, by)}
	if w.iface.MTU == theirs || e.HostMTU == 0 && theirs > w.iface.MTU {
		return []doctor.Finding{f}
	}
	f.Status, f.Want = doctor.Warning, "the same at both ends, and at all between"
	f.Remedy = fmt.Sprintf("ip link set dev %s mtu %d", w.iface.Name, theirs)
	if theirs < w.iface.MTU && e.Transport != HTTPS {
		f.Remedy += fmt.Sprintf("\nesxcli network ip interface set -i vmk0 -m %d   # or on the host, with the vmknic that carries the data, after its vSwitch", w.iface.MTU)
	}
	return []doctor.Finding{f}
}

// jumbo gives the advice that differs by transport.
func (e *examiner) jumbo(ctx context.Context) []doctor.Finding {
	w, out := e.beyond(ctx)
	if !out || e.Transport == "" {
		return nil
	}
	mtu := w.iface.MTU
	if e.HostMTU > 0 {
		mtu = min(mtu, e.HostMTU)
	}
	f := doctor.Finding{Seen: fmt.Sprintf("%d bytes, with --transport %s", mtu, e.Transport)}
	switch {
	case e.Transport == Landing && mtu < jumboMTU:
		least, most := nfsGain()
		f.Status = doctor.Advice
		f.Want = fmt.Sprintf("%d bytes on all of the way: NFS gained %.1f to %.1f %% from it where it was measured. Last of all that can be gained", jumboMTU, least, most)
		f.Remedy = fmt.Sprintf("ip link set dev %s mtu %d   # after the switches; and on the host: esxcli network ip interface set -i vmk0 -m %d", w.iface.Name, jumboMTU, jumboMTU)
	case e.Transport == HTTPS && mtu >= jumboMTU:
		jumbo, usual := httpsLoss()
		f.Status = doctor.Advice
		f.Want = fmt.Sprintf("1500 bytes: over HTTPS %.0f Mbit/s were measured with %d, %.0f with 1500, on one network. Measure it on yours", jumbo, jumboMTU, usual)
		f.Remedy = fmt.Sprintf("ip route replace %s $(ip -o route get %s | grep -oE '(via [^ ]+ )?dev [^ ]+') advmss 1460   # 1500 for this host alone", w.to, w.to)
	}
	return []doctor.Finding{f}
}

// nfsGain is the least and the most that 9000 gave over 1500 in published measurements, in
// percent.
func nfsGain() (least, most float64) {
	rates := map[bench.Setup]float64{}
	for _, r := range bench.Seed().Matrix {
		rates[r.Setup] = r.Rate()
	}
	for s, jumbo := range rates {
		if s.MTU != jumboMTU {
			continue
		}
		s.MTU = 1500
		if usual := rates[s]; usual > 0 {
			gain := 100 * (jumbo/usual - 1)
			least, most = min(cmp.Or(least, gain), gain), max(most, gain)
		}
	}
	return least, most
}

// httpsLoss is the middle of what HTTPS gave with jumbo frames, and with as many connections
// without, in Mbit/s.
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
