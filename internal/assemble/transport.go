package assemble

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	wire "github.com/decamp/decamp/internal/nfc"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/transport/nfc"
	"github.com/decamp/decamp/internal/units"
)

// FitsMemory returns fault.Invalid if n bytes exceed the available memory of this machine. If that is
// unknown, it returns nil.
func FitsMemory(n int64) error {
	free, known := availableMemory()
	if !known || n <= free {
		return nil
	}
	return fault.New(fault.Invalid, "%s of memory are available, not %s", units.Binary(free), units.Binary(n)).
		WithHint("reduce --landing tmpfs:SIZE or --landing-memory SIZE; %s leave memory for the rest of the system", units.Binary(free/4*3))
}

// Hosts are the networks whose addresses may mount an export.
type Hosts []netip.Prefix

// LookUp converts names, addresses and networks to networks. flag names the flag for messages. A name
// may have several addresses.
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
			return nil, fault.New(fault.NotFound, "%s %s: %w", flag, name, err).WithHint("write the address of the host, or a network such as 10.0.0.0/24")
		}
		for _, addr := range addrs {
			addr = addr.Unmap()
			out = append(out, netip.PrefixFrom(addr, addr.BitLen()))
		}
	}
	return out, nil
}

// Admit reports whether an address may mount. IPv4 addresses in IPv6 form are converted.
func (h Hosts) Admit(addr netip.Addr) bool {
	for _, p := range h {
		if p.Contains(addr.Unmap()) {
			return true
		}
	}
	return false
}

// availableMemory returns the bytes that can be allocated without swapping: the estimate of the kernel
// (MemAvailable in proc_meminfo(5)), but at most the limit of the control group.
func availableMemory() (free int64, known bool) {
	// without /proc there is no estimate, and callers do not refuse anything
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, false
	}
	free, known = memAvailable(text)
	if left, limited := cgroupMemory("/sys/fs/cgroup"); limited && known {
		free = min(free, left)
	}
	return free, known
}

// memAvailable parses the line "MemAvailable: 23921056 kB" of /proc/meminfo; false if it is missing.
func memAvailable(meminfo []byte) (int64, bool) {
	lines := bufio.NewScanner(bytes.NewReader(meminfo))
	for lines.Scan() {
		// the unit of the file is KiB, although it is written kB
		if f := strings.Fields(lines.Text()); len(f) >= 2 && f[0] == "MemAvailable:" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			return n << 10, err == nil
		}
	}
	return 0, false
}

// cgroupMemory returns what is left of memory.max in a folder of cgroup v2; false if it sets no limit.
func cgroupMemory(dir string) (int64, bool) {
	limit, ok := readNumber(dir + "/memory.max")
	used, usedOK := readNumber(dir + "/memory.current")
	return max(limit-used, 0), ok && usedOK
}

// readNumber returns the number in a file; false if it has another content, as "max".
func readNumber(path string) (int64, bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}

// BuffersOf returns the buffers of an NFC session if a plan or a flag sets their size or number.
func BuffersOf(o planfile.NFC) wire.Buffers {
	return wire.Buffers{Size: cmp.Or(int64(o.Buffer), 1<<20), Count: o.Buffers}
}

// NewNFC returns the transport that reads from TCP port 902 of hosts. A session that delivers nothing for
// the time stall is replaced; 0 is the default of the transport.
func (a *Assembler) NewNFC(w *Parts, o planfile.NFC, stall time.Duration) *nfc.Transport {
	opts := nfc.Options{Handles: o.Handles, Network: string(o.Network), Stall: stall, Chosen: a.reportNFC, Log: a.Log}
	if o.Buffer > 0 || o.Buffers != planfile.DefaultOptions().NFC.Buffers { // else the transport chooses both, by whether the VM runs
		opts.Buffers = BuffersOf(o)
	}
	if o.Plain {
		opts.Wire = wire.Plain
	}
	return nfc.New(w.Session, opts)
}

// reportNFC logs and prints the address from which disks of a host are read.
func (p *Prompts) reportNFC(host inventory.MoRef, where string) {
	p.Log.Info("disks are read over NFC", "host", host, "addr", where)
	p.Notify("Disks are read over NFC from %s.", where)
}
