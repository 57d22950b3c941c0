package assemble

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/unit"
)

// FitsMemory refuses to hold more than this machine can. Where that is unknown, it is up
// to the user.
func FitsMemory(n int64) error {
	free, known := availableMemory()
	if !known || n <= free {
		return nil
	}
	return fault.New(fault.Invalid, "there are %s of memory to be had, not %s", unit.Binary(free), unit.Binary(n)).
		WithHint("give less to --landing tmpfs:SIZE or --landing-memory SIZE: %s leave room for the rest", unit.Binary(free/4*3))
}

// Hosts are who may mount.
type Hosts []netip.Prefix

// LookUp takes names, addresses and networks, as a flag was given them.
func LookUp[T ~string](ctx context.Context, flag string, list []T) (Hosts, error) {
	var out Hosts
	for _, each := range list {
		name := string(each)
		if p, err := netip.ParsePrefix(name); err == nil {
			out = append(out, p.Masked())
			continue
		}
		addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		if err != nil {
			return nil, fault.New(fault.NotFound, "%s %s: %w", flag, name, err).WithHint("give the host's address, or a network such as 10.0.0.0/24")
		}
		for _, addr := range addrs {
			addr = addr.Unmap()
			out = append(out, netip.PrefixFrom(addr, addr.BitLen()))
		}
	}
	return out, nil
}

func (h Hosts) Admit(addr netip.Addr) bool {
	for _, p := range h {
		if p.Contains(addr.Unmap()) {
			return true
		}
	}
	return false
}

// availableMemory returns how many bytes could be taken without swapping: what the kernel
// estimates (MemAvailable in proc_meminfo(5)), and no more than the control group allows.
func availableMemory() (free int64, known bool) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, false
	}
	free, known = memAvailable(text)
	if left, limited := groupMemory("/sys/fs/cgroup"); limited && known {
		free = min(free, left)
	}
	return free, known
}

// memAvailable reads the line "MemAvailable:   23921056 kB".
func memAvailable(meminfo []byte) (int64, bool) {
	lines := bufio.NewScanner(bytes.NewReader(meminfo))
	for lines.Scan() {
		if f := strings.Fields(lines.Text()); len(f) >= 2 && f[0] == "MemAvailable:" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			return n << 10, err == nil
		}
	}
	return 0, false
}

// groupMemory is what a cgroup v2 leaves of its memory.max; false if it sets none.
func groupMemory(dir string) (int64, bool) {
	limit, ok := readNumber(dir + "/memory.max")
	used, usedOK := readNumber(dir + "/memory.current")
	return max(limit-used, 0), ok && usedOK
}

// readNumber reads a file that holds a number; "max" is none.
func readNumber(path string) (int64, bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}
