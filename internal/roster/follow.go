package roster

import (
	"context"
	"database/sql"
	"sync"
	"time"
)

// Changes is what is newer than a revision.
type Changes struct {
	Rev     int64    // up to which all is here: what to ask with next
	Dropped []string // plans, to be forgotten with their VMs before the rest is read: it may be there anew
	Plans   []Plan   // whose own row changed; without Text and Counts
	VMs     []VM     // without Spec
	Workers []Worker
	Limits  []Limit // also those that were taken back
}

// page is how many VMs are told at a time; more only if they changed in one transaction.
const page = 2000

// Changes returns what changed since a revision; since 0 is everything. Whoever asks until Rev
// does not move has missed nothing.
func (r *Roster) Changes(ctx context.Context, since int64) (Changes, error) {
	var c Changes
	err := r.see(ctx, "read changes", func(ctx context.Context, t *sql.Tx) (err error) {
		c, err = r.changes(ctx, t, since)
		return err
	})
	if err != nil {
		return Changes{}, err
	}
	return c, nil
}

func (r *Roster) changes(ctx context.Context, t *sql.Tx, since int64) (c Changes, err error) {
	if err := t.QueryRowContext(ctx, `SELECT rev FROM meta WHERE id = 1`).Scan(&c.Rev); err != nil || c.Rev <= since {
		return c, err
	}
	if c.VMs, err = changedVMs(ctx, t, since, r.page+1); err != nil {
		return c, err
	}
	if len(c.VMs) > r.page { // one more than fits, or all of one revision
		if c.VMs, err = whole(ctx, t, c.VMs); err != nil {
			return c, err
		}
		c.Rev = c.VMs[len(c.VMs)-1].Rev
	}
	return c, r.changedRest(ctx, t, since, &c)
}

func changedVMs(ctx context.Context, t *sql.Tx, since int64, most int) ([]VM, error) {
	return query(ctx, t, scanVM, `SELECT `+vmColumns+` FROM vms WHERE rev > $1 ORDER BY rev LIMIT $2`, since, most)
}

// whole cuts a page behind the last revision that is complete. A revision that does not fit on
// a page is one.
func whole(ctx context.Context, t *sql.Tx, vms []VM) ([]VM, error) {
	last := vms[len(vms)-1].Rev
	if vms[0].Rev == last {
		return query(ctx, t, scanVM, `SELECT `+vmColumns+` FROM vms WHERE rev = $1 ORDER BY plan, seq`, last)
	}
	for vms[len(vms)-1].Rev == last {
		vms = vms[:len(vms)-1]
	}
	return vms, nil
}

// changedRest tells all that is newer, also than c.Rev: to be told twice does no harm. VMs of a
// plan that was dropped and is there anew are not on the pages before.
func (r *Roster) changedRest(ctx context.Context, t *sql.Tx, since int64, c *Changes) (err error) {
	name := func(row scanner) (s string, err error) { return s, row.Scan(&s) }
	if c.Dropped, err = query(ctx, t, name, `SELECT name FROM dropped WHERE rev > $1`, since); err != nil {
		return err
	}
	if c.Plans, err = query(ctx, t, scanPlan, `SELECT `+planColumns+` FROM plans WHERE rev > $1 ORDER BY created, name`, since); err != nil {
		return err
	}
	if c.Workers, err = r.workersSince(ctx, t, since); err != nil {
		return err
	}
	c.Limits, err = query(ctx, t, scanLimit, `SELECT name, units, rev FROM limits WHERE rev > $1 ORDER BY name`, since)
	return err
}

// pollEvery is how soon changes by other processes are seen.
const pollEvery = 250 * time.Millisecond

// news is the newest revision that this process knows of.
type news struct {
	mu   sync.Mutex
	rev  int64
	told chan struct{} // closed, and replaced, by tell
	last time.Time     // of the last poll

	// poll is held by the one waiter that asks the database for all.
	poll chan struct{}
}

func (n *news) init() {
	n.told = make(chan struct{})
	n.poll = make(chan struct{}, 1)
}

// tell wakes all who wait, if rev is new.
func (n *news) tell(rev int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if rev <= n.rev {
		return
	}
	n.rev = rev
	close(n.told)
	n.told = make(chan struct{})
}

// known returns the newest revision, and what is closed when there is a newer one.
func (n *news) known() (rev int64, newer <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.rev, n.told
}

// due returns how long it is until the next poll.
func (n *news) due() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return time.Until(n.last.Add(pollEvery))
}

func (n *news) polled() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last = time.Now()
}

// Await returns when there is a revision newer than since. Those of this Roster are seen at
// once, others within pollEvery: one of all waiters asks the database.
func (r *Roster) Await(ctx context.Context, since int64) error {
	for {
		rev, newer := r.news.known()
		if rev > since {
			return nil
		}
		select {
		case <-ctx.Done():
			return errorf("wait for changes", ctx.Err())
		case <-newer:
		case r.news.poll <- struct{}{}:
			err := r.poll(ctx, newer)
			<-r.news.poll
			if err != nil {
				return err
			}
		}
	}
}

// poll waits until it is due, and asks the database for its revision.
func (r *Roster) poll(ctx context.Context, newer <-chan struct{}) error {
	wait := time.NewTimer(r.news.due())
	defer wait.Stop()
	select {
	case <-ctx.Done():
		return errorf("wait for changes", ctx.Err())
	case <-newer:
		return nil
	case <-wait.C:
	}
	r.news.polled()
	var rev int64
	limited, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	if err := r.read.QueryRowContext(limited, `SELECT rev FROM meta WHERE id = 1`).Scan(&rev); err != nil {
		return r.told(ctx, "wait for changes", err)
	}
	r.news.tell(rev)
	return nil
}
