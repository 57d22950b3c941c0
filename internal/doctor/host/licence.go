package host

import (
	"context"
	"time"

	"github.com/decamp/decamp/internal/doctor"
)

// soon is the time before the end of an evaluation licence from which it is reported: migrations take
// days.
const soon = 14 * 24 * time.Hour

// licence looks at that of a single host. Hosts of a vCenter are never free ones, and their licences
// are the vCenter's.
func (g *group) licence(ctx context.Context) []doctor.Finding {
	h, ok := g.first()
	if g.VCenter || !ok {
		return nil
	}
	f := g.licenceOf(ctx)
	f.On = onHost(h)
	return []doctor.Finding{f}
}

func (g *group) licenceOf(ctx context.Context) doctor.Finding {
	ends := g.Source.EvaluationEnds(ctx)
	day := ends.UTC().Format(time.DateOnly)
	switch {
	case g.free(ctx) && g.Use.changes():
		return doctor.Finding{
			Status: doctor.Warning, Seen: "a free licence: its API changes nothing, so that decamp has to ask by SSH", Want: "an evaluation or paid licence, or SSH",
			Remedy: "# start SSH, at the host's console:\nvim-cmd hostsvc/start_ssh",
		}
	case g.free(ctx):
		return fine("a free licence: its API only reads, and no more is needed")
	case ends.IsZero():
		return fine("the API may change things, or it is not known that it may not")
	case ends.Sub(g.Now()) < soon:
		return doctor.Finding{
			Status: doctor.Warning, Seen: "the evaluation licence ends on " + day + ": then a VM that is off stays off", Want: "a licence that outlasts the move",
			Remedy: "# give the host another:\nvim-cmd vimsvc/license --set XXXXX-XXXXX-XXXXX-XXXXX-XXXXX",
		}
	}
	return fine("an evaluation licence until " + day)
}
