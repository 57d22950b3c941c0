package fleetdb

import (
	"context"
	"database/sql"
	"time"
)

// Changes are the rows that changed after a revision.
type Changes struct {
	Rev int64 // revision up to which the changes are complete; the next call of Changes starts from it
	// plans to remove with their VMs before the other fields are applied: a plan may exist again under its
	// name
	Dropped []string
	Plans   []Plan   // changed plans, without Text and Counts
	VMs     []VM     // changed VMs, without Spec
	Workers []Worker // changed workers; an expired lease is no change
	Limits  []Limit  // changed limits, removed ones included
}

// Feed returns what changed in the database, and waits for changes.
type Feed struct {
	db   *database // connections, shared with the other parts
	page int       // limit of the VMs that Changes returns, unless more changed in one transaction
}

// pageSize is the default of Feed.page.
const pageSize = 2000

// Newest returns the newest revision. Changes since then returns what changed after this call.
func (s *Feed) Newest(ctx context.Context) (rev int64, err error) {
	err = s.db.readTx(ctx, "read the newest revision", func(ctx context.Context, t *sql.Tx) error {
		return t.QueryRowContext(ctx, `SELECT rev FROM meta WHERE id = 1`).Scan(&rev)
	})
	return rev, err
}

// Changes returns the changes since a revision; since 0 returns everything. A caller that repeats the
// call until Rev stays the same has all changes.
func (s *Feed) Changes(ctx context.Context, since int64) (Changes, error) {
	var c Changes
	err := s.db.readTx(ctx, "read changes", func(ctx context.Context, t *sql.Tx) (err error) {
		c, err = s.readChanges(ctx, t, since)
		return err
	})
	if err != nil {
		return Changes{}, err
	}
	return c, nil
}

// readChanges reads the changes since a revision in the transaction t.
func (s *Feed) readChanges(ctx context.Context, t *sql.Tx, since int64) (c Changes, err error) {
	if err := t.QueryRowContext(ctx, `SELECT rev FROM meta WHERE id = 1`).Scan(&c.Rev); err != nil || c.Rev <= since {
		return c, err
	}
	if c.VMs, err = changedVMs(ctx, t, since, s.page+1); err != nil {
		return c, err
	}
	if len(c.VMs) > s.page { // one more than fits, or all of one revision
		if c.VMs, err = cutPage(ctx, t, c.VMs); err != nil {
			return c, err
		}
		c.Rev = c.VMs[len(c.VMs)-1].Rev
	}
	return c, s.changedRest(ctx, t, since, &c)
}

// changedVMs returns at most that many VMs with a later revision, in the order of their revisions.
func changedVMs(ctx context.Context, t *sql.Tx, since int64, most int) ([]VM, error) {
	return queryAll(ctx, t, scanVM, `SELECT `+vmColumns+` FROM vms WHERE rev > $1 ORDER BY rev LIMIT $2`, since, most)
}

// cutPage removes the VMs of the last revision, which may be incomplete. If all VMs have the same
// revision, it returns all VMs of that revision.
func cutPage(ctx context.Context, t *sql.Tx, vms []VM) ([]VM, error) {
	last := vms[len(vms)-1].Rev
	if vms[0].Rev == last {
		return queryAll(ctx, t, scanVM, `SELECT `+vmColumns+` FROM vms WHERE rev = $1 ORDER BY plan, seq`, last)
	}
	for vms[len(vms)-1].Rev == last {
		vms = vms[:len(vms)-1]
	}
	return vms, nil
}

// changedRest reads all other changes since a revision, also those after c.Rev: reading a row twice is
// harmless. VMs of a plan that was dropped and exists again are not on earlier pages.
func (s *Feed) changedRest(ctx context.Context, t *sql.Tx, since int64, c *Changes) (err error) {
	name := func(row scanner) (s string, err error) { return s, row.Scan(&s) }
	if c.Dropped, err = queryAll(ctx, t, name, `SELECT name FROM dropped WHERE rev > $1`, since); err != nil {
		return err
	}
	if c.Plans, err = queryAll(ctx, t, scanPlan, `SELECT `+planColumns+` FROM plans WHERE rev > $1 ORDER BY created, name`, since); err != nil {
		return err
	}
	now, err := s.db.readClock(ctx, t)
	if err != nil {
		return err
	}
	if c.Workers, err = workersSince(ctx, t, now, since); err != nil {
		return err
	}
	c.Limits, err = queryAll(ctx, t, scanLimit, `SELECT name, units, rev FROM limits WHERE rev > $1 ORDER BY name`, since)
	return err
}

// WaitForChange returns when a revision newer than since exists. It sees the changes of this Database at once and
// other changes within pollEvery. One of all waiters queries the database for the others.
func (s *Feed) WaitForChange(ctx context.Context, since int64) error {
	for {
		rev, newer := s.db.revisions.newestKnown()
		if rev > since {
			return nil
		}
		select {
		case <-ctx.Done():
			return wrapError("wait for changes", ctx.Err())
		case <-newer:
		case s.db.revisions.poll <- struct{}{}:
			err := s.pollRevision(ctx, newer)
			<-s.db.revisions.poll
			if err != nil {
				return err
			}
		}
	}
}

// pollRevision waits for the next poll, and reads the database's revision. It returns early if newer is
// closed.
func (s *Feed) pollRevision(ctx context.Context, newer <-chan struct{}) error {
	wait := time.NewTimer(s.db.revisions.untilPoll())
	defer wait.Stop()
	select {
	case <-ctx.Done():
		return wrapError("wait for changes", ctx.Err())
	case <-newer:
		return nil
	case <-wait.C:
	}
	s.db.revisions.setPolled()
	var rev int64
	limited, cancel := context.WithTimeout(ctx, s.db.patience)
	defer cancel()
	if err := s.db.read.QueryRowContext(limited, `SELECT rev FROM meta WHERE id = 1`).Scan(&rev); err != nil {
		return s.db.toFault(ctx, "wait for changes", err)
	}
	s.db.revisions.announce(rev)
	return nil
}
