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

// A follower sees every revision. It would skip one if PostgreSQL committed revisions in another order than they were
// assigned.
func TestNoRevisionIsSkipped(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
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
				t.Errorf("follower %d has %d VMs, want %d", i, len(vms), writers*rounds)
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

// followUntil reads changes until writing has ended, and then all remaining ones.
func followUntil(ctx, writing context.Context, r *Database, vms map[Key]VM) error {
	for since := int64(0); ; {
		last := writing.Err() != nil
		c, err := r.Feed.Changes(ctx, since)
		if err != nil {
			return err
		}
		for _, v := range c.VMs {
			if old, there := vms[v.Key]; there && old.Rev >= v.Rev {
				return fmt.Errorf("%s has revision %d after %d", v.Key, v.Rev, old.Rev)
			}
			vms[v.Key] = v
		}
		if last && c.Rev == since {
			return nil
		}
		since = c.Rev
	}
}

// Schedulers, workers and their replaced processes write to the same VMs. The step of a VM is the epoch of its writer,
// and never returns to an older epoch.
func TestReplacedWorkersCannotWriteToVMs(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		handles := [2]*Database{p.open(), p.open()}
		f := newFleet(t, handles[0], 4)
		f.grantVM(1, "w1")
		var group errgroup.Group
		watching, done := context.WithCancel(t.Context())
		watch := make(chan error, 1)
		go func() { watch <- watchSteps(t.Context(), watching, handles[1]) }()
		var claims claimPool
		for w := range writers {
			m := &contender{Database: handles[w%2], rng: rand.New(rand.NewPCG(1, uint64(w))), sched: f.sched, claims: &claims}
			group.Go(func() error { return m.run(t.Context()) })
		}
		must(t, group.Wait())
		done()
		must(t, <-watch)
		if claims.won < writers || claims.fenced < writers {
			t.Errorf("%d writes succeeded and %d were fenced, want at least %d each", claims.won, claims.fenced, writers)
		}
	})
}

// A claimPool contains the claims of all contenders, so that each can use the claims of the others.
type claimPool struct {
	mu          sync.Mutex
	all         []Claim
	won, fenced int
}

func (b *claimPool) addClaims(vms []VM) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, v := range vms {
		b.all = append(b.all, Claim{v.Key, v.Worker, v.Epoch})
	}
}

// pickClaim returns one of the last claims, which may be old.
func (b *claimPool) pickClaim(rng *rand.Rand) (Claim, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.all) == 0 {
		return Claim{}, false
	}
	return b.all[len(b.all)-1-rng.IntN(min(len(b.all), 8))], true
}

// countResult counts a write. It returns err unless the write was fenced.
func (b *claimPool) countResult(err error) error {
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

// A contender makes random calls of schedulers and workers.
type contender struct {
	*Database
	rng    *rand.Rand
	sched  Lease
	claims *claimPool
}

func (m *contender) run(ctx context.Context) error {
	for range 4 * rounds {
		if err := m.callOnce(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (m *contender) callOnce(ctx context.Context) error {
	k, worker := key(1+m.rng.IntN(4)), fmt.Sprint("w", 1+m.rng.IntN(2))
	switch m.rng.IntN(8) {
	case 0:
		if _, err := m.Workers.Join(ctx, Worker{Name: worker}, aMinute); err != nil {
			return err
		}
		vms, err := m.VMs.List(ctx, Query{Worker: worker, States: []State{Assigned}})
		m.claims.addClaims(vms)
		return err
	case 1, 2, 3:
		vms, err := m.Scheduling.Grant(ctx, m.sched, []Granted{{Key: k, Worker: worker}})
		m.claims.addClaims(vms)
		return err
	}
	c, found := m.claims.pickClaim(m.rng)
	if !found {
		return nil
	}
	if m.rng.IntN(4) == 0 {
		return m.claims.countResult(m.Claims.Finish(ctx, c, End{State: Queued}))
	}
	return m.claims.countResult(m.Claims.SetStep(ctx, c, strconv.FormatInt(c.Epoch, 10), ""))
}

// watchSteps checks in every change that the step and the epoch of a VM do not decrease.
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
			now.step, _ = strconv.ParseInt(v.Step, 10, 64) // 0 if no step is set
			if was := last[v.Key]; now.epoch < was.epoch || now.step < was.step || now.step > now.epoch {
				return fmt.Errorf("%s: epoch %d with step %d after epoch %d with step %d", v.Key, now.epoch, now.step, was.epoch, was.step)
			}
			last[v.Key] = now
		}
		if over && c.Rev == since {
			return nil
		}
		since = c.Rev
	}
}

// If several processes acquire a lease at the same time, one gets it.
func TestLeaseIsAcquiredByOneProcess(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		handles := [2]*Database{p.open(), p.open()}
		clock := newClock()
		handles[0].db.now, handles[1].db.now = clock.Now, clock.Now
		for round := range 5 {
			clock.advance(2 * aMinute)
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
				t.Fatalf("%d of %d processes have the lease, want 1", len(got), writers)
			}
			if l := <-got; l.Epoch != int64(round+1) {
				t.Errorf("epoch %d in round %d, want %d", l.Epoch, round, round+1)
			}
		}
	})
}
