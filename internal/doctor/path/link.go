package path

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/decamp/decamp/internal/bench"
	"github.com/decamp/decamp/internal/doctor"
)

// A link describes a network interface (/sys/class/net).
type link struct {
	name  string // name of the interface that determines the speed
	mbits int    // Mbit/s; 0 for virtual interfaces
	half  bool   // true for half duplex
}

// readLink reads the speed of an interface. A VLAN, bridge or bond has the speed of its
// fastest lower interface. depth is the number of interfaces above.
func readLink(root fs.FS, name string, depth int) link {
	dir := path.Join("sys/class/net", name)
	l := link{name: name}
	text, err := fs.ReadFile(root, path.Join(dir, "speed")) // EINVAL where there is no carrier
	if n, errN := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && errN == nil && n > 0 {
		l.mbits = n
	}
	duplex, _ := fs.ReadFile(root, path.Join(dir, "duplex")) // a missing value does not mean half duplex
	l.half = strings.TrimSpace(string(duplex)) == "half"
	const deepest = 4 // a VLAN on a bridge on a bond on a NIC
	if l.mbits > 0 || depth >= deepest {
		return l
	}
	// The fastest lower interface counts: a connection uses one link of a bond.
	for _, below := range lowerInterfaces(root, dir) {
		if b := readLink(root, below, depth+1); b.mbits > l.mbits {
			l = b
		}
	}
	return l
}

// lowerInterfaces returns the interfaces that an interface consists of.
func lowerInterfaces(root fs.FS, dir string) (names []string) {
	entries, _ := fs.ReadDir(root, dir) // an interface that is gone has none
	for _, e := range entries {
		if name, ok := strings.CutPrefix(e.Name(), "lower_"); ok {
			names = append(names, name)
		}
	}
	return names
}

const (
	gigabit    = 1000 // speed of 1 GbE in Mbit/s
	gigabitNIC = "1g" // name of 1 GbE in package bench
)

// checkLink reports links that are slow, or half duplex.
func (e *examiner) checkLink(ctx context.Context) []doctor.Finding {
	w, out := e.remoteRoute(ctx)
	if !out {
		return nil
	}
	l := readLink(e.Root, w.iface.Name, 0)
	f := doctor.Finding{On: w.iface.Name, Found: fmt.Sprintf("%s: %d Mbit/s, MTU %d", l.name, l.mbits, w.iface.MTU)}
	switch {
	case l.mbits == 0:
		f.Found = fmt.Sprintf("virtual interface without a speed; MTU %d", w.iface.MTU)
	case l.half:
		f.Status, f.Found, f.Want = doctor.Warning, f.Found+", half duplex", "full duplex"
		f.Remedy = "ethtool -s " + l.name + " autoneg on   # also at the switch"
	case l.mbits < gigabit:
		f.Status, f.Want = doctor.Warning, "at least 1000 Mbit/s; check the cable and the port"
		f.Remedy = "ethtool " + l.name + "   # modes of both ends"
	case l.mbits == gigabit:
		slow, fast := nicEffect()
		f.Status = doctor.Advice
		f.Want = fmt.Sprintf("10 Gbit/s or more for flash disks; 1 GbE carries 118 MB/s. In published measurements a copy reached %.0f MiB/s with 1 GbE and %.0f MiB/s with 25 GbE", slow, fast)
		f.Remedy = "decamp advise --what-if nic=25g"
	}
	return []doctor.Finding{f}
}

// nicEffect returns the rates in MiB/s of the fastest published setup with 1 GbE and
// with its own link.
func nicEffect() (slow, fast float64) {
	rows := bench.Seed().Matrix
	var best bench.Setup
	for _, r := range rows {
		if r.Rate() > fast {
			fast, best = r.Rate(), r.Setup
		}
	}
	best.NIC = gigabitNIC
	for _, r := range rows {
		if r.Setup == best {
			slow = r.Rate()
		}
	}
	return slow, fast
}
