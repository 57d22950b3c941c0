package host

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/inventory"
)

// release is a version of ESXi with the end of its general support.
type release struct {
	version string // "7.0"
	ends    string // 2006-01-02
	source  string
}

// releases are in order. Of those that came later no day was published that we know.
var releases = []release{
	{"5.0", "2016-08-24", "VMware lifecycle matrix"},
	{"5.1", "2016-08-24", "VMware lifecycle matrix"},
	{"5.5", "2018-09-19", "VMware lifecycle matrix, as recorded by endoflife.date"},
	{"6.0", "2020-03-12", "VMware lifecycle matrix, as recorded by endoflife.date"},
	{"6.5", "2022-10-15", "VMware lifecycle matrix, as recorded by endoflife.date"},
	{"6.7", "2022-10-15", "blogs.vmware.com, Announcing Extension of vSphere 6.7 General Support Period, June 2020"},
	{"7.0", "2025-10-02", "Broadcom lifecycle matrix, after the extension from 2025-04-02"},
	{"8.0", "2027-10-11", "Broadcom lifecycle matrix"},
}

// oldestTold is the first version that published reports of moves by these ways are of.
const oldestTold = "6.0"

// trackedRight is the build of ESXi 6.0 since which change tracking survives the consolidation
// of a snapshot (ESXi600-201511001, KB 2136854).
const trackedRight = 3247720

// version looks for what no longer gets fixes, and for builds that are known to tell wrong changes.
func (g *group) version(ctx context.Context) []doctor.Finding {
	return g.each(ctx, func(_ context.Context, h inventory.Host) doctor.Finding {
		seen := fmt.Sprintf("ESXi %s build %s", h.Version, h.Build)
		build, err := strconv.Atoi(h.Build)
		r, known := releaseOf(h.Version)
		switch {
		case h.Version == "":
			return doctor.Finding{Status: doctor.Unknown, Seen: "the host does not tell its version", Want: "an answer", Remedy: "give the account the role Read-only on the host"}
		case g.Use.Warm && r.version == "6.0" && err == nil && build < trackedRight:
			return doctor.Finding{
				Status: doctor.Warning, Seen: seen + ", which loses changes when a snapshot is removed (KB 2136854)", Want: "ESXi600-201511001 or later",
				Remedy: "add --paranoid, which compares everything in the end; or patch the host first",
			}
		case known && before(r.version, oldestTold):
			return doctor.Finding{
				Status: doctor.Warning, Seen: seen + ": no migrations from such an old version are known", Want: "ESXi " + oldestTold + " or later",
				Remedy: "move one small VM first, and look at it; or upgrade the host",
			}
		case known && g.Now().UTC().Format(time.DateOnly) > r.ends:
			return doctor.Finding{
				Status: doctor.Advice, Seen: fmt.Sprintf("%s; general support ended on %s", seen, r.ends), Want: "a version that is still mended",
				Remedy: "move its VMs before it fails: what breaks now stays broken; nothing has to be upgraded for that",
			}
		}
		return fine(seen)
	})
}

// releaseOf finds the release of a version such as 7.0.3; false if none is on record.
func releaseOf(version string) (release, bool) {
	for _, r := range releases {
		if version == r.version || strings.HasPrefix(version, r.version+".") {
			return r, true
		}
	}
	return release{}, false
}

// before compares releases of the table by their place in it.
func before(a, b string) bool {
	for _, r := range releases {
		if r.version == b {
			return false
		}
		if r.version == a {
			return true
		}
	}
	return false
}
