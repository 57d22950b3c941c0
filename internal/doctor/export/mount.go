package export

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/fault"
)

// checkMounts compares the datastores of the hosts with the exports.
func (e *examiner) checkMounts(ctx context.Context, s *Server) (found []doctor.Finding) {
	for _, h := range e.Hosts {
		var mounts []Mount
		for _, m := range e.Mounts {
			if m.Host == h.Name {
				mounts = append(mounts, m)
			}
		}
		found = append(found, e.mountsOf(ctx, s, h, mounts)...)
	}
	return found
}

// mountsOf returns the findings for one host: OK if a datastore is one of the exports,
// else one per datastore of this machine that is not exported, or a warning if there is
// none.
func (e *examiner) mountsOf(ctx context.Context, s *Server, h Host, mounts []Mount) (found []doctor.Finding) {
	folders := s.exportedPaths()
	if len(e.LocalAddrs) == 0 || len(folders) == 0 {
		return nil
	}
	exported := func(path string) bool {
		return slices.ContainsFunc(folders, func(f string) bool { return path == f || strings.HasPrefix(path, strings.TrimSuffix(f, "/")+"/") })
	}
	add := func(m string) string {
		return fmt.Sprintf("esxcli storage nfs add -H %s -s %s -v %s", e.addressFacing(h.Addr), fault.Quote(folders[0]), fault.Quote(m))
	}
	var elsewhere []string
	for _, m := range mounts {
		at := fmt.Sprintf("%s:%s", m.Server, m.Path)
		// A mount from another server does not count, unless the host has no mount of
		// this machine.
		switch {
		case !e.isLocal(ctx, m.Server):
			elsewhere = append(elsewhere, fmt.Sprintf("%s mounts %s", m.Datastore, at))
		case exported(m.Path):
			return []doctor.Finding{{On: "host " + h.Name, Found: fmt.Sprintf("the datastore %s mounts %s", m.Datastore, at)}}
		default:
			found = append(found, doctor.Finding{
				On: "host " + h.Name, Status: doctor.Failure, Found: fmt.Sprintf("the datastore %s mounts %s, which is not exported", m.Datastore, at),
				Want: "a datastore that mounts " + strings.Join(folders, " or "), Remedy: fmt.Sprintf("# on the host:\nesxcli storage nfs remove -v %s && %s", fault.Quote(m.Datastore), add(m.Datastore)),
			})
		}
	}
	if len(found) > 0 {
		return found
	}
	seen := "no NFS datastore of this machine"
	if len(elsewhere) > 0 {
		seen += ": " + strings.Join(elsewhere, ", ")
	}
	return []doctor.Finding{{On: "host " + h.Name, Status: doctor.Warning, Found: seen, Want: "a datastore that mounts " + strings.Join(folders, " or "), Remedy: "# on the host:\n" + add("decamp")}}
}

// addressFacing returns the address of this machine that has most leading bits in
// common with a host's.
func (e *examiner) addressFacing(host netip.Addr) netip.Addr {
	return slices.MaxFunc(e.LocalAddrs, func(a, b netip.Addr) int { return commonBits(a, host) - commonBits(b, host) })
}

// commonBits returns the number of equal leading bits of two addresses, or -1 for
// addresses of different families.
func commonBits(a, b netip.Addr) (bits int) {
	a, b = a.Unmap(), b.Unmap()
	if a.BitLen() != b.BitLen() {
		return -1
	}
	for bits < a.BitLen() {
		p, err := a.Prefix(bits + 1)
		if err != nil || !p.Contains(b) {
			break
		}
		bits++
	}
	return bits
}

// isLocal reports whether the name or address of a server is one of this machine.
func (e *examiner) isLocal(ctx context.Context, server string) bool {
	addrs := []netip.Addr{}
	if a, err := netip.ParseAddr(server); err == nil {
		addrs = append(addrs, a)
	} else if addrs, err = e.Resolver.LookupNetIP(ctx, "ip", server); err != nil {
		return false
	}
	return slices.ContainsFunc(addrs, func(a netip.Addr) bool { return slices.Contains(e.LocalAddrs, a.Unmap()) })
}
