package local

import (
	"context"
	"fmt"

	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/fault"
)

// gib is the number of bytes of a gibibyte.
const gib = 1 << 30

// totalSizes returns the allocated and the provisioned bytes of all disks.
func (e *examiner) totalSizes() (allocated, provisioned int64) {
	for _, d := range e.Disks {
		allocated, provisioned = allocated+min(d.Allocated, d.Size), provisioned+d.Size
	}
	return allocated, provisioned
}

// checkSpace compares the free space with the disks. Space for the allocated data is
// required; space for the full size is recommended.
func (e *examiner) checkSpace(context.Context) []doctor.Finding {
	f := doctor.Finding{On: e.Folder}
	s, err := e.Room(e.nearestFolder())
	if err != nil {
		f.Status, f.Found, f.Remedy = doctor.Unknown, err.Error(), "df -h "+fault.Quote(e.nearestFolder())
		return []doctor.Finding{f}
	}
	allocated, provisioned := e.totalSizes()
	f.Found = fmt.Sprintf("%.1f GiB free", float64(s.Available)/gib)
	if len(e.Disks) == 0 {
		return []doctor.Finding{f}
	}
	f.Found += fmt.Sprintf("; the disks have %.1f of %.1f GiB allocated", float64(allocated)/gib, float64(provisioned)/gib)
	// Data must fit; the provisioned size is only needed when guests write more.
	switch {
	case s.Available < allocated:
		f.Status, f.Want = doctor.Failure, fmt.Sprintf("%.1f GiB more free space", float64(allocated-s.Available)/gib)
	case s.Available < provisioned:
		f.Status, f.Want = doctor.Warning, fmt.Sprintf("%.1f GiB more free space, for later writes of the guests", float64(provisioned-s.Available)/gib)
	}
	if f.Status != doctor.OK {
		f.Remedy = fmt.Sprintf("select another folder with --to, or free space: df -h %s", fault.Quote(e.nearestFolder()))
	}
	return []doctor.Finding{f}
}
