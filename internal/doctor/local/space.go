package local

import (
	"context"
	"fmt"

	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/fault"
)

const gib = 1 << 30

// total returns the allocated bytes of all disks, and their full size.
func (e *examiner) total() (allocated, provisioned int64) {
	for _, d := range e.Disks {
		allocated, provisioned = allocated+min(d.Allocated, d.Size), provisioned+d.Size
	}
	return allocated, provisioned
}

func (e *examiner) space(context.Context) []doctor.Finding {
	f := doctor.Finding{On: e.Folder}
	s, err := e.Room(e.nearest())
	if err != nil {
		f.Status, f.Seen, f.Remedy = doctor.Unknown, err.Error(), "df -h "+fault.Quote(e.nearest())
		return []doctor.Finding{f}
	}
	allocated, provisioned := e.total()
	f.Seen = fmt.Sprintf("%.1f GiB are free", float64(s.Available)/gib)
	if len(e.Disks) == 0 {
		return []doctor.Finding{f}
	}
	f.Seen += fmt.Sprintf(", and the disks have %.1f GiB allocated of %.1f GiB", float64(allocated)/gib, float64(provisioned)/gib)
	switch {
	case s.Available < allocated:
		f.Status, f.Want = doctor.Failure, fmt.Sprintf("%.1f GiB more", float64(allocated-s.Available)/gib)
	case s.Available < provisioned:
		f.Status, f.Want = doctor.Warning, fmt.Sprintf("%.1f GiB more, for what guests will write in time", float64(provisioned-s.Available)/gib)
	}
	if f.Status != doctor.OK {
		f.Remedy = fmt.Sprintf("make room, or name another place with --to: df -h %s", fault.Quote(e.nearest()))
	}
	return []doctor.Finding{f}
}
