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

// A link is the description of an interface in /sys.
type link struct {
	name  string
	mbits int  // Mbit/s; 0: it has none, as virtual ones
	half  bool // only one side sends at a time
}

// lookLink reads the speed of an interface, or where it is a VLAN, a bridge or a bond, of the
// fastest one below it.
func lookLink(root fs.FS, name string, depth int) link {
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
	for _, below := range lower(root, dir) {
		if b := lookLink(root, below, depth+1); b.mbits > l.mbits {
			l = b
		}
	}
	return l
}

// lower are the interfaces that one consists of.
func lower(root fs.FS, dir string) (names []string) {
	entries, _ := fs.ReadDir(root, dir) // an interface that is gone has none
	for _, e := range entries {
		if name, ok := strings.CutPrefix(e.Name(), "lower_"); ok {
			names = append(names, name)
		}
	}
	return names
}

const (
	gigabit    = 1000 // Mbit/s
	gigabitNIC = "1g"
)

func (e *examiner) link(ctx context.Context) []doctor.Finding {
	w, out := e.beyond(ctx)
	if !out {
		return nil
	}
	l := lookLink(e.Root, w.iface.Name, 0)
	f := doctor.Finding{On: w.iface.Name, Seen: fmt.Sprintf("%s: %d Mbit/s, MTU %d", l.name, l.mbits, w.iface.MTU)}
	switch {
	case l.mbits == 0:
		f.Seen = fmt.Sprintf("it has no speed, as virtual interfaces; MTU %d", w.iface.MTU)
	case l.half:
		f.Status, f.Seen, f.Want = doctor.Warning, f.Seen+", half duplex", "full duplex"
		f.Remedy = "ethtool -s " + l.name + " autoneg on   # and the same at the switch"
	case l.mbits < gigabit:
		f.Status, f.Want = doctor.Warning, "1000 Mbit/s at least: a cable or a port is bad"
		f.Remedy = "ethtool " + l.name + "   # what both ends offer"
	case l.mbits == gigabit:
		slow, fast := nicEffect()
		f.Status = doctor.Advice
		f.Want = fmt.Sprintf("10 Gbit/s or more where disks are flash: 1 GbE carries 118 MB/s. In published measurements 25 GbE took a copy from %.0f to %.0f MiB/s", slow, fast)
		f.Remedy = "decamp advise --what-if nic=25g"
	}
	return []doctor.Finding{f}
}

// nicEffect is what the fastest published setup gave over 1 GbE, and over the fastest link, in
// MiB/s.
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
