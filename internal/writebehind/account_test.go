package writebehind

import "testing"

// joined returns a pool with two accounts.
func joined() (p *Pool, a, b *account) {
	p = NewPool(MinBudget)
	return p, p.openAccount(func() {}), p.openAccount(func() {})
}

// queued puts a buffer into the queue of an account, which has used up its share.
func queued(t *testing.T, p *Pool, a *account) *ticket {
	t.Helper()
	a.lentBytes = p.free
	ticket, ok := p.admitOrQueue(a, mustGet(t, p, 64<<10))
	if ticket == nil || ok {
		t.Fatal("an account without a share is admitted")
	}
	return ticket
}

func answered(t *ticket) bool { return len(t.ready) > 0 }

// A file that is closed leaves the others in the pool.
func TestPartLeavesTheOthers(t *testing.T) {
	p, a, b := joined()
	p.closeAccount(a)
	if len(p.accounts) != 1 || p.accounts[0] != b {
		t.Errorf("%d accounts are left", len(p.accounts))
	}
}

// Shut sends away the waiters of one file, for memory and for windows, and leaves those of others.
func TestShutRefusesTheWaitersOfOneFile(t *testing.T) {
	p, a, b := joined()
	memory := []*ticket{queued(t, p, a), queued(t, p, b)}
	var windows []*ticket
	for _, of := range []*account{a, b} {
		w := p.idleTicket()
		w.account = of
		p.wide.push(w)
		windows = append(windows, w)
	}
	p.shutAccount(a)
	if !answered(memory[0]) || !answered(windows[0]) || memory[0].ok || windows[0].window != nil {
		t.Error("a waiter of the file still waits, or was admitted")
	}
	if answered(memory[1]) || answered(windows[1]) {
		t.Error("a waiter of another file was sent away")
	}
	if ok, err := p.admitBuffer(t.Context(), a, mustGet(t, p, 64<<10)); ok || err != nil {
		t.Errorf("admitted after that: %v, %v", ok, err)
	}
	if p.tryAdmit(a, mustGet(t, p, 64<<10)) {
		t.Error("admitted at once after that")
	}
	if p.takeWindow(a) != nil {
		t.Error("a window is lent after that")
	}
}

// TryWrite does not overtake the writes that wait.
func TestTryAdmitDoesNotOvertake(t *testing.T) {
	p, a, _ := joined()
	waiter := queued(t, p, a)
	a.lentBytes = 0
	if p.tryAdmit(a, mustGet(t, p, 64<<10)) {
		t.Error("it came before one that waits")
	}
	p.mu.Lock()
	p.admitWaiting()
	p.mu.Unlock()
	if !answered(waiter) || !waiter.ok || a.lentBytes != 64<<10 {
		t.Errorf("the waiter is not admitted: %d bytes held", a.lentBytes)
	}
	if !p.tryAdmit(a, mustGet(t, p, 64<<10)) || a.lentBytes != 128<<10 {
		t.Errorf("not admitted with no write before it: %d bytes held", a.lentBytes)
	}
}

// A file may hold what is left for all others, at least the floor, and always one write.
func TestShareOfAFile(t *testing.T) {
	p := NewPool(MinBudget)
	for _, c := range []struct {
		free, held, n int64
		want          bool
	}{
		{1000, 0, 5000, true},
		{0, 0, 1, true},
		{p.floor + 1000, 100, p.floor + 900, true},
		{p.floor + 1000, 100, p.floor + 901, false},
		{p.floor + 1000, p.floor + 1000, 1, false},
		{0, p.floor - 100, 100, true},
		{0, p.floor - 100, 101, false},
	} {
		p.free = c.free
		if got := p.fitsShare(&account{lentBytes: c.held}, c.n); got != c.want {
			t.Errorf("%d more with %d held and %d free: %v", c.n, c.held, c.free, got)
		}
	}
}

// Waiters of a file are admitted in order: one that does not fit holds up those behind it, and not the
// other file.
func TestAdmissionIsInOrder(t *testing.T) {
	p, a, b := joined()
	p.openAccount(func() {}) // has no waiters
	a.lentBytes, b.lentBytes = p.free, p.free
	large, _ := p.admitOrQueue(a, mustGet(t, p, MaxBuffer))
	small, _ := p.admitOrQueue(a, mustGet(t, p, 4096))
	other, _ := p.admitOrQueue(b, mustGet(t, p, 4096))
	room := max(p.free, p.floor)
	a.lentBytes, b.lentBytes = room-8192, room-8192
	p.mu.Lock()
	p.admitWaiting()
	p.mu.Unlock()
	if answered(large) || answered(small) || !answered(other) {
		t.Errorf("admitted: large %v, small %v, other %v", answered(large), answered(small), answered(other))
	}
	p.admitAll(a)
	if !answered(large) || !answered(small) || !large.ok || !small.ok || a.lentBytes != room-8192+MaxBuffer+4096 {
		t.Errorf("admitted: large %v, small %v; %d bytes held", answered(large), answered(small), a.lentBytes)
	}
}

// A buffer is given back once; giving it back again is a mistake of the program.
func TestBufferIsReleasedOnce(t *testing.T) {
	p := NewPool(MinBudget)
	b := mustGet(t, p, 100)
	b.retain()
	b.Release()
	if p.Lent() == 0 {
		t.Error("it was given back while a piece shows it")
	}
	b.Release()
	if p.Lent() != 0 {
		t.Errorf("%d bytes are lent", p.Lent())
	}
	defer func() {
		if recover() == nil {
			t.Error("the second release is not noticed")
		}
	}()
	b.Release()
}

// A class has the smallest slots that are large enough.
func TestClassesOfSizes(t *testing.T) {
	for n, want := range map[int]int64{0: 4096, 1: 4096, 4096: 4096, 4097: 8192, 8192: 8192, 8193: 16384, MaxBuffer - 1: MaxBuffer, MaxBuffer: MaxBuffer} {
		if got := slotLen(classOf(n)); got != want {
			t.Errorf("%d bytes are in a slot of %d, want %d", n, got, want)
		}
	}
	p := NewPool(MinBudget)
	mustGet(t, p, 0).Release()
	for _, n := range []int{-1, MaxBuffer + 1} {
		if _, err := p.Get(t.Context(), n); err == nil {
			t.Errorf("a buffer of %d bytes", n)
		}
	}
}

// A DiskOffset puts pieces of a MiB into one block, each at its own offset, in any order; pieces of another
// disk, of another MiB, or without alignment go elsewhere.
func TestPlacesOfBuffers(t *testing.T) {
	p := NewPool(MinBudget)
	get := func(disk uint64, off int64) *Buffer {
		b, err := p.GetAt(t.Context(), 64<<10, DiskOffset{Disk: disk, Off: off})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	first := get(7, 3<<20+128<<10)
	for _, off := range []int64{0, 64 << 10, 960 << 10} {
		if b := get(7, 3<<20+off); b.block != first.block || b.start != off {
			t.Errorf("the piece at %d is at %d of the block", off, b.start)
		}
	}
	if first.start != 128<<10 {
		t.Errorf("the first piece is at %d", first.start)
	}
	for name, b := range map[string]*Buffer{"another MiB": get(7, 4<<20), "another disk": get(8, 3<<20+256<<10), "no disk": get(0, 3<<20+256<<10), "not aligned": get(7, 3<<20+256<<10+512), "the same place": get(7, 3<<20)} {
		if b.block == first.block {
			t.Errorf("%s is in the block of the others", name)
		}
	}
}

// A file may have one window, and no more than are left for all others.
func TestWindowsAreShared(t *testing.T) {
	p, a, b := joined()
	total := p.unmade
	for a.windows < total {
		p.mu.Lock()
		w := p.lendWindow(a)
		p.mu.Unlock()
		if w == nil {
			break
		}
	}
	if want := (total + 1) / 2; a.windows != want {
		t.Errorf("one file has %d of %d windows, want %d", a.windows, total, want)
	}
	if w := p.takeWindow(b); w == nil || b.windows != 1 {
		t.Error("the other has none")
	} else {
		p.giveWindow(b, w)
	}
	if b.windows != 0 || len(p.windows) != 1 {
		t.Errorf("it has %d windows after it gave its own back", b.windows)
	}
}

// No two small buffers share memory, however many of them a block has.
func TestSmallBuffersDoNotOverlap(t *testing.T) {
	p := NewPool(MinBudget)
	seen := map[*byte]bool{}
	for n := range 3 * blockLen / minSlot {
		b := mustGet(t, p, 100)
		if first := &b.Bytes()[0]; seen[first] {
			t.Fatalf("buffer %d has the memory of another one", n)
		} else {
			seen[first] = true
		}
	}
}

// A slot that is free again in a block with a home is for that home, while there are other blocks.
func TestFreedSlotStaysWithItsHome(t *testing.T) {
	p := NewPool(MinBudget)
	var all []*Buffer
	for off := int64(0); off < blockLen; off += 64 << 10 {
		b, err := p.GetAt(t.Context(), 64<<10, DiskOffset{Disk: 7, Off: off})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	home := all[0].block
	all[3].Release()
	if b := mustGet(t, p, 64<<10); b.block == home {
		t.Error("a buffer without a place has it")
	}
	if b, err := p.GetAt(t.Context(), 64<<10, DiskOffset{Disk: 7, Off: 3 * 64 << 10}); err != nil || b.block != home || b.slot != 3 {
		t.Errorf("the buffer of that place does not have it: %v", err)
	}
}
