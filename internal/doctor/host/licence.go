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
			Status: doctor.Warning, Found: "a free licence: its API changes nothing, so that decamp has to ask by SSH", Want: "an evaluation or paid licence, or SSH",
			Remedy: "# start SSH, at the host's console:\nvim-cmd hostsvc/start_ssh",
		}
	case g.isFree(ctx):
		return okFinding("a free licence: its API only reads, and no more is needed")
	case ends.IsZero():
		return okFinding("the API may change things, or it is not known that it may not")
	case ends.Sub(g.Now()) < soon:
		return doctor.Finding{
			Status: doctor.Warning, Found: "the evaluation licence ends on " + day + ": then a VM that is off stays off", Want: "a licence that outlasts the move",
			Remedy: "# give the host another:\nvim-cmd vimsvc/license --set XXXXX-XXXXX-XXXXX-XXXXX-XXXXX",
		}
	}
	return okFinding("an evaluation licence until " + day)
}
