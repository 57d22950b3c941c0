package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/lab"
)

const (
	waitingVMs   = 1000
	waitingHosts = 8
	waitingSpan  = 30 * time.Second // time of the measurement
	waitingLong  = 15 * time.Minute // until all are there: two on a machine without other work
)

// waitingFigures measures what a thousand warm runs cost that have nothing to do: plan run alone,
// and a worker of a real PostgreSQL.
func waitingFigures(ctx context.Context, b *bench) error {
	err := waitingFigure(ctx, b, "SQLite", 10, nil)
	db, dbErr := startDatabase()
	if dbErr != nil {
		return errors.Join(err, dbErr)
	}
	defer db.stop()
	return errors.Join(err, waitingFigure(ctx, b, "a worker of PostgreSQL", 5, db))
}

// waitingFigure is that with a database; nil: a file.
func waitingFigure(ctx context.Context, b *bench, on string, most float64, db *database) error {
	s, err := b.newSourceSetup(ctx, vcenterOf(waitingHosts, vmsOf(waitingVMs, waitingHosts, lab.VM{
		PoweredOn: true, ChangeTracking: true, Disks: []lab.Disk{{Capacity: 1 << 20}},
	})))
	if err != nil {
		return err
	}
	defer s.close()
	p, err := s.beginWaiting(ctx, db)
	if err != nil {
		return err
	}
	defer p.stop()
	if err := s.allWait(ctx, p, waitingVMs); err != nil {
		return err
	}
	took := time.Since(p.began)
	if err := pauseFor(ctx, 5*time.Second); err != nil { // remaining writes of the last VMs
		return err
	}
	note := ""
	before := map[int]float64{}
	if db != nil {
		before = db.processorUse()
	}
	share, err := p.coreShare(ctx, waitingSpan)
	if err != nil {
		return err
	}
	if db != nil {
		note = fmt.Sprintf("; the database's own %.1f %%", 100*db.usedSince(before)/waitingSpan.Seconds())
	}
	now, _ := p.memoryBytes()
	b.atMost(most, Row{Figure: "1,000 warm runs that wait for their cutover, " + on + ": of one core", Value: 100 * share, Unit: "%",
		Note: fmt.Sprintf("over %v%s; %d MiB resident; all of them waited %.0f s after its start", waitingSpan, note, now>>20, took.Seconds())})
	return nil
}

// beginWaiting has decamp carry a warm plan out.
func (s *sourceSetup) beginWaiting(ctx context.Context, db *database) (*program, error) {
	path, err := s.writePlan(moveSpec{name: "warm", warm: true})
	if err != nil {
		return nil, err
	}
	if db == nil {
		return s.startProgram(ctx, nil, "plan", "run", path)
	}
	s.database = db.url
	if err := s.runProgram(ctx, "plan", "run", path, "--detach"); err != nil {
		return nil, err
	}
	return s.startProgram(ctx, nil, "worker", "--join", db.url, "--offer", s.vms)
}

// allWait returns once so many VMs are in the step in which they wait.
func (d *workspace) allWait(ctx context.Context, p *program, vms int) error {
	r, err := d.openFleetDB(ctx)
	if err != nil {
		return err
	}
	defer r.Close()
	waiting, rev := map[fleetdb.Key]bool{}, int64(0)
	return p.waitUntil(ctx, waitingLong, "all wait", func() (bool, error) {
		c, err := r.Feed.Changes(ctx, rev)
		for _, vm := range c.VMs {
			waiting[vm.Key] = vm.State == fleetdb.Running && vm.Step == "wait"
		}
		rev = max(rev, c.Rev)
		n := 0
		for _, is := range waiting {
			if is {
				n++
			}
		}
		return n == vms, err
	})
}
