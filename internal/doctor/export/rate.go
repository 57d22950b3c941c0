package export

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/fault"
)

// slow is the factor from which stable writes are reported as slow. Measurements vary
// by 50 %.
const slow = 3

// checkRate measures the write rate of the first folder that this machine may mount
// from itself.
func (e *examiner) checkRate(ctx context.Context, s *Server) []doctor.Finding {
	for _, folder := range s.exportedPaths() {
		from, ok := e.addressWithAccess(ctx, s, folder)
		if !ok {
			continue
		}
		r, err := measureRates(ctx, e.Portmap, from, folder, e.Probe)
		return []doctor.Finding{e.judgeRates(s, folder, r, err)}
	}
	return []doctor.Finding{{
		On: s.Name, Status: doctor.Unknown, Found: "no folder is exported to this machine, which the test requires",
		Remedy: "# on the host, to measure the write rate:\ndd if=/dev/zero of=/vmfs/volumes/DATASTORE/probe bs=64k count=4096 && rm /vmfs/volumes/DATASTORE/probe",
	}}
}

// addressWithAccess returns a local address to which a folder is exported read-write.
func (e *examiner) addressWithAccess(ctx context.Context, s *Server, folder string) (netip.Addr, bool) {
	// Loopback needs no network, so it is tried first.
	for _, a := range append([]netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}, e.LocalAddrs...) {
		if x, may := s.exportFor(ctx, folder, Host{Addr: a}, e.Resolver); may == Yes && x.Rules.Access == ReadWrite {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// judgeRates converts the result of a measurement to a finding. An error is Unknown.
func (e *examiner) judgeRates(s *Server, folder string, r Rates, err error) doctor.Finding {
	f := doctor.Finding{On: folder, Want: "stable writes as fast as unstable writes"}
	const mb = 1e6
	switch {
	case err != nil && errors.Is(err, context.Canceled):
		f.Status, f.Found, f.Remedy = doctor.Unknown, "canceled", "run the command again"
	case err != nil:
		f.Status, f.Found, f.Remedy = doctor.Unknown, err.Error(), fault.HintOf(err)
		if f.Remedy == "" {
			f.Remedy = s.remedyFor(s.firstExport(folder))
		}
	default:
		f.Found = fmt.Sprintf("%.0f MB/s with stable writes of 64 KiB, as ESXi writes, and %.0f MB/s with unstable writes: factor %.1f", r.Stable/mb, r.Unstable/mb, r.Penalty())
		if r.Penalty() >= slow {
			f.Status, f.Remedy = doctor.Warning, s.remedyFor(s.firstExport(folder))
			if s.Name == ganeshaName {
				f.Remedy = "# use decamp's own NFS server, which flushes once at the end:\ndecamp migrate --transport landing"
			}
		}
	}
	return f
}
