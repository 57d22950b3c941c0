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

// getAll takes buffers of n bytes until there are no more.
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

func TestBuffersAreAlignedAndApart(t *testing.T) {
	p := NewPool(MinBudget)
	rnd := rand.New(rand.NewPCG(1, 1))
	var out []*Buffer
	for i := range 30 {
		b := mustGet(t, p, 1+rnd.IntN(60<<10))
		if !disk.IsAligned(b.Bytes()) {
			t.Fatalf("a buffer of %d bytes is not aligned", len(b.Bytes()))
		}
		copy(b.Bytes(), fill(len(b.Bytes()), byte(i)))
		out = append(out, b)
	}
	for i, b := range out {
		wantBytes(t, "buffer", b.Bytes(), fill(len(b.Bytes()), byte(i)), 0)
	}
	releaseAll(out)
	if p.Lent() != 0 {
		t.Errorf("%d bytes are still lent", p.Lent())
	}
}

// All that the pool has ever allocated stays within its budget, whatever mixture of sizes
// is asked for.
func TestBudgetIsHard(t *testing.T) {
	for _, budget := range []int64{0, MinBudget, 64 << 20, 100<<20 + 1, 1 << 30} {
		p := NewPool(budget)
		windows := int64(p.unmade) * p.windowLen
		if total := windows + int64(p.blocks.uncut)*blockLen; total > p.Budget() || p.Budget() > max(budget, MinBudget) {
			t.Errorf("budget %d: %d in windows, %d in all, %d said", budget, windows, total, p.Budget())
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
			t.Errorf("%d buffers of %d bytes, want %d at least", len(all), n, room)
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
	waitPool(t, p, func() bool { return !p.large.isEmpty() })
	mustGet(t, p, 84).Release()
	cancel()
	if err := <-got; !errors.Is(err, context.Canceled) {
		t.Errorf("the large one: %v", err)
	}
	releaseAll(all)
}

func TestGetWaitsInOrder(t *testing.T) {
	p := NewPool(MinBudget)
	all := getAll(t, p, MaxBuffer)
	large, small := make(chan *Buffer), make(chan *Buffer)
	go func() { large <- mustGet(t, p, MaxBuffer) }()
	waitPool(t, p, func() bool { return len(p.large.tickets) == 1 })
	go func() { small <- mustGet(t, p, 64<<10) }()
	waitPool(t, p, func() bool { return len(p.large.tickets) == 2 })
	all[0].Release()
	b := <-large
	select {
	case <-small:
		t.Error("one that came later was served as well: there is no room for both")
	default:
	}
	b.Release()
	(<-small).Release()
	releaseAll(all[1:])
}

func waitPool(t *testing.T, p *Pool, is func() bool) {
	t.Helper()
	waitUntil(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return is()
	})
}

// stuck returns a rig whose target does nothing until the gate opens.
func stuck(t *testing.T, pool *Pool, size int64) (*rig, *gate) {
	img := newImage(t, size)
	g := newGate()
	img.before = func(string, disk.Range) error { g.wait(); return nil }
	log, path := newLog(t, size)
	return openRig(t, img, log, path, pool, Options{Fresh: true}), g
}

// flood writes chunk after chunk until it is done or the file fails, and tells when it
// has to wait.
func flood(r *rig, size int64) <-chan error {
	done := make(chan error, 1)
	go func() {
		var err error
		for off := int64(0); off < size && err == nil; off += 64 << 10 {
			err = r.write(fill(64<<10, 1), off)
		}
		done <- err
	}()
	return done
}

func TestStuckTargetStopsItsWritersWithinTheBudget(t *testing.T) {
	const size = 64 << 20
	pool := NewPool(16 << 20)
	r, g := stuck(t, pool, size)
	done := flood(r, size)
	waitPool(t, pool, func() bool { return !r.account.waiting.isEmpty() })
	if n := pool.Lent(); n > pool.Budget() {
		t.Errorf("%d bytes are lent of %d", n, pool.Budget())
	}
	close(g.open)
	r.must(<-done)
	r.must(r.Finish(t.Context()))
	r.wantImage(fill(size, 1))
}

func TestStuckTargetLeavesOtherFilesAlone(t *testing.T) {
	const size = 32 << 20
	pool := NewPool(16 << 20)
	r, g := stuck(t, pool, size)
	done := flood(r, size)
	waitPool(t, pool, func() bool { return !r.account.waiting.isEmpty() })

	img := newImage(t, size)
	log, path := newLog(t, size)
	other := openRig(t, img, log, path, pool, Options{Fresh: true})
	other.must(<-flood(other, size))
	other.must(other.Finish(t.Context()))
	other.wantImage(fill(size, 1))
	close(g.open)
	r.must(<-done)
}

// Two that are as fast as each other get as much memory as each other.
func TestFilesShareThePoolFairly(t *testing.T) {
	const size = 64 << 20
	pool := NewPool(32 << 20)
	a, ga := stuck(t, pool, size)
	b, gb := stuck(t, pool, size)
	doneA, doneB := flood(a, size), flood(b, size)
	waitPool(t, pool, func() bool { return !a.account.waiting.isEmpty() && !b.account.waiting.isEmpty() })
	pool.mu.Lock()
	heldA, heldB, free := a.account.lentBytes, b.account.lentBytes, pool.free
	pool.mu.Unlock()
	if least := pool.floor; heldA < least || heldB < least || free < least {
		t.Errorf("one holds %d, the other %d, %d are left: want %d each at least", heldA, heldB, free, least)
	}
	close(ga.open)
	close(gb.open)
	a.must(<-doneA)
	b.must(<-doneB)
}

// With all memory in chunks that lack something, they are written as they are.
func TestScatteredWritesDoNotLockUp(t *testing.T) {
	const size = 96 << 20
	img := newImage(t, size)
	log, path := newLog(t, size)
	r := openRig(t, img, log, path, NewPool(MinBudget), Options{Fresh: true})
	want := make([]byte, size)
	for round := range 2 {
		for off := int64(round) * 4096; off < size; off += chunkLen {
			r.mustWrite(fill(64<<10, byte(round+1)), off)
			copy(want[off:], fill(64<<10, byte(round+1)))
		}
	}
	r.must(r.Finish(t.Context()))
	r.wantImage(want)
}

// A file that fails while others wait for its memory gives it back.
func TestFailureLetsGoOfAllThatIsHeld(t *testing.T) {
	const size = 64 << 20
	pool := NewPool(MinBudget)
	img := newImage(t, size)
	g := newGate()
	img.before = func(string, disk.Range) error { g.wait(); return errBroken }
	log, path := newLog(t, size)
	r := openRig(t, img, log, path, pool, Options{Fresh: true})
	done := flood(r, size)
	waitPool(t, pool, func() bool { return !r.account.waiting.isEmpty() })
	close(g.open)
	if err := <-done; !errors.Is(err, errBroken) {
		t.Errorf("the write that waited says %v", err)
	}
	releaseAll(getAll(t, pool, MaxBuffer))
	waitUntil(t, func() bool { return pool.Lent() == 0 })
}

func TestCloseSendsAwayWhoWaits(t *testing.T) {
	const size = 64 << 20
	pool := NewPool(MinBudget)
	r, g := stuck(t, pool, size)
	done := flood(r, size)
	waitPool(t, pool, func() bool { return !r.account.waiting.isEmpty() })
	closed := make(chan error, 1)
	go func() { closed <- r.Close() }()
	if err := <-done; err == nil {
		t.Error("the write that waited gave no error")
	}
	close(g.open)
	r.must(<-closed)
}

func TestWriteEndsWithItsContext(t *testing.T) {
	const size = 64 << 20
	pool := NewPool(MinBudget)
	r, g := stuck(t, pool, size)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		var err error
		for off := int64(0); err == nil; off += chunkLen {
			err = r.Write(ctx, mustGet(t, pool, chunkLen), off)
		}
		done <- err
	}()
	waitPool(t, pool, func() bool { return !r.account.waiting.isEmpty() })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the write that waited says %v", err)
	}
	close(g.open)
}

// The cost of a write in the steady state: no garbage but that of starting a writer now
// and then.
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
		t.Errorf("%v allocations for each write", n)
	}
	if err := errors.Join(f.Commit(t.Context()), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// FuzzBlocks lends and takes back slots at random. No two slots share a byte, and in the
// end all memory is whole again.
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
		owner := map[*byte]bool{} // by page
		pages := func(s slot, own bool) {
			p := s.b.slotMemory(s.n)
			for off := 0; off < len(p); off += minSlot {
				if own == owner[&p[off]] {
					t.Fatalf("a page is lent twice, or was not lent")
				}
				owner[&p[off]] = own
			}
		}
		back := func(i int) {
			pages(lent[i], false)
			m.giveSlot(lent[i].b, lent[i].n)
			lent[i] = lent[len(lent)-1]
			lent = lent[:len(lent)-1]
		}
		for _, op := range ops {
			switch {
			case op >= 128 && len(lent) > 0:
				back(int(op) % len(lent))
			case op < 128:
				class, place := int(op)%classes, int(op)/classes
				at := diskMiB{disk: uint64(place % 2), mib: int64(place % 3)} // every other has no home
				if b, n := m.lendAt(class, 0, at, place*int(slotLen(class))%blockLen); b != nil {
					lent = append(lent, slot{b, n})
					pages(lent[len(lent)-1], true)
				}
			}
		}
		for len(lent) > 0 {
			back(0)
		}
		if m.freeBlocks() != 3 {
			t.Fatalf("%d blocks are whole at the end, want 3", m.freeBlocks())
		}
		for class := range m.room {
			if len(m.room[class])+len(m.reserved[class])+len(m.byDest) > 0 {
				t.Fatalf("a block of class %d is left", class)
			}
		}
	})
}
