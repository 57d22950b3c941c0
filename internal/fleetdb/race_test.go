package fleetdb

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/test/lane"
)

// writers is the number of concurrent writers of these tests, rounds how often each of them writes.
const writers = 8

var rounds = map[bool]int{false: 6, true: 15}[lane.Slow]

// Revisions that are committed in another order than they were taken in would be skipped by
// whoever reads in between: PostgreSQL does that to those who let it.
func TestNoRevisionIsSkipped(t *testing.T) {
	onBoth(t, func(t *testing.T, p *place) {
		handles := [2]*Database{p.open(), p.open()}
		ok(handles[0].Plans.Add(t.Context(), Plan{Name: "p"}))(t)
		followed := [2]map[Key]VM{{}, {}}
		writing, done := context.WithCancel(t.Context())
		var followers errgroup.Group
		for i, r := range handles {
			followers.Go(func() error { return followUntil(t.Context(), writing, r, followed[i]) })
		}
		var group errgroup.Group
		for w := range writers {
			group.Go(func() error { return addOneByOne(t.Context(), handles[w%2], w) })
		}
		must(t, group.Wait())
		done()
		must(t, followers.Wait())
		for i, vms := range followed {
			if len(vms) != writers*rounds {
				t.Errorf("follower %d has %d VMs of %d", i, len(vms), writers*rounds)
			}
		}
	})
}

func addOneByOne(ctx context.Context, r *Database, writer int) error {
	for i := range rounds {
		if err := r.VMs.Add(ctx, []VM{{Key: Key{"p", fmt.Sprintf("vm-%d-%d", writer, i)}}}); err != nil {
			return err
		}
	}
	return nil
}

// followUntil reads what is new, and once more after writing has ended.
func followUntil(ctx, writing context.Context, r *Database, vms map[Key]VM) error {
	for since := int64(0); ; {
		last := writing.Err() != nil
		c, err := r.Feed.Changes(ctx, since)
		if err != nil {
			return err
		}
		for _, v := range c.VMs {
			if old, there := vms[v.Key]; there && old.Rev >= v.Rev {
				return fmt.Errorf("%s is of revision %d after %d", v.Key, v.Rev, old.Rev)
			}
			vms[v.Key] = v
		}
		if last && c.Rev == since {
			return nil
		}
		since = c.Rev
	}
}

// Schedulers, workers and those that they replace do what they can to the same few VMs. The
// step of each says who wrote it: it never goes back to an older epoch.
func TestAVMHasOneDriver(t *testing.T) {
	onBoth(t, func(t *testing.T, p *place) {
		handles := [2]*Database{p.open(), p.open()}
		f := newFleet(t, handles[0], 4)
		f.grant(1, "w1")
		var group errgroup.Group
		watching, done := context.WithCancel(t.Context())
		watch := make(chan error, 1)
		go func() { watch <- watchSteps(t.Context(), watching, handles[1]) }()
		var claims claimBox
		for w := range writers {
			m := &meddler{Database: handles[w%2], rng: rand.New(rand.NewPCG(1, uint64(w))), sched: f.sched, claims: &claims}
			group.Go(func() error { return m.meddle(t.Context()) })
		}
		must(t, group.Wait())
		done()
		must(t, <-watch)
		if claims.won < writers || claims.fenced < writers {
			t.Errorf("%d writes won and %d were fenced: that tests little", claims.won, claims.fenced)
		}
	})
}

// claimBox is where claims are found by those who got them, and by others.
type claimBox struct {
	mu          sync.Mutex
	all         []Claim
	won, fenced int
}

func (b *claimBox) put(vms []VM) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, v := range vms {
		b.all = append(b.all, Claim{v.Key, v.Worker, v.Epoch})
	}
}

// pick returns a claim of the last few: some are old.
func (b *claimBox) pick(rng *rand.Rand) (Claim, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.all) == 0 {
		return Claim{}, false
	}
	return b.all[len(b.all)-1-rng.IntN(min(len(b.all), 8))], true
}

func (b *claimBox) count(err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case err == nil:
		b.won++
	case errors.Is(err, ErrFenced):
		b.fenced++
	default:
		return err
	}
	return nil
}

type meddler struct {
	*Database
	rng    *rand.Rand
	sched  Lease
	claims *claimBox
}

func (m *meddler) meddle(ctx context.Context) error {
	for range 4 * rounds {
		if err := m.once(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (m *meddler) once(ctx context.Context) error {
	k, worker := key(1+m.rng.IntN(4)), fmt.Sprint("w", 1+m.rng.IntN(2))
	switch m.rng.IntN(8) {
	case 0:
		if _, err := m.Workers.Join(ctx, Worker{Name: worker}, aMinute); err != nil {
			return err
		}
		vms, err := m.VMs.List(ctx, Query{Worker: worker, States: []State{Assigned}})
		m.claims.put(vms)
		return err
	case 1, 2, 3:
		vms, err := m.Scheduling.Grant(ctx, m.sched, []Granted{{Key: k, Worker: worker}})
		m.claims.put(vms)
		return err
	}
	c, some := m.claims.pick(m.rng)
	if !some {
		return nil
	}
	if m.rng.IntN(4) == 0 {
		return m.claims.count(m.Claims.Finish(ctx, c, End{State: Queued}))
	}
	return m.claims.count(m.Claims.SetStep(ctx, c, strconv.FormatInt(c.Epoch, 10), ""))
}

// watchSteps follows every change and holds each VM's step and epoch against the last ones.
func watchSteps(ctx, watching context.Context, r *Database) error {
	type seen struct{ epoch, step int64 }
	last := map[Key]seen{}
	for since := int64(0); ; {
		over := watching.Err() != nil
		c, err := r.Feed.Changes(ctx, since)
		if err != nil {
			return err
		}
		for _, v := range c.VMs {
			now := seen{epoch: v.Epoch}
			now.step, _ = strconv.ParseInt(v.Step, 10, 64) // none yet is 0
			if was := last[v.Key]; now.epoch < was.epoch || now.step < was.step || now.step > now.epoch {
				return fmt.Errorf("%s: epoch %d with step of %d after %d with step of %d", v.Key, now.epoch, now.step, was.epoch, was.step)
			}
			last[v.Key] = now
		}
		if over && c.Rev == since {
			return nil
		}
		since = c.Rev
	}
}

// Of those who want a lease at once, one gets it.
func TestALeaseIsTakenOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, p *place) {
		handles := [2]*Database{p.open(), p.open()}
		clock := newClock()
		handles[0].db.now, handles[1].db.now = clock.Now, clock.Now
		for round := range 5 {
			clock.pass(2 * aMinute)
			var group errgroup.Group
			got := make(chan Lease, writers)
			for w := range writers {
				group.Go(func() error {
					if l, err := handles[w%2].Leases.Acquire(t.Context(), "scheduler", fmt.Sprint("s", w), aMinute); err == nil {
						got <- l
					}
					return nil
				})
			}
			must(t, group.Wait())
			if len(got) != 1 {
				t.Fatalf("%d of %d have it", len(got), writers)
			}
			if l := <-got; l.Epoch != int64(round+1) {
				t.Errorf("epoch %d in round %d", l.Epoch, round)
			}
		}
	})
}
