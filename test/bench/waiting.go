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
	waitingVMs   = 1000             // number of VMs
	waitingHosts = 8                // number of hosts
	waitingSpan  = 30 * time.Second // duration of the measurement
	waitingLong  = 15 * time.Minute // limit until all VMs wait; it takes two minutes on an idle machine
)

// waitingFigures measures the cost of a thousand warm runs that only wait: with plan
// run, and with a worker of a real PostgreSQL.
func waitingFigures(ctx context.Context, b *bench) error {
	err := waitingFigure(ctx, b, "SQLite", 10, nil)
	db, dbErr := startDatabase()
	if dbErr != nil {
		return errors.Join(err, dbErr)
	}
	defer db.stop()
	return errors.Join(err, waitingFigure(ctx, b, "a worker of PostgreSQL", 5, db))
}

// waitingFigure measures with one database; nil means SQLite. most is the limit in
// percent of a core.
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

// beginWaiting starts a warm plan.
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

// allWait waits until this number of VMs is in the step "wait".
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
			// The feed reports changes only, so the state of each VM is kept.
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
