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

// esxi is one ESXi host as all disks read from it share it.
type esxi struct {
	memory  memory
	network network
}

// esxiOf returns the host of that reference, asking about it the first time. What cannot be
// found out is taken for the worse, unless a network was asked for by name.
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
	if t.esxis[ref] == nil { // else another disk was quicker
		t.esxis[ref] = &esxi{memory: newMemory(limit), network: net}
	}
	return t.esxis[ref], nil
}

// The NFC memory of a host, all its clients together. An eighth is left for others: backups,
// and the host's own copies. The manual of 8.0 says 96 MB, older ones 48 MB; hostd's own
// default was 50331648 bytes (nbdkit-vddk-plugin(1)).
const (
	oldMemory   = 48 << 20
	newMemoryOf = 96 << 20
	firstNew    = 8 // major version
)

// MemoryOf returns the NFC memory of hosts of that version, in bytes.
func MemoryOf(version string) int64 {
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err == nil && n >= firstNew {
		return newMemoryOf
	}
	return oldMemory
}

// memory is the part of a host's NFC memory that our handles may take.
type memory struct {
	limit int64
	free  *semaphore.Weighted
	disks atomic.Int64
}

func newMemory(limit int64) memory {
	return memory{limit: limit, free: semaphore.NewWeighted(limit)}
}

// joinDisk waits for memory for the first handle of a disk. The longest waiting is first.
func (m *memory) joinDisk(ctx context.Context, n int64) error {
	if n > m.limit {
		return fault.New(fault.Invalid, "a session of %d bytes does not fit the %d bytes of the host's NFC memory", n, m.limit).
			WithHint("ask for less: --nfc-buffer 1M --nfc-buffers 4")
	}
	m.disks.Add(1)
	if err := m.free.Acquire(ctx, n); err != nil {
		m.disks.Add(-1)
		return err
	}
	return nil
}

// tryReserve takes memory for another handle of a disk that has some already, if there is any and
// the disk's share allows it.
func (m *memory) tryReserve(n, have int64) bool {
	return have+n <= m.share() && m.free.TryAcquire(n)
}

// exceedsShare reports whether a disk has more than its share, so that others wait.
func (m *memory) exceedsShare(have int64) bool { return have > m.share() }

func (m *memory) share() int64 { return m.limit / max(m.disks.Load(), 1) }

func (m *memory) release(n int64) { m.free.Release(n) }

func (m *memory) leaveDisk(have int64) {
	m.disks.Add(-1)
	m.free.Release(have)
}

// network says at which addresses a host is tried, before or in place of the one that its
// ticket leads to.
type network struct {
	only   string // the one that was asked for by name; empty: none was
	tagged []string
	note   string // which, for people
}

// chooseNetwork finds the interface asked for, or those tagged for backup traffic. unknown
// says why there is no list.
func chooseNetwork(want string, nics []inventory.VMkernelNIC, unknown error) (network, error) {
	var n network
	var have []string
	for _, nic := range nics {
		if want != "" && matchesInterface(nic, want) {
			return network{only: nic.Address, note: nic.Device + ", as chosen"}, nil
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
		WithHint("it has: %s", strings.Join(have, "; "))
}

// matchesInterface reports whether want is the interface's device, address, port group, or a subnet
// that holds its address.
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

// dialAddresses returns where to connect, best first. at is where the ticket leads; named says
// that the ticket itself says so: a vCenter names the tagged interface by itself.
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

// hasAddress reports whether addr, a host:port, is one of the network's own.
func (n network) hasAddress(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	return err == nil && (host == n.only || slices.Contains(n.tagged, host))
}

// toAddr returns the ticket for that host:port.
func toAddr(t nfc.Ticket, addr string) nfc.Ticket {
	host, port, err := net.SplitHostPort(addr)
	if n, bad := strconv.Atoi(port); err == nil && bad == nil {
		t.Host, t.Port = host, n
	}
	return t
}
