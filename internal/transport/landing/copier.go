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

// A Copier has a host copy a disk to another of its datastores, thin, and waits for the end.
// Both ways end in the same code of the host; they differ in who may ask.
type Copier interface {
	// CopyDisk calls began when the host is asked: it may have to wait for others before.
	CopyDisk(ctx context.Context, host inventory.MoRef, c esx.DiskCopy, began func()) error
}

// API copies by CopyVirtualDisk_Task: it needs no shell, but a licence and privileges that
// allow changes.
type API struct{ Host Host }

// CopyDisk is part of Copier.
func (a API) CopyDisk(ctx context.Context, _ inventory.MoRef, c esx.DiskCopy, began func()) error {
	began()
	return a.Host.CopyDisk(ctx, c)
}

// Shells gives the login to a host by SSH, and keeps it for the next who asks.
type Shells func(ctx context.Context, host inventory.MoRef) (*shell.Shell, error)

// SSH copies by vmkfstools: it needs SSH, and no licence. It copies what has no flat file
// too: RDM pointers and vSAN objects.
type SSH struct {
	Open Shells

	// Copies are at most so many at once on one host; those above wait. Default 2: commands
	// share the memory of the resource group hostd-tmp, some 500 MB, and are killed when it
	// is used up; two is what forklift allows.
	Copies int64

	// Leftovers is where a copy is recorded as a job of a host of Server before it begins.
	// Nil records nothing.
	Leftovers *cleanup.Store
	Server    string

	mu    sync.Mutex
	slots map[inventory.MoRef]*semaphore.Weighted
}

const (
	defaultCopies = 2

	// endTimeout bounds what it may take to see that a copy which failed is gone.
	endTimeout = time.Minute
)

// CopyDisk is part of Copier. A copy of the same disk to the same datastore that an earlier
// run left is ended first: what it was told is written may be lost with that run's memory,
// so it must not go on.
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
	over, err := s.recordCopy(host, name, c)
	if err != nil {
		return err
	}
	began()
	err = sh.CloneDisk(ctx, shell.Clone{Name: name, From: from, To: to, Progress: c.Progress})
	return errors.Join(err, over(s.hasEnded(ctx, sh, name, err)))
}

// hasEnded reports whether a copy that returned err has ended for certain.
func (s *SSH) hasEnded(ctx context.Context, sh *shell.Shell, name string, err error) bool {
	if err == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	return sh.Jobs.End(ctx, name) == nil
}

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

// A Choice copies by the API, and by SSH where the API is not allowed to.
type Choice struct {
	API Copier
	SSH Copier

	// Chosen is told, once for each host, that disks are copied by SSH and why. Nil: nobody.
	Chosen func(host inventory.MoRef, why error)

	mu    sync.Mutex
	bySSH map[inventory.MoRef]bool
}

// CopyDisk is part of Copier. What the API refuses it refuses before it begins. Disks without
// a flat file are vmkfstools' own: of the API nobody knows.
func (c *Choice) CopyDisk(ctx context.Context, host inventory.MoRef, d esx.DiskCopy, began func()) error {
	if c.usesSSH(host) {
		return c.SSH.CopyDisk(ctx, host, d, began)
	}
	err := c.API.CopyDisk(ctx, host, d, began)
	if !esx.Forbidden(err) {
		return err
	}
	c.Refused(host, err)
	return c.SSH.CopyDisk(ctx, host, d, began)
}

func (c *Choice) usesSSH(host inventory.MoRef) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bySSH[host]
}

// Refused says that the API may not change this host: what forbids a mount forbids copies.
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

// Objects tells that disks without a flat file are copied, too.
func (s *SSH) Objects() bool { return true }

// Objects tells that disks without a flat file are copied, too.
func (c *Choice) Objects() bool { return true }
