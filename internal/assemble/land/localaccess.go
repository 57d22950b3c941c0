package land

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/fault"
)

// localAccess returns a warning for each way in which other users of this machine reach the files below
// dir: by the folder's permissions, and by mounting it from one of this machine's own addresses.
func localAccess(dir string, h assemble.Hosts, own []netip.Addr) (warnings []string) {
	if mode, ok := openFolder(dir); ok {
		warnings = append(warnings, fmt.Sprintf("other users of this machine can reach the files in %s, whose permissions are %s; to prevent that, run: chmod 700 %s",
			fault.Printable(dir), mode, fault.Quote(dir)))
	}
	for _, allowed := range h {
		for _, addr := range own {
			if allowed.Contains(addr) {
				warnings = append(warnings, fmt.Sprintf("any user of this machine can mount %s, because --allow %s includes its address %s; allow only the addresses of the hosts",
					fault.Printable(dir), allowed, addr))
				break
			}
		}
	}
	return warnings
}

// openFolder reports whether other users can enter or list a folder, or its group can write to it. A folder
// above that other users cannot enter protects it from them.
func openFolder(dir string) (os.FileMode, bool) {
	const others, otherSearch, groupWrite = 0o007, 0o001, 0o020
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	info, err := os.Stat(dir)
	if err != nil {
		return 0, false
	}
	mode := info.Mode()
	if mode&groupWrite != 0 {
		return mode, true
	}
	if mode&others == 0 {
		return mode, false
	}
	for above := filepath.Dir(dir); ; above = filepath.Dir(above) {
		if info, err := os.Stat(above); err != nil || info.Mode()&otherSearch == 0 {
			return mode, false
		}
		if above == filepath.Dir(above) {
			return mode, true
		}
	}
}

// ownAddresses are the addresses from which a process of this machine may connect to itself.
func ownAddresses() []netip.Addr {
	own := []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	list, _ := net.InterfaceAddrs() // without it, only loopback is known
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			own = append(own, p.Addr().Unmap())
		}
	}
	return own
}
