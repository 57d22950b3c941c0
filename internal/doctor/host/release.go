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
	version string // major and minor version, such as "7.0"
	ends    string // day as 2006-01-02
	source  string // publication of the day
}

// releases lists versions in ascending order. No end of support is known for later
// versions.
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

// oldestReported is the oldest version with published reports of such migrations.
const oldestReported = "6.0"

// trackingFixed is the build of ESXi 6.0 in which change tracking survives the
// consolidation of a snapshot (ESXi600-201511001, KB 2136854).
const trackingFixed = 3247720

// checkVersion reports versions without support, and builds with a known defect of
// change tracking.
func (g *group) checkVersion(ctx context.Context) []doctor.Finding {
	return g.forEachHost(ctx, func(_ context.Context, h inventory.Host) doctor.Finding {
		seen := fmt.Sprintf("ESXi %s build %s", h.Version, h.Build)
		// An unknown build is not reported: later builds are right.
		build, err := strconv.Atoi(h.Build)
		r, known := releaseOf(h.Version)
		switch {
		case h.Version == "":
			return doctor.Finding{Status: doctor.Unknown, Found: "the host does not report its version", Want: "the ESXi version", Remedy: "assign the role Read-only on the host to the user"}
		case g.Use.Warm && r.version == "6.0" && err == nil && build < trackingFixed:
			return doctor.Finding{
				Status: doctor.Warning, Found: seen + " loses tracked changes when a snapshot is removed (KB 2136854)", Want: "ESXi600-201511001 or later",
				Remedy: "add --paranoid, which compares all data at the cutover, or patch the host",
			}
		case known && isBefore(r.version, oldestReported):
			return doctor.Finding{
				Status: doctor.Warning, Found: seen + "; decamp has no reports about migrations from this version", Want: "ESXi " + oldestReported + " or later",
				Remedy: "migrate a small VM first and check it, or upgrade the host",
			}
		case known && g.Now().UTC().Format(time.DateOnly) > r.ends:
			return doctor.Finding{
				Status: doctor.Advice, Found: fmt.Sprintf("%s; general support ended on %s", seen, r.ends), Want: "a supported version",
				Remedy: "migrate the VMs; the host requires no upgrade before that",
			}
		}
		return okFinding(seen)
	})
}

// releaseOf returns the release of a version such as 7.0.3, or false if it is not in
// the table.
func releaseOf(version string) (release, bool) {
	for _, r := range releases {
		// The dot prevents a match of 6.50 with 6.5.
		if version == r.version || strings.HasPrefix(version, r.version+".") {
			return r, true
		}
	}
	return release{}, false
}

// isBefore reports whether release a precedes b in the table.
func isBefore(a, b string) bool {
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
