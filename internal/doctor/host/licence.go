package host

import (
	"context"
	"time"

	"github.com/decamp/decamp/internal/doctor"
)

// soon is the time before the end of an evaluation licence in which it is reported.
// Migrations take days.
const soon = 14 * 24 * time.Hour

// checkLicence examines the licence of a single host. vCenter manages the licences of
// its hosts.
func (g *group) checkLicence(ctx context.Context) []doctor.Finding {
	h, ok := g.firstConnected()
	if g.VCenter || !ok {
		return nil
	}
	f := g.licenceOf(ctx)
	f.On = onHost(h)
	return []doctor.Finding{f}
}

// licenceOf returns the finding about the licence of the host.
func (g *group) licenceOf(ctx context.Context) doctor.Finding {
	// The zero time means another licence, or that the user may not read it.
	ends := g.Source.EvaluationEnds(ctx)
	day := ends.UTC().Format(time.DateOnly)
	switch {
	case g.isFree(ctx) && g.Use.needsChanges():
		return doctor.Finding{
			Status: doctor.Warning, Found: "the free licence has a read-only API; decamp requires SSH for changes", Want: "an evaluation or paid licence, or SSH",
			Remedy: "# on the host's console, to start SSH:\nvim-cmd hostsvc/start_ssh",
		}
	case g.isFree(ctx):
		return okFinding("free licence; the migration requires only read access")
	case ends.IsZero():
		return okFinding("no known limit of the licence")
	case ends.Sub(g.Now()) < soon:
		return doctor.Finding{
			Status: doctor.Warning, Found: "the evaluation licence expires on " + day + "; VMs cannot be powered on after that", Want: "a licence that is valid until the migration ends",
			Remedy: "# on the host, to assign another licence:\nvim-cmd vimsvc/license --set XXXXX-XXXXX-XXXXX-XXXXX-XXXXX",
		}
	}
	return okFinding("evaluation licence until " + day)
}
