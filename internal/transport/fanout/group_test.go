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

// A Group with one Member behaves like its inner transport.
func TestConformance(t *testing.T) {
	transporttest.Run(t, transporttest.Harness{New: func(t *testing.T, disks ...disk.Source) transporttest.Environment {
		inner := &perDiskTransport{}
		rig := transporttest.Environment{Transport: New(inner, 1).Member(0)}
		for i, d := range disks {
			inner.disks = append(inner.disks, &pullTransport{src: d})
			rig.Disks = append(rig.Disks, newDisk(int32(i)))
		}
		return rig
	}})
}

// perDiskTransport is a transport with a pullTransport for each disk, by key.
type perDiskTransport struct{ disks []*pullTransport }

func (*perDiskTransport) Name() string { return "pull" }
func (*perDiskTransport) Close() error { return nil }

func (p *perDiskTransport) Probe(ctx context.Context, d transport.Disk) (transport.Offer, error) {
	return p.disks[0].Probe(ctx, d)
}

func (p *perDiskTransport) Transfer(ctx context.Context, job transport.Job) (blockcopy.Result, error) {
	return p.disks[job.Disk.Disk.Key].Transfer(ctx, job)
}

func TestSourceIsReadOnce(t *testing.T) {
	want := disk.NewPattern(testSize)
	inner := &pullTransport{src: want}
	images := newTestImages(t, 3, want)
	for i, err := range transferAll(t, New(inner, 3), images) {
		if err != nil {
			t.Errorf("member %d: %v", i, err)
		}
		images[i].requireComplete()
	}
	if inner.transfers.Load() != 1 || inner.read.Load() != testSize {
		t.Errorf("%d transfers read %d bytes, want 1 and %d", inner.transfers.Load(), inner.read.Load(), int64(testSize))
	}
}

// A member whose target fails does not disturb the others, and a later transfer of this member alone completes it.
func TestFailedMemberDoesNotDisturbOthers(t *testing.T) {
	full := fault.New(fault.Full, "no space left")
	for _, op := range []string{"write", "zero", "sync"} {
		t.Run(op, func(t *testing.T) {
			want := disk.NewSparsePattern(testSize, 0.6, 4)
			inner := &pullTransport{src: want}
			images := newTestImages(t, 3, want)
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
			errs := transferAll(t, g, images)
			if errs[0] != nil || errs[2] != nil || !errors.Is(errs[1], full) {
				t.Fatalf("got errors %v, want %v for member 1 only", errs, full)
			}
			images[0].requireComplete()
			images[2].requireComplete()
			images[1].before = nil
			if err := images[1].runTransfer(t.Context(), g.Member(1)); err != nil {
				t.Fatal(err)
			}
			images[1].requireComplete()
		})
	}
}

// Pace is called once for each byte that is read, with the budget of one run. A run that leaves while it waits for
// its budget does not delay the others.
func TestPaceIsCalledOncePerByte(t *testing.T) {
	want := disk.NewPattern(testSize)
	images := newTestImages(t, 2, want)
	var paced atomic.Int64
	first := atomic.Int64{} // number of the first run whose Pace was called, from 1
	var errs [2]error
	var wg sync.WaitGroup
	g := New(&pullTransport{src: want}, 2)
	for i := range images {
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		images[i].pace = func(ctx context.Context, bytes int64) error {
			if first.CompareAndSwap(0, int64(i+1)) || first.Load() == int64(i+1) {
				leave()
				<-ctx.Done()
				return ctx.Err()
			}
			paced.Add(bytes)
			return nil
		}
		wg.Go(func() { errs[i] = images[i].runTransfer(ctx, g.Member(i)) })
	}
	requireReturn(t, wg.Wait)
	gone := first.Load() - 1
	if gone < 0 || !errors.Is(errs[gone], context.Canceled) || errs[1-gone] != nil {
		t.Fatalf("run %d paced first and left; got errors %v, want only its cancellation", gone, errs)
	}
	images[1-gone].requireComplete()
	if paced.Load() != testSize {
		t.Errorf("Pace was called for %d bytes, want %d", paced.Load(), int64(testSize))
	}
}

// Members with different existing chunks all get the whole disk. No chunk is written while its manifest lists it.
func TestMembersWithDifferentChunksComplete(t *testing.T) {
	want := disk.NewSparsePattern(testSize, 0.7, 5)
	for name, inner := range map[string]transport.Transport{"pull": &pullTransport{src: want}, "push": pushTransport{want, 6}} {
		t.Run(name, func(t *testing.T) {
			images := newTestImages(t, 3, want)
			images[0].addChunks(0, 1, 2, 3, 4, 5, 6, 7, 8, 20)
			images[1].addChunks(2, 3, 8, 9, 24)
			images[2].addChunks(3, 8, 20)
			for i, err := range transferAll(t, New(inner, 3), images) {
				if err != nil {
					t.Fatalf("member %d: %v", i, err)
				}
				images[i].requireComplete()
			}
		})
	}
}

// One of three targets of a pushed disk fails at a random moment. The other two complete.
func TestPushedDisksSurviveFailedMember(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	want := disk.NewSparsePattern(testSize, 0.7, 7)
	for seed := range map[bool]uint64{false: 5, true: 20}[lane.Slow] {
		images := newTestImages(t, 3, want)
		rnd := rand.New(rand.NewPCG(seed, 2))
		bad, after := rnd.IntN(3), rnd.Int64N(40)
		var calls atomic.Int64
		images[bad].before = func(string) error {
			if calls.Add(1) > after {
				return fault.New(fault.Full, "no space left")
			}
			return nil
		}
		for i, err := range transferAll(t, New(pushTransport{want, seed}, 3), images) {
			if (i == bad) != fault.Is(err, fault.Full) || i != bad && err != nil {
				t.Fatalf("seed %d: error of member %d: %v, want an error only of member %d", seed, i, err, bad)
			}
			if i != bad {
				images[i].requireComplete()
			}
		}
	}
}

// A failure of the source ends the transfers of all members, and their next transfers share one read again.
func TestSourceFailureReachesAll(t *testing.T) {
	want := disk.NewPattern(testSize)
	var reads atomic.Int64
	inner := &pullTransport{src: want, before: func() error {
		if reads.Add(1) == 3 {
			return fault.New(fault.Transient, "connection reset")
		}
		return nil
	}}
	images, g := newTestImages(t, 3, want), New(inner, 3)
	var wg sync.WaitGroup
	for i, im := range images {
		wg.Go(func() {
			if err := im.runTransfer(t.Context(), g.Member(i)); !fault.Is(err, fault.Transient) {
				t.Errorf("member %d: %v, want Transient", i, err)
			}
			if err := im.runTransfer(t.Context(), g.Member(i)); err != nil {
				t.Errorf("member %d again: %v", i, err)
			}
		})
	}
	requireReturn(t, wg.Wait)
	for _, im := range images {
		im.requireComplete()
	}
	if n := inner.transfers.Load(); n != 2 {
		t.Errorf("%d transfers, want 2", n)
	}
}

// A canceled member leaves the transfer, while it waits or while data is copied. The transfer ends when all have left.
func TestCanceledMember(t *testing.T) {
	want := disk.NewPattern(testSize)
	for _, canceled := range []int{1, 3} {
		images := newTestImages(t, 3, want)
		var cancels [3]context.CancelFunc
		var once sync.Once
		inner := &pullTransport{src: want}
		firstReturned := make(chan struct{}) // closed when the transfer of the first member has returned
		if canceled == 1 {
			images[1].before = func(string) error { <-firstReturned; return nil }
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
				err := im.runTransfer(ctxs[i], g.Member(i))
				if (i < canceled) != errors.Is(err, context.Canceled) {
					t.Errorf("error of member %d: %v, want Canceled only for the first %d", i, err, canceled)
				}
				if i == 0 {
					close(firstReturned)
				}
			})
		}
		requireReturn(t, wg.Wait)
		for _, im := range images[canceled:] {
			im.requireComplete()
		}
	}
}

// If all runs are canceled, Transfer lists the written chunks in each manifest before it returns.
func TestCanceledTransferKeepsWrittenChunks(t *testing.T) {
	want := disk.NewPattern(testSize)
	for _, members := range []int{1, 3} {
		ctx, cancel := context.WithCancel(t.Context())
		images, g := newTestImages(t, members, want), New(&pullTransport{src: want}, members)
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
				if err := im.runTransfer(ctx, g.Member(i)); !errors.Is(err, context.Canceled) {
					t.Errorf("member %d: %v", i, err)
				}
			})
		}
		requireReturn(t, wg.Wait)
		for i, im := range images {
			if im.log.Missing() == im.log.Chunks() {
				t.Errorf("the manifest of member %d of %d lists no chunk", i, members)
			}
		}
	}
}

func TestTransferDoesNotWaitForAbsentMembers(t *testing.T) {
	want := disk.NewPattern(mib)
	inner := &pullTransport{src: want}
	g := New(inner, 4)
	g.Member(1).Settle(2000)
	if err := g.Member(2).Close(); err != nil {
		t.Fatal(err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := newTestImage(t, want).runTransfer(canceled, g.Member(0)); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled while it waited: error %v, want Canceled", err)
	}
	if n := inner.transfers.Load(); n != 0 {
		t.Errorf("%d transfers began without member 3", n)
	}
	a, b := newTestImage(t, want), newTestImage(t, want)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := a.runTransfer(t.Context(), g.Member(0)); err != nil {
			t.Error(err)
		}
	})
	wg.Go(func() {
		if err := b.runTransfer(t.Context(), g.Member(3)); err != nil {
			t.Error(err)
		}
	})
	requireReturn(t, wg.Wait)
	a.requireComplete()
	b.requireComplete()
}

// Runs of many disks, two disks at a time, do not deadlock if random disks are copied already, random copies fail
// and random runs leave.
func TestRunsWithFewSlotsDoNotDeadlock(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	const disks, slots = 7, 2
	want := disk.NewPattern(64 << 10)
	seeds := map[bool]uint64{false: 20, true: 60}[lane.Slow]
	for seed := range seeds {
		rnd := rand.New(rand.NewPCG(seed, 3))
		members := 2 + rnd.IntN(3)
		inner := &perDiskTransport{}
		for range disks {
			inner.disks = append(inner.disks, &pullTransport{src: want})
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
				runMember(t, g.Member(m), disks, slots, want, fails)
			})
		}
		requireReturn(t, runs.Wait)
	}
}

// runMember copies all disks as a migration does. Bit k of bits is set if disk k is copied already, bit 32+k if
// the first attempt fails at the target.
func runMember(t *testing.T, m *Member, disks, slots int, want disk.Source, bits uint64) {
	var eg errgroup.Group
	eg.SetLimit(slots)
	for k := range disks {
		eg.Go(func() error {
			defer m.Settle(int32(k))
			if bits>>k&1 == 1 {
				return nil
			}
			im := newTestImage(t, want)
			var failed atomic.Bool
			im.before = func(op string) error {
				if bits>>(32+k)&1 == 1 && op == "write" && failed.CompareAndSwap(false, true) {
					return fault.New(fault.Transient, "try again")
				}
				return nil
			}
			for range 2 {
				_, err := m.Transfer(t.Context(), transport.Job{Disk: newDisk(int32(k)), Target: im, Manifest: im.log})
				if err == nil {
					im.requireComplete()
					return nil
				}
			}
			t.Errorf("disk %d failed twice", k)
			return nil
		})
	}
	_ = eg.Wait() // errors are reported above
}
