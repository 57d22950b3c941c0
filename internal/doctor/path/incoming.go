package path

import (
	"context"
	"fmt"
	"strings"

	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/doctor/path/firewall"
	"github.com/decamp/decamp/internal/fault"
)

// checkInward evaluates this machine's firewall rules for connections of the host to a
// landing. A test connection from this machine would not pass the rules for incoming
// packets.
func (e *examiner) checkInward(ctx context.Context) (all []doctor.Finding) {
	w, beyond := e.remoteRoute(ctx)
	if e.Transport != Landing || !beyond {
		return nil
	}
	found, err := firewall.ReadRules(ctx, e.Firewall, w.to.Is6())
	if err != nil {
		return []doctor.Finding{{Status: doctor.Unknown, Found: err.Error(), Want: "readable firewall rules", Remedy: hintOr(err, "sudo nft list ruleset; sudo iptables-save")}}
	}
	for _, port := range []uint16{portmapPort, nfsPort} {
		p := firewall.Packet{From: w.to, To: w.from, Port: port, Interface: w.iface.Name}
		all = append(all, judgeInward(p, found.Judge(p), found.Tools))
	}
	return all
}

// judgeInward returns the finding for one port, with the remedies of all rules that
// stop the packet.
func judgeInward(p firewall.Packet, stops []firewall.Stop, tools []string) doctor.Finding {
	f := doctor.Finding{On: fmt.Sprintf("port %d from %s", p.Port, p.From), Want: "firewall rules that accept the host"}
	if len(stops) == 0 {
		f.Found = "accepted by the rules of " + strings.Join(tools, " and ")
		return f
	}
	// The stops are sorted: certain results come first.
	worst := stops[0]
	f.Status, f.Found = doctor.Failure, "dropped or rejected by "+worst.By
	if worst.Verdict == firewall.Unsure {
		f.Status, f.Found = doctor.Unknown, "unsupported rules: may be dropped by "+worst.By
	}
	var remedies []string
	for _, s := range stops {
		if s.Verdict == worst.Verdict {
			remedies = append(remedies, s.Remedy(p))
		}
	}
	f.Remedy = strings.Join(remedies, "\n")
	if worst.Verdict == firewall.Unsure {
		f.Remedy = fmt.Sprintf("# test it on the host, while decamp land runs on this machine: nc -z %s %d. If it fails:\n%s", p.To, p.Port, f.Remedy)
	}
	return f
}

// hintOr returns the remedy of err, or the given one if err has none.
func hintOr(err error, remedy string) string {
	if hint := fault.HintOf(err); hint != "" {
		return hint
	}
	return remedy
}
