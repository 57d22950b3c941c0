package landing

import (
	"context"
	"errors"
	"time"

	"github.com/decamp/decamp/internal/cleanup"
	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/esx/shell"
	"github.com/decamp/decamp/internal/inventory"
)

// WithShell is a host whose datastores are mounted by SSH where the API may not do it: a
// free licence forbids that as it forbids copies.
type WithShell struct {
	Host
	Open    Shells
	Refused func(host inventory.MoRef, why error) // told that the API may not mount; nil: nobody
}

// MountNAS is part of Host.
func (w WithShell) MountNAS(ctx context.Context, host inventory.MoRef, n esx.NAS) (name string, mounted bool, err error) {
	name, mounted, refused := w.Host.MountNAS(ctx, host, n)
	if !esx.Forbidden(refused) {
		return name, mounted, refused
	}
	if w.Refused != nil {
		w.Refused(host, refused)
	}
	sh, err := w.Open(ctx, host)
	if err != nil {
		return "", false, errors.Join(err, refused)
	}
	return sh.MountNAS(ctx, n)
}

// UnmountNAS is part of Host.
func (w WithShell) UnmountNAS(ctx context.Context, host inventory.MoRef, n esx.NAS) error {
	refused := w.Host.UnmountNAS(ctx, host, n)
	if !esx.Forbidden(refused) {
		return refused
	}
	sh, err := w.Open(ctx, host)
	if err != nil {
		return errors.Join(err, refused)
	}
	return sh.UnmountNAS(ctx, n)
}

// recordCopy records a copy, so that it is ended if this run is killed. Over says whether it is
// gone from the host; what is not stays on record.
func (s *SSH) recordCopy(host inventory.MoRef, job string, c esx.DiskCopy) (over func(gone bool) error, err error) {
	if s.Leftovers == nil {
		return func(bool) error { return nil }, nil
	}
	id, err := s.Leftovers.Add(cleanup.Record{
		Kind: cleanup.ShellJob, Server: s.Server, Host: host,
		What: map[string]string{"job": job},
		Text: "a copy of " + c.From.String() + " that goes on",
		// what vmkfstools runs as there is not to be ended by its name: others use it too
		ByHand: "kill -9 $(cat " + shell.DefaultJobs + "/" + job + "/child)",
		Since:  time.Now(),
	})
	return func(gone bool) error {
		if !gone {
			s.Leftovers.Release(id)
			return nil
		}
		return s.Leftovers.Remove(id)
	}, err
}

// RecordedJob returns the name of the job of a record.
func RecordedJob(r cleanup.Record) string { return r.What["job"] }
