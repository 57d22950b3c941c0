package landing

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/decamp/decamp/internal/cleanup"
	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/esx/shell"
	"github.com/decamp/decamp/internal/inventory"
)

// A Copier makes a host copy a disk to another of its datastores, thin, and waits for the end. Both
// implementations use the same code of the host; they require different privileges.
type Copier interface {
	// CopyDisk calls began when the host starts the copy. Before that, it may wait for other copies.
	CopyDisk(ctx context.Context, host inventory.MoRef, c esx.DiskCopy, began func()) error
}

// API copies by CopyVirtualDisk_Task. It needs no shell, but a licence and privileges that allow
// changes.
type API struct {
	// Host is the ESXi or vCenter that executes the task.
	Host Host
}

// CopyDisk is part of Copier.
func (a API) CopyDisk(ctx context.Context, _ inventory.MoRef, c esx.DiskCopy, began func()) error {
	began()
	return a.Host.CopyDisk(ctx, c)
}

// Shells returns the SSH login of a host. It keeps the login for later calls.
type Shells func(ctx context.Context, host inventory.MoRef) (*shell.Shell, error)

// SSH copies by vmkfstools. It needs SSH, and no licence. It also copies disks without a flat file: RDM
// pointers and vSAN objects.
type SSH struct {
	Open Shells // Open returns the login of a host.

	// Copies bounds the concurrent copies on one host; further ones wait. Default 2: commands share the
	// memory of the resource group hostd-tmp, some 500 MB, and are killed when it is used up. forklift
	// allows two as well.
	Copies int64

	// Leftovers records each copy before it begins, as a job of a host of Server. Nil records nothing.
	Leftovers *cleanup.Store
	Server    string // Server is the host:port of the ESXi or vCenter, for Leftovers.

	mu    sync.Mutex                              // guards slots
	slots map[inventory.MoRef]*semaphore.Weighted // running copies of each host
}

const (
	defaultCopies = 2 // default of Copies

	// endTimeout bounds the attempt to end a failed copy on the host.
	endTimeout = time.Minute
)

// CopyDisk is part of Copier. It first ends a copy of the same disk to the same datastore that an
// earlier run left. That copy must not continue, because its acknowledged data may be lost with that
// run's memory.
func (s *SSH) CopyDisk(ctx context.Context, host inventory.MoRef, c esx.DiskCopy, began func()) error {
	slot := s.hostSlot(host)
	if err := slot.Acquire(ctx, 1); err != nil {
		return err
	}
	defer slot.Release(1)
	sh, err := s.Open(ctx, host)
	if err != nil {
		return err
	}
	from, err := shell.VolumePath(c.From)
	if err != nil {
		return err
	}
	to, err := shell.VolumePath(c.To)
	if err != nil {
		return err
	}
	name := shell.JobName("clone", c.To.Datastore, c.From.Datastore, c.From.File)
	forget, err := s.recordCopy(host, name, c)
	if err != nil {
		return err
	}
	began()
	err = sh.CloneDisk(ctx, shell.Clone{Name: name, From: from, To: to, Progress: c.Progress})
	return errors.Join(err, forget(s.hasEnded(ctx, sh, name, err)))
}

// hasEnded reports whether a copy that returned err has certainly ended. After an error it tries to end
// the copy.
func (s *SSH) hasEnded(ctx context.Context, sh *shell.Shell, name string, err error) bool {
	if err == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	return sh.Jobs.End(ctx, name) == nil
}

// hostSlot returns the semaphore that bounds the copies on a host.
func (s *SSH) hostSlot(host inventory.MoRef) *semaphore.Weighted {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slots == nil {
		s.slots = map[inventory.MoRef]*semaphore.Weighted{}
	}
	if s.slots[host] == nil {
		s.slots[host] = semaphore.NewWeighted(cmp.Or(s.Copies, defaultCopies))
	}
	return s.slots[host]
}

// A Choice copies by the API. It copies by SSH on hosts whose API does not allow it, and disks without a
// flat file on all hosts.
type Choice struct {
	API Copier // API is tried first.
	SSH Copier // SSH is used on hosts that refused the API.

	// Chosen is called once for each host whose API refused, with the API's error. Nil ignores it.
	Chosen func(host inventory.MoRef, why error)

	mu    sync.Mutex               // guards bySSH, and is held during Chosen
	bySSH map[inventory.MoRef]bool // hosts that refused the API
}

// CopyDisk is part of Copier. The API refuses a copy before it begins, so that it can be repeated by
// SSH. Disks without a flat file are copied by SSH only: other tools copy them by vmkfstools, and it is
// unknown whether CopyVirtualDisk_Task copies their content.
func (c *Choice) CopyDisk(ctx context.Context, host inventory.MoRef, d esx.DiskCopy, began func()) error {
	if d.Object || c.usesSSH(host) {
		return c.SSH.CopyDisk(ctx, host, d, began)
	}
	err := c.API.CopyDisk(ctx, host, d, began)
	if !esx.Forbidden(err) {
		return err
	}
	c.Refused(host, err)
	return c.SSH.CopyDisk(ctx, host, d, began)
}

// usesSSH reports whether a host's disks are copied by SSH.
func (c *Choice) usesSSH(host inventory.MoRef) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bySSH[host]
}

// Refused records that the API may not change this host: a licence that forbids mounts forbids copies
// too.
func (c *Choice) Refused(host inventory.MoRef, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bySSH[host] {
		return
	}
	if c.bySSH == nil {
		c.bySSH = map[inventory.MoRef]bool{}
	}
	c.bySSH[host] = true
	if c.Chosen != nil {
		c.Chosen(host, why)
	}
}

// Objects reports that disks without a flat file can be copied.
func (s *SSH) Objects() bool { return true }

// Objects reports that disks without a flat file can be copied.
func (c *Choice) Objects() bool { return true }
