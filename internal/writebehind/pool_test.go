package writebehind

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/decamp/decamp/internal/disk"
)

func mustGet(t *testing.T, p *Pool, n int) *Buffer {
	t.Helper()
	b, err := p.Get(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// getAll gets buffers of n bytes until the pool has no more.
func getAll(t *testing.T, p *Pool, n int) []*Buffer {
	t.Helper()
	var out []*Buffer
	for {
		b, ticket := p.lendOrQueue(classOf(n), DiskOffset{})
		if ticket != nil {
			p.abandonTicket(p.queueFor(ticket.class), ticket)
			return out
		}
		b.n = n
		out = append(out, b)
	}
}

func releaseAll(buffers []*Buffer) {
	for _, b := range buffers {
		b.Release()
	}
}

func TestBuffersAreAlignedAndDisjoint(t *testing.T) {
	p := NewPool(MinBudget)
	rnd := rand.New(rand.NewPCG(1, 1))
	var out []*Buffer
	for i := range 30 {
		b := mustGet(t, p, 1+rnd.IntN(60<<10))
		if !disk.IsAligned(b.Bytes()) {
			t.Fatalf("a buffer of %d bytes is not aligned", len(b.Bytes()))
		}
		copy(b.Bytes(), repeatByte(len(b.Bytes()), byte(i)))
		out = append(out, b)
	}
	for i, b := range out {
		wantBytes(t, "buffer", b.Bytes(), repeatByte(len(b.Bytes()), byte(i)), 0)
	}
	releaseAll(out)
	if p.Lent() != 0 {
		t.Errorf("%d bytes are still lent", p.Lent())
	}
}

// The total memory of a pool stays within its budget, with any mixture of buffer sizes.
func TestPoolNeverExceedsBudget(t *testing.T) {
	for _, budget := range []int64{0, MinBudget, 64 << 20, 100<<20 + 1, 1 << 30} {
		p := NewPool(budget)
		windows := int64(p.unmade) * p.windowLen
		if total := windows + int64(p.blocks.uncut)*blockLen; total > p.Budget() || p.Budget() > max(budget, MinBudget) {
			t.Errorf("budget %d: %d bytes in windows, %d in total, Budget %d", budget, windows, total, p.Budget())
		}
		if p.unmade < 2 || p.windowLen%chunkLen != 0 {
			t.Errorf("budget %d: %d windows of %d bytes", budget, p.unmade, p.windowLen)
		}
	}
	p := NewPool(MinBudget)
	blocks := p.blocks.uncut
	for _, n := range []int{MaxBuffer, 64 << 10, 5000, 1, 300 << 10, MaxBuffer} {
		all := getAll(t, p, n)
		if room := (blocks - smallReserve) * (blockLen / int(slotLen(classOf(n)))); len(all) < room {
			t.Errorf("%d buffers of %d bytes, want at least %d", len(all), n, room)
		}
		if p.Lent() > p.Budget() {
			t.Errorf("%d bytes are lent of %d", p.Lent(), p.Budget())
		}
		releaseAll(all)
	}
	if p.blocks.freeBlocks() != blocks || p.free != int64(blocks)*blockLen {
		t.Errorf("%d blocks and %d bytes are free at the end, want %d blocks", p.blocks.freeBlocks(), p.free, blocks)
	}
}

func TestSmallBuffersDoNotWaitBehindLargeOnes(t *testing.T) {
	p := NewPool(MinBudget)
	all := getAll(t, p, MaxBuffer)
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan error, 1)
	go func() {
		b, err := p.Get(ctx, MaxBuffer)
		if err == nil {
			b.Release()
		}
		got <- err
	}()
	waitForPool(t, p, func() bool { return !p.large.isEmpty() })
	mustGet(t, p, 84).Release()
	cancel()
	if err := <-got; !errors.Is(err, context.Canceled) {
		t.Errorf("Get of a large buffer: %v", err)
	}
	releaseAll(all)
}

func TestGetWaitsInOrder(t *testing.T) {
	p := NewPool(MinBudget)
	all := getAll(t, p, MaxBuffer)
	large, small := make(chan *Buffer), make(chan *Buffer)
	go func() { large <- mustGet(t, p, MaxBuffer) }()
	waitForPool(t, p, func() bool { return len(p.large.tickets) == 1 })
	go func() { small <- mustGet(t, p, 64<<10) }()
	waitForPool(t, p, func() bool { return len(p.large.tickets) == 2 })
	all[0].Release()
	b := <-large
	select {
	case <-small:
		t.Error("a later request was also answered, but there is no room for both")
	default:
	}
	b.Release()
	(<-small).Release()
	releaseAll(all[1:])
}

// waitForPool waits until a condition of the pool is true. It calls the condition with p.mu held.
func waitForPool(t *testing.T, p *Pool, condition func() bool) {
	t.Helper()
	waitUntil(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return condition()
	})
}

// newStuckFile returns a testFile whose target blocks until the gate opens.
func newStuckFile(t *testing.T, pool *Pool, size int64) (*testFile, *gate) {
	img := newImage(t, size)
	g := newGate()
	img.before = func(string, disk.Range) error { g.wait(); return nil }
	log, path := newLog(t, size)
	return openTestFile(t, img, log, path, pool, Options{Fresh: true}), g
}

// writeAll writes size bytes in the background. The channel receives the error when it ends.
func writeAll(r *testFile, size int64) <-chan error {
	done := make(chan error, 1)
	go func() {
		var err error
		for off := int64(0); off < size && err == nil; off += 64 << 10 {
			err = r.writeBytes(repeatByte(64<<10, 1), off)
		}
		done <- err
	}()
	return done
}

func TestStuckTargetStopsItsWritersWithinTheBudget(t *testing.T) {
	const size = 64 << 20
	pool := NewPool(16 << 20)
	r, g := newStuckFile(t, pool, size)
	done := writeAll(r, size)
	waitForPool(t, pool, func() bool { return !r.account.waiting.isEmpty() })
	if n := pool.Lent(); n > pool.Budget() {
		t.Errorf("%d bytes are lent of %d", n, pool.Budget())
	}
	close(g.open)
	r.noError(<-done)
	r.noError(r.Finish(t.Context()))
	r.wantImage(repeatByte(size, 1))
}

func TestStuckTargetDoesNotDelayOtherFiles(t *testing.T) {
	const size = 32 << 20
	pool := NewPool(16 << 20)
	r, g := newStuckFile(t, pool, size)
	done := writeAll(r, size)
	waitForPool(t, pool, func() bool { return !r.account.waiting.isEmpty() })

	img := newImage(t, size)
	log, path := newLog(t, size)
	other := openTestFile(t, img, log, path, pool, Options{Fresh: true})
	other.noError(<-writeAll(other, size))
	other.noError(other.Finish(t.Context()))
	other.wantImage(repeatByte(size, 1))
	close(g.open)
	r.noError(<-done)
}

// Two files with equal speed get the same share of the memory.
func TestFilesShareThePoolFairly(t *testing.T) {
	const size = 64 << 20
	pool := NewPool(32 << 20)
	a, ga := newStuckFile(t, pool, size)
	b, gb := newStuckFile(t, pool, size)
	doneA, doneB := writeAll(a, size), writeAll(b, size)
	waitForPool(t, pool, func() bool { return !a.account.waiting.isEmpty() && !b.account.waiting.isEmpty() })
	pool.mu.Lock()
	heldA, heldB, free := a.account.lentBytes, b.account.lentBytes, pool.free
	pool.mu.Unlock()
	if least := pool.floor; heldA < least || heldB < least || free < least {
		t.Errorf("files have %d and %d bytes, %d are free, want at least %d each", heldA, heldB, free, least)
	}
	close(ga.open)
	close(gb.open)
	a.noError(<-doneA)
	b.noError(<-doneB)
}

// If incomplete chunks use up the memory, they are written incomplete.
func TestScatteredWritesDoNotDeadlock(t *testing.T) {
	const size = 96 << 20
	img := newImage(t, size)
	log, path := newLog(t, size)
	r := openTestFile(t, img, log, path, NewPool(MinBudget), Options{Fresh: true})
	want := make([]byte, size)
	for round := range 2 {
		for off := int64(round) * 4096; off < size; off += chunkLen {
			r.mustWrite(repeatByte(64<<10, byte(round+1)), off)
			copy(want[off:], repeatByte(64<<10, byte(round+1)))
		}
	}
	r.noError(r.Finish(t.Context()))
	r.wantImage(want)
}

// A file that fails while writes wait for memory returns all of its memory.
func TestFailureReleasesAllMemory(t *testing.T) {
	const size = 64 << 20
	pool := NewPool(MinBudget)
	img := newImage(t, size)
	g := newGate()
	img.before = func(string, disk.Range) error { g.wait(); return errBroken }
	log, path := newLog(t, size)
	r := openTestFile(t, img, log, path, pool, Options{Fresh: true})
	done := writeAll(r, size)
	waitForPool(t, pool, func() bool { return !r.account.waiting.isEmpty() })
	close(g.open)
	if err := <-done; !errors.Is(err, errBroken) {
		t.Errorf("the waiting write returned %v, want %v", err, errBroken)
	}
	releaseAll(getAll(t, pool, MaxBuffer))
	waitUntil(t, func() bool { return pool.Lent() == 0 })
}

func TestCloseRefusesWaitingWrites(t *testing.T) {
	const size = 64 << 20
	pool := NewPool(MinBudget)
	r, g := newStuckFile(t, pool, size)
	done := writeAll(r, size)
	waitForPool(t, pool, func() bool { return !r.account.waiting.isEmpty() })
	closed := make(chan error, 1)
	go func() { closed <- r.Close() }()
	if err := <-done; err == nil {
		t.Error("the waiting write returned no error")
	}
	close(g.open)
	r.noError(<-closed)
}

func TestWriteEndsWithItsContext(t *testing.T) {
	const size = 64 << 20
	pool := NewPool(MinBudget)
	r, g := newStuckFile(t, pool, size)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		var err error
		for off := int64(0); err == nil; off += chunkLen {
			err = r.Write(ctx, mustGet(t, pool, chunkLen), off)
		}
		done <- err
	}()
	waitForPool(t, pool, func() bool { return !r.account.waiting.isEmpty() })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the waiting write returned %v, want %v", err, context.Canceled)
	}
	close(g.open)
}

// In the steady state a write allocates no memory, except when a writer starts.
func TestSteadyStateDoesNotAllocate(t *testing.T) {
	const size = 1 << 40
	pool := NewPool(MinBudget)
	f, err := New(disk.NewNull(size), nil, pool, Options{CheckpointEvery: never})
	if err != nil {
		t.Fatal(err)
	}
	off := int64(0)
	one := func() {
		b := mustGet(t, pool, 64<<10)
		copy(b.Bytes(), "x")
		if err := f.Write(t.Context(), b, off); err != nil {
			t.Fatal(err)
		}
		off += 64 << 10
	}
	for range 1000 {
		one()
	}
	if n := testing.AllocsPerRun(2000, one); n >= 1 {
		t.Errorf("%v allocations per write, want less than 1", n)
	}
	if err := errors.Join(f.Commit(t.Context()), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// FuzzBlocks lends and returns random slots. No two slots share a byte, and at the
// end all blocks are free.
func FuzzBlocks(f *testing.F) {
	f.Add([]byte{0, 4, 8, 128, 4, 4, 200})
	f.Add([]byte{8, 8, 8, 8, 8, 128, 129, 0, 0})
	f.Add([]byte{13, 31, 13, 49, 67, 85, 103, 121, 12, 128, 13, 17, 30})
	f.Fuzz(func(t *testing.T, ops []byte) {
		type slot struct {
			b *block
			n int
		}
		m := newBlocks()
		m.uncut = 3
		var lent []slot
		owner := map[*byte]bool{} // lent pages
		pages := func(s slot, own bool) {
			p := s.b.slotMemory(s.n)
			for off := 0; off < len(p); off += minSlot {
				if own == owner[&p[off]] {
					t.Fatalf("a page is lent twice, or was not lent")
				}
				owner[&p[off]] = own
			}
		}
		giveBack := func(i int) {
			pages(lent[i], false)
			m.giveSlot(lent[i].b, lent[i].n)
			lent[i] = lent[len(lent)-1]
			lent = lent[:len(lent)-1]
		}
		for _, op := range ops {
			switch {
			case op >= 128 && len(lent) > 0:
				giveBack(int(op) % len(lent))
			case op < 128:
				class, place := int(op)%classes, int(op)/classes
				at := diskMiB{disk: uint64(place % 2), mib: int64(place % 3)} // disk 0 means no destination
				if b, n := m.lendAt(class, 0, at, place*int(slotLen(class))%blockLen); b != nil {
					lent = append(lent, slot{b, n})
					pages(lent[len(lent)-1], true)
				}
			}
		}
		for len(lent) > 0 {
			giveBack(0)
		}
		if m.freeBlocks() != 3 {
			t.Fatalf("%d blocks are free at the end, want 3", m.freeBlocks())
		}
		for class := range m.room {
			if len(m.room[class])+len(m.reserved[class])+len(m.byDest) > 0 {
				t.Fatalf("a block of class %d remains", class)
			}
		}
	})
}
