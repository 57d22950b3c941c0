package fanout

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/transport/transporttest"
	"github.com/decamp/decamp/test/lane"
)

// TestConformance: one member alone is as good as the transport it stands for.
func TestConformance(t *testing.T) {
	transporttest.Run(t, transporttest.Harness{New: func(t *testing.T, disks ...disk.Source) transporttest.Environment {
		inner := &perDisk{}
		rig := transporttest.Environment{Transport: New(inner, 1).Member(0)}
		for i, d := range disks {
			inner.disks = append(inner.disks, &pull{src: d})
			rig.Disks = append(rig.Disks, diskOf(int32(i)))
		}
		return rig
	}})
}

// perDisk has a pull for each disk, by key.
type perDisk struct{ disks []*pull }

func (*perDisk) Name() string { return "pull" }
func (*perDisk) Close() error { return nil }

func (p *perDisk) Probe(ctx context.Context, d transport.Disk) (transport.Offer, error) {
	return p.disks[0].Probe(ctx, d)
}

func (p *perDisk) Transfer(ctx context.Context, job transport.Job) (blockcopy.Result, error) {
	return p.disks[job.Disk.Disk.Key].Transfer(ctx, job)
}

func TestSourceIsReadOnce(t *testing.T) {
	want := disk.NewPattern(testSize)
	inner := &pull{src: want}
	images := newImages(t, 3, want)
	for i, err := range moved(t, New(inner, 3), images) {
		if err != nil {
			t.Errorf("member %d: %v", i, err)
		}
		images[i].complete()
	}
	if inner.transfers.Load() != 1 || inner.read.Load() != testSize {
		t.Errorf("%d transfers read %d bytes, want 1 and %d", inner.transfers.Load(), inner.read.Load(), int64(testSize))
	}
}

// TestOneThatFailsIsLeftOut: the others do not notice, and it is completed alone.
func TestOneThatFailsIsLeftOut(t *testing.T) {
	full := fault.New(fault.Full, "no space left")
	for _, op := range []string{"write", "zero", "sync"} {
		t.Run(op, func(t *testing.T) {
			want := disk.NewSparsePattern(testSize, 0.6, 4)
			inner := &pull{src: want}
			images := newImages(t, 3, want)
			var calls atomic.Int64
			images[1].before = func(now string) error {
				if now == op && calls.Add(1) > 1 {
					return full
				}
				return nil
			}
			if op == "sync" {
				images[1].before = func(now string) error { return map[bool]error{true: full}[now == op] }
			}
			g := New(inner, 3)
			errs := moved(t, g, images)
			if errs[0] != nil || errs[2] != nil || !errors.Is(errs[1], full) {
				t.Fatalf("got %v", errs)
			}
			images[0].complete()
			images[2].complete()
			images[1].before = nil
			if err := images[1].transfer(t.Context(), g.Member(1)); err != nil {
				t.Fatal(err)
			}
			images[1].complete()
		})
	}
}

// TestBudgetIsAskedOnce: what is read once is asked for once, of the budget of a run that is
// there. One that leaves while it waits for its budget does not hold up the others.
func TestBudgetIsAskedOnce(t *testing.T) {
	want := disk.NewPattern(testSize)
	images := newImages(t, 2, want)
	var asked atomic.Int64
	first := atomic.Int64{} // whose run was asked, from 1: the one that came first
	var errs [2]error
	var wg sync.WaitGroup
	g := New(&pull{src: want}, 2)
	for i := range images {
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		images[i].pace = func(ctx context.Context, bytes int64) error {
			if first.CompareAndSwap(0, int64(i+1)) || first.Load() == int64(i+1) {
				leave()
				<-ctx.Done()
				return ctx.Err()
			}
			asked.Add(bytes)
			return nil
		}
		wg.Go(func() { errs[i] = images[i].transfer(ctx, g.Member(i)) })
	}
	within(t, wg.Wait)
	gone := first.Load() - 1
	if gone < 0 || !errors.Is(errs[gone], context.Canceled) || errs[1-gone] != nil {
		t.Fatalf("run %d was asked first; got %v", gone, errs)
	}
	images[1-gone].complete()
	if asked.Load() != testSize {
		t.Errorf("asked for %d bytes of %d", asked.Load(), int64(testSize))
	}
}

// TestUnequalBeginnings: what some have and others lack comes to all, and is never safe
// while it is written.
func TestUnequalBeginnings(t *testing.T) {
	want := disk.NewSparsePattern(testSize, 0.7, 5)
	for name, inner := range map[string]transport.Transport{"pull": &pull{src: want}, "push": push{want, 6}} {
		t.Run(name, func(t *testing.T) {
			images := newImages(t, 3, want)
			images[0].have(0, 1, 2, 3, 4, 5, 6, 7, 8, 20)
			images[1].have(2, 3, 8, 9, 24)
			images[2].have(3, 8, 20)
			for i, err := range moved(t, New(inner, 3), images) {
				if err != nil {
					t.Fatalf("member %d: %v", i, err)
				}
				images[i].complete()
			}
		})
	}
}

// TestPushedDisksSurviveOneThatFails fails one of three at a moment of its own each time.
func TestPushedDisksSurviveOneThatFails(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	want := disk.NewSparsePattern(testSize, 0.7, 7)
	for seed := range map[bool]uint64{false: 5, true: 20}[lane.Slow] {
		images := newImages(t, 3, want)
		rnd := rand.New(rand.NewPCG(seed, 2))
		bad, after := rnd.IntN(3), rnd.Int64N(40)
		var calls atomic.Int64
		images[bad].before = func(string) error {
			if calls.Add(1) > after {
				return fault.New(fault.Full, "no space left")
			}
			return nil
		}
		for i, err := range moved(t, New(push{want, seed}, 3), images) {
			if (i == bad) != fault.Is(err, fault.Full) || i != bad && err != nil {
				t.Fatalf("seed %d: member %d, %d is bad: %v", seed, i, bad, err)
			}
			if i != bad {
				images[i].complete()
			}
		}
	}
}

// TestSourceFailureReachesAll: each is told the reason, and they meet again.
func TestSourceFailureReachesAll(t *testing.T) {
	want := disk.NewPattern(testSize)
	var reads atomic.Int64
	inner := &pull{src: want, before: func() error {
		if reads.Add(1) == 3 {
			return fault.New(fault.Transient, "connection reset")
		}
		return nil
	}}
	images, g := newImages(t, 3, want), New(inner, 3)
	var wg sync.WaitGroup
	for i, im := range images {
		wg.Go(func() {
			if err := im.transfer(t.Context(), g.Member(i)); !fault.Is(err, fault.Transient) {
				t.Errorf("member %d: %v, want Transient", i, err)
			}
			if err := im.transfer(t.Context(), g.Member(i)); err != nil {
				t.Errorf("member %d again: %v", i, err)
			}
		})
	}
	within(t, wg.Wait)
	for _, im := range images {
		im.complete()
	}
	if n := inner.transfers.Load(); n != 2 {
		t.Errorf("%d transfers, want 2", n)
	}
}

// TestCanceledMember leaves, while it waits or while bytes flow; when all have left, the
// transfer ends.
func TestCanceledMember(t *testing.T) {
	want := disk.NewPattern(testSize)
	for _, canceled := range []int{1, 3} {
		images := newImages(t, 3, want)
		var cancels [3]context.CancelFunc
		var once sync.Once
		inner := &pull{src: want}
		left := make(chan struct{}) // the first member is back
		if canceled == 1 {
			images[1].before = func(string) error { <-left; return nil }
		}
		images[0].before = func(string) error {
			once.Do(func() {
				for _, cancel := range cancels[:canceled] {
					cancel()
				}
			})
			return nil
		}
		g := New(inner, 3)
		var ctxs [3]context.Context
		for i := range images {
			ctxs[i], cancels[i] = context.WithCancel(t.Context())
		}
		var wg sync.WaitGroup
		for i, im := range images {
			wg.Go(func() {
				defer g.Member(i).Close()
				err := im.transfer(ctxs[i], g.Member(i))
				if (i < canceled) != errors.Is(err, context.Canceled) {
					t.Errorf("member %d of %d canceled: %v", i, canceled, err)
				}
				if i == 0 {
					close(left)
				}
			})
		}
		within(t, wg.Wait)
		for _, im := range images[canceled:] {
			im.complete()
		}
	}
}

// TestCanceledTransferKeepsWhatItHas: when all runs are stopped, what was written is made
// safe in each before Transfer returns.
func TestCanceledTransferKeepsWhatItHas(t *testing.T) {
	want := disk.NewPattern(testSize)
	for _, members := range []int{1, 3} {
		ctx, cancel := context.WithCancel(t.Context())
		images, g := newImages(t, members, want), New(&pull{src: want}, members)
		var writes atomic.Int64
		images[0].before = func(op string) error {
			if op == "write" && writes.Add(1) == 5 {
				cancel()
			}
			return nil
		}
		var wg sync.WaitGroup
		for i, im := range images {
			wg.Go(func() {
				if err := im.transfer(ctx, g.Member(i)); !errors.Is(err, context.Canceled) {
					t.Errorf("member %d: %v", i, err)
				}
			})
		}
		within(t, wg.Wait)
		for i, im := range images {
			if im.log.Missing() == im.log.Chunks() {
				t.Errorf("member %d of %d has nothing to go on with", i, members)
			}
		}
	}
}

func TestNobodyWaitsForThoseWhoDoNotCome(t *testing.T) {
	want := disk.NewPattern(mib)
	inner := &pull{src: want}
	g := New(inner, 4)
	g.Member(1).Settle(2000)
	if err := g.Member(2).Close(); err != nil {
		t.Fatal(err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := newImage(t, want).transfer(canceled, g.Member(0)); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled while it waited: %v", err)
	}
	if n := inner.transfers.Load(); n != 0 {
		t.Errorf("%d transfers began without member 3", n)
	}
	a, b := newImage(t, want), newImage(t, want)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := a.transfer(t.Context(), g.Member(0)); err != nil {
			t.Error(err)
		}
	})
	wg.Go(func() {
		if err := b.transfer(t.Context(), g.Member(3)); err != nil {
			t.Error(err)
		}
	})
	within(t, wg.Wait)
	a.complete()
	b.complete()
}

// TestRunsWithFewSlotsMeet: runs of many disks, each with two at a time, that lose some of
// their disks and their courage at random, never wait for each other for ever.
func TestRunsWithFewSlotsMeet(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	const disks, slots = 7, 2
	want := disk.NewPattern(64 << 10)
	seeds := map[bool]uint64{false: 20, true: 60}[lane.Slow]
	for seed := range seeds {
		rnd := rand.New(rand.NewPCG(seed, 3))
		members := 2 + rnd.IntN(3)
		inner := &perDisk{}
		for range disks {
			inner.disks = append(inner.disks, &pull{src: want})
		}
		g := New(inner, members)
		var runs sync.WaitGroup
		for m := range members {
			absent, fails := rnd.IntN(10) == 0, rnd.Uint64()
			runs.Go(func() {
				defer g.Member(m).Close()
				if absent {
					return
				}
				run(t, g.Member(m), disks, slots, want, fails)
			})
		}
		within(t, runs.Wait)
	}
}

// run moves all disks as a migration does. Bit k of has is set if disk k is there already,
// bit 32+k if its first attempt fails at the destination.
func run(t *testing.T, m *Member, disks, slots int, want disk.Source, has uint64) {
	var eg errgroup.Group
	eg.SetLimit(slots)
	for k := range disks {
		eg.Go(func() error {
			defer m.Settle(int32(k))
			if has>>k&1 == 1 {
				return nil
			}
			im := newImage(t, want)
			var failed atomic.Bool
			im.before = func(op string) error {
				if has>>(32+k)&1 == 1 && op == "write" && failed.CompareAndSwap(false, true) {
					return fault.New(fault.Transient, "try again")
				}
				return nil
			}
			for range 2 {
				_, err := m.Transfer(t.Context(), transport.Job{Disk: diskOf(int32(k)), Target: im, Manifest: im.log})
				if err == nil {
					im.complete()
					return nil
				}
			}
			t.Errorf("disk %d failed twice", k)
			return nil
		})
	}
	_ = eg.Wait() // errors are told
}
