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

// WithShell is a Host that mounts datastores by SSH if the API refuses: a free licence forbids mounts
// as well as copies.
type WithShell struct {
	Host
	Open    Shells                                // Open returns the login of a host.
	Refused func(host inventory.MoRef, why error) // called when the API refuses a mount; nil ignores it
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

// recordCopy records a copy, so that the next run ends it if this run is killed. The caller calls
// forget at the end. If the copy may still run on the host, ended is false and the record stays.
func (s *SSH) recordCopy(host inventory.MoRef, job string, c esx.DiskCopy) (forget func(ended bool) error, err error) {
	if s.Leftovers == nil {
		return func(bool) error { return nil }, nil
	}
	id, err := s.Leftovers.Add(cleanup.Record{
		Kind: cleanup.ShellJob, Server: s.Server, Host: host,
		Details: map[string]string{"job": job},
		Text:    "a copy of " + c.From.String() + " that goes on",
		// The command uses the process ID, because other programs run vmkfstools too.
		ManualCommand: "kill -9 $(cat " + shell.DefaultJobs + "/" + job + "/child)",
		Since:         time.Now(),
	})
	return func(ended bool) error {
		if !ended {
			s.Leftovers.Release(id)
			return nil
		}
		return s.Leftovers.Remove(id)
	}, err
}

// RecordedJob returns the name of the job in a record of recordCopy.
func RecordedJob(r cleanup.Record) string { return r.Details["job"] }
