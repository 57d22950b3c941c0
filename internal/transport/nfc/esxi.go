package nfc

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/nfc"
)

// esxi is one ESXi host. All disks that are read from it share it.
type esxi struct {
	memory  memory  // NFC memory that our handles may use
	network network // addresses to connect to
}

// esxiOf returns the host with that reference, and queries its properties the first time. Without a
// version it assumes the smaller memory, and without a list of interfaces it connects to the ticket's
// address. It fails if Options.Network selects an interface and there is no list.
func (t *Transport) esxiOf(ctx context.Context, ref inventory.MoRef) (*esxi, error) {
	t.mu.Lock()
	e := t.esxis[ref]
	t.mu.Unlock()
	if e != nil {
		return e, nil
	}
	version, err := t.host.HostVersion(ctx, ref)
	if err != nil {
		t.opts.Log.Debug("version unknown", "host", ref, "err", err)
	}
	nics, err := t.host.VMkernelNICs(ctx, ref)
	if err != nil {
		t.opts.Log.Debug("VMkernel interfaces unknown", "host", ref, "err", err)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	net, err := chooseNetwork(t.opts.Network, nics, err)
	if err != nil {
		return nil, err
	}
	limit := t.opts.Memory
	if limit == 0 {
		limit = MemoryOf(version) / 8 * 7
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.esxis[ref] == nil { // otherwise another goroutine was faster
		t.esxis[ref] = &esxi{memory: newMemory(limit), network: net}
	}
	return t.esxis[ref], nil
}

// The NFC memory of a host, for all its clients together. An eighth is left for others: backups,
// and the host's own copies. The manual of 8.0 documents 96 MB, older ones 48 MB; hostd's own
// default was 50331648 bytes (nbdkit-vddk-plugin(1)).
const (
	oldMemory   = 48 << 20 // bytes up to version 7
	newMemoryOf = 96 << 20 // bytes from version 8 on
	firstNew    = 8        // first major version with newMemoryOf
)

// MemoryOf returns the NFC memory of hosts of a product version, in bytes.
func MemoryOf(version string) int64 {
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err == nil && n >= firstNew {
		return newMemoryOf
	}
	return oldMemory
}

// memory is the part of a host's NFC memory that our handles may use. It is safe for concurrent use.
type memory struct {
	limit int64               // bytes of all handles together
	free  *semaphore.Weighted // limit, less the bytes in use
	disks atomic.Int64        // number of disks with handles
}

// newMemory returns the memory of a host, with limit bytes free.
func newMemory(limit int64) memory {
	return memory{limit: limit, free: semaphore.NewWeighted(limit)}
}

// joinDisk waits for n bytes for the first handle of a disk, in order of arrival. It fails with
// fault.Invalid if n exceeds the limit.
func (m *memory) joinDisk(ctx context.Context, n int64) error {
	if n > m.limit {
		return fault.New(fault.Invalid, "a session requires %d bytes, more than the %d bytes of NFC memory of the host", n, m.limit).
			WithHint("reduce the buffers: --nfc-buffer 1M --nfc-buffers 4")
	}
	m.disks.Add(1)
	if err := m.free.Acquire(ctx, n); err != nil {
		m.disks.Add(-1)
		return err
	}
	return nil
}

// tryReserve reserves n bytes for another handle of a disk that has have bytes. It returns false if no
// memory is free, or the disk's share is used.
func (m *memory) tryReserve(n, have int64) bool {
	return have+n <= m.share() && m.free.TryAcquire(n)
}

// exceedsShare reports whether a disk with have bytes has more than its share, which other disks wait
// for.
func (m *memory) exceedsShare(have int64) bool { return have > m.share() }

// share returns the bytes that each disk may use.
func (m *memory) share() int64 { return m.limit / max(m.disks.Load(), 1) }

// release returns n bytes of a disk that keeps others.
func (m *memory) release(n int64) { m.free.Release(n) }

// leaveDisk returns the last bytes of a disk, which is closed.
func (m *memory) leaveDisk(have int64) {
	m.disks.Add(-1)
	m.free.Release(have)
}

// network contains the addresses at which a host is tried, before or instead of the ticket's.
type network struct {
	only   string   // address of the interface in Options.Network; empty if that is not set
	tagged []string // addresses of interfaces that are tagged for backup traffic
	note   string   // description of the chosen interface, for the user
}

// chooseNetwork returns the addresses of the interface want, or of those tagged for backup traffic.
// unknown is the error of the list of interfaces, nil if there is a list.
func chooseNetwork(want string, nics []inventory.VMkernelNIC, unknown error) (network, error) {
	var n network
	var have []string
	for _, nic := range nics {
		if want != "" && matchesInterface(nic, want) {
			return network{only: nic.Address, note: nic.Device + ", as configured"}, nil
		}
		if nic.Backup {
			n.tagged = append(n.tagged, nic.Address)
			n.note = nic.Device + ", tagged for backup traffic"
		}
		have = append(have, fmt.Sprintf("%s %s %q", nic.Device, nic.Address, nic.Network))
	}
	switch {
	case want == "":
		return n, nil
	case unknown != nil:
		return n, fmt.Errorf("find network %q: %w", want, unknown)
	}
	return n, fault.New(fault.NotFound, "the host has no VMkernel interface %q", want).
		WithHint("set one of its interfaces with --network: %s", strings.Join(have, "; "))
}

// matchesInterface reports whether want is the interface's device, address, port group, or a subnet
// with its address.
func matchesInterface(nic inventory.VMkernelNIC, want string) bool {
	if want == nic.Device || want == nic.Address || want == nic.Network {
		return true
	}
	subnet, err := netip.ParsePrefix(want)
	if err != nil {
		return false
	}
	addr, err := netip.ParseAddr(nic.Address)
	return err == nil && subnet.Contains(addr)
}

// dialAddresses returns the addresses to try, in order. at is the ticket's address; named reports that
// the ticket contains a host. A vCenter puts the tagged interface into its tickets.
func (n network) dialAddresses(at string, named bool) []string {
	_, port, err := net.SplitHostPort(at)
	switch {
	case err != nil:
		return []string{at}
	case n.only != "":
		return []string{net.JoinHostPort(n.only, port)}
	case named:
		return []string{at}
	}
	var list []string
	for _, host := range n.tagged {
		list = append(list, net.JoinHostPort(host, port))
	}
	return append(list, at)
}

// hasAddress reports whether addr, a host:port, is one of the network's addresses.
func (n network) hasAddress(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	return err == nil && (host == n.only || slices.Contains(n.tagged, host))
}

// toAddr returns the ticket with another host:port.
func toAddr(t nfc.Ticket, addr string) nfc.Ticket {
	host, port, err := net.SplitHostPort(addr)
	if n, bad := strconv.Atoi(port); err == nil && bad == nil {
		t.Host, t.Port = host, n
	}
	return t
}
