package writebehind

import "testing"

// newPoolWithAccounts returns a pool with two accounts.
func newPoolWithAccounts() (p *Pool, a, b *account) {
	p = NewPool(MinBudget)
	return p, p.openAccount(func() {}), p.openAccount(func() {})
}

// queueTicket queues a buffer for an account that has used up its share.
func queueTicket(t *testing.T, p *Pool, a *account) *ticket {
	t.Helper()
	a.lentBytes = p.free
	ticket, ok := p.admitOrQueue(a, mustGet(t, p, 64<<10))
	if ticket == nil || ok {
		t.Fatal("an account without a share is admitted")
	}
	return ticket
}

// isAnswered reports whether a ticket is answered.
func isAnswered(t *ticket) bool { return len(t.ready) > 0 }

// Closing the account of a file keeps the other accounts of the pool.
func TestCloseAccountKeepsTheOthers(t *testing.T) {
	p, a, b := newPoolWithAccounts()
	p.closeAccount(a)
	if len(p.accounts) != 1 || p.accounts[0] != b {
		t.Errorf("%d accounts, want the second one only", len(p.accounts))
	}
}

// shutAccount refuses the waiters of one file, for memory and for windows, and keeps the waiters of others.
func TestShutAccountRefusesWaitersOfOneFile(t *testing.T) {
	p, a, b := newPoolWithAccounts()
	memory := []*ticket{queueTicket(t, p, a), queueTicket(t, p, b)}
	var windows []*ticket
	for _, of := range []*account{a, b} {
		w := p.idleTicket()
		w.account = of
		p.wide.push(w)
		windows = append(windows, w)
	}
	p.shutAccount(a)
	if !isAnswered(memory[0]) || !isAnswered(windows[0]) || memory[0].ok || windows[0].window != nil {
		t.Error("a waiter of the file still waits, or was admitted")
	}
	if isAnswered(memory[1]) || isAnswered(windows[1]) {
		t.Error("a waiter of another file was answered")
	}
	if ok, err := p.admitBuffer(t.Context(), a, mustGet(t, p, 64<<10)); ok || err != nil {
		t.Errorf("admitted after shutAccount: %v, %v", ok, err)
	}
	if p.tryAdmit(a, mustGet(t, p, 64<<10)) {
		t.Error("tryAdmit admits after shutAccount")
	}
	if p.takeWindow(a) != nil {
		t.Error("a window is lent after shutAccount")
	}
}

// tryAdmit does not overtake waiting writes.
func TestTryAdmitDoesNotOvertake(t *testing.T) {
	p, a, _ := newPoolWithAccounts()
	waiter := queueTicket(t, p, a)
	a.lentBytes = 0
	if p.tryAdmit(a, mustGet(t, p, 64<<10)) {
		t.Error("admitted before a waiting write")
	}
	p.mu.Lock()
	p.admitWaiting()
	p.mu.Unlock()
	if !isAnswered(waiter) || !waiter.ok || a.lentBytes != 64<<10 {
		t.Errorf("the waiter is not admitted: %d bytes lent", a.lentBytes)
	}
	if !p.tryAdmit(a, mustGet(t, p, 64<<10)) || a.lentBytes != 128<<10 {
		t.Errorf("not admitted without a waiting write: %d bytes lent", a.lentBytes)
	}
}

// A file may use as much memory as it leaves to all others, at least the floor, and always one write.
func TestMemoryShareOfAFile(t *testing.T) {
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
			t.Errorf("%d more bytes with %d lent and %d free: %v, want %v", c.n, c.held, c.free, got, c.want)
		}
	}
}

// Waiters of a file are admitted in order: one that does not fit delays the later ones of its file, and not those of
// other files.
func TestAdmissionIsInOrder(t *testing.T) {
	p, a, b := newPoolWithAccounts()
	p.openAccount(func() {}) // an account without waiters
	a.lentBytes, b.lentBytes = p.free, p.free
	large, _ := p.admitOrQueue(a, mustGet(t, p, MaxBuffer))
	small, _ := p.admitOrQueue(a, mustGet(t, p, 4096))
	other, _ := p.admitOrQueue(b, mustGet(t, p, 4096))
	room := max(p.free, p.floor)
	a.lentBytes, b.lentBytes = room-8192, room-8192
	p.mu.Lock()
	p.admitWaiting()
	p.mu.Unlock()
	if isAnswered(large) || isAnswered(small) || !isAnswered(other) {
		t.Errorf("admitted: large %v, small %v, other %v", isAnswered(large), isAnswered(small), isAnswered(other))
	}
	p.admitAll(a)
	if !isAnswered(large) || !isAnswered(small) || !large.ok || !small.ok || a.lentBytes != room-8192+MaxBuffer+4096 {
		t.Errorf("admitted: large %v, small %v; %d bytes lent", isAnswered(large), isAnswered(small), a.lentBytes)
	}
}

// A buffer is returned by its last Release. Another Release panics.
func TestBufferIsReleasedOnce(t *testing.T) {
	p := NewPool(MinBudget)
	b := mustGet(t, p, 100)
	b.retain()
	b.Release()
	if p.Lent() == 0 {
		t.Error("the buffer was returned while a piece uses it")
	}
	b.Release()
	if p.Lent() != 0 {
		t.Errorf("%d bytes are lent", p.Lent())
	}
	defer func() {
		if recover() == nil {
			t.Error("the extra Release does not panic")
		}
	}()
	b.Release()
}

// classOf returns the class with the smallest slots that are large enough.
func TestBufferSizeClasses(t *testing.T) {
	for n, want := range map[int]int64{0: 4096, 1: 4096, 4096: 4096, 4097: 8192, 8192: 8192, 8193: 16384, MaxBuffer - 1: MaxBuffer, MaxBuffer: MaxBuffer} {
		if got := slotLen(classOf(n)); got != want {
			t.Errorf("%d bytes are in a slot of %d, want %d", n, got, want)
		}
	}
	p := NewPool(MinBudget)
	mustGet(t, p, 0).Release()
	for _, n := range []int{-1, MaxBuffer + 1} {
		if _, err := p.Get(t.Context(), n); err == nil {
			t.Errorf("Get returns a buffer of %d bytes", n)
		}
	}
}

// With a DiskOffset, pieces of a MiB get buffers in one block, each at its offset, in any order. Pieces of another
// disk, of another MiB, or without alignment get buffers in other blocks.
func TestOffsetsOfBuffers(t *testing.T) {
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
			t.Errorf("%s: the buffer is in the block of the others", name)
		}
	}
}

// A file may have one window, and as many more as it leaves to all others.
func TestWindowShareOfAFile(t *testing.T) {
	p, a, b := newPoolWithAccounts()
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
		t.Error("the other file gets no window")
	} else {
		p.giveWindow(b, w)
	}
	if b.windows != 0 || len(p.windows) != 1 {
		t.Errorf("the other file has %d windows after it returned its window", b.windows)
	}
}

// No two small buffers share memory, with any number of them in a block.
func TestSmallBuffersDoNotOverlap(t *testing.T) {
	p := NewPool(MinBudget)
	seen := map[*byte]bool{}
	for n := range 3 * blockLen / minSlot {
		b := mustGet(t, p, 100)
		if first := &b.Bytes()[0]; seen[first] {
			t.Fatalf("buffer %d shares memory with another one", n)
		} else {
			seen[first] = true
		}
	}
}

// A freed slot in a block for a part of a disk is kept for that part while other blocks are free.
func TestFreedSlotIsKeptForItsDiskPart(t *testing.T) {
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
		t.Error("a buffer without an offset is in the block")
	}
	if b, err := p.GetAt(t.Context(), 64<<10, DiskOffset{Disk: 7, Off: 3 * 64 << 10}); err != nil || b.block != home || b.slot != 3 {
		t.Errorf("the buffer for the freed offset is not in its slot: %v", err)
	}
}
