package writebehind

import (
	"context"
	"sync"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

const (
	// MaxBuffer is the largest Buffer in bytes, and the largest write.
	MaxBuffer = blockLen

	// MinBudget is the smallest budget of a Pool in bytes. NewPool raises smaller ones.
	MinBudget = 8 << 20

	// smallSlot is the maximum size of a small buffer: the renewal of a lock, a descriptor. Small ones
	// have a separate queue and a block in reserve.
	smallSlot    = 4 << 10
	smallReserve = 1 // whole blocks in reserve for small buffers

	windowShare = 4       // part of the budget for windows: one in this many bytes
	maxWindows  = 32      // highest number of windows
	maxWindow   = 4 << 20 // largest window in bytes: two huge pages; longer writes are not faster
)

// A Pool lends memory under a hard budget that all files share. The package comment describes how it is
// divided. It is safe for concurrent use.
type Pool struct {
	budget    int64 // limit in bytes, whole blocks
	windowLen int64 // bytes of a window, whole chunks
	floor     int64 // memory that each file may hold, regardless of the others

	mu       sync.Mutex // guards the fields below and all accounts
	blocks   blocks     // memory of the buffers
	free     int64      // bytes of unused blocks
	lent     int64      // bytes of lent blocks
	buffers  []*Buffer  // unused Buffer structs, without memory
	tickets  []*ticket  // unused tickets
	windows  [][]byte   // allocated windows that are not lent
	unmade   int        // windows not allocated yet
	small    waitQueue  // queue for buffers up to smallSlot
	large    waitQueue  // queue for larger buffers
	wide     waitQueue  // queue for windows
	accounts []*account // accounts of open files; replaced and never changed
	turn     int        // account that admitWaiting starts with
}

// NewPool returns a Pool that never uses more than budget bytes. Memory is allocated when it is first
// lent.
func NewPool(budget int64) *Pool {
	budget = max(budget, MinBudget) / blockLen * blockLen
	p := &Pool{budget: budget, blocks: newBlocks()}
	p.windowLen = min(max(budget/windowShare/maxWindows/blockLen*blockLen, blockLen), maxWindow)
	p.unmade = int(min(budget/windowShare/p.windowLen, maxWindows))
	p.free = budget - int64(p.unmade)*p.windowLen
	p.blocks.uncut = int(p.free / blockLen)
	p.floor = p.free / 8
	return p
}

// Budget returns the bytes that the pool never exceeds.
func (p *Pool) Budget() int64 { return p.budget }

// Lent returns how many bytes are lent in buffers. It is zero when every buffer was released and all
// data in memory is written.
func (p *Pool) Lent() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lent
}

// A DiskOffset is the destination of a buffer: bytes of a disk, identified by a number other than 0, from an
// offset on. It is a hint. Writes of a power of two, aligned to it, are then in memory in the order of
// the disk, for any order of the writes, and are written from there.
type DiskOffset struct {
	Disk uint64 // number that identifies the disk; 0 means no hint
	Off  int64  // offset on the disk, in bytes
}

// toDiskMiB returns the MiB that the place is in, and the offset within it.
func (l DiskOffset) toDiskMiB() (diskMiB, int) {
	return diskMiB{disk: l.Disk, mib: l.Off / blockLen}, int(l.Off % blockLen)
}

// Get lends a buffer of n bytes, at most MaxBuffer. It waits while the budget is used up, until ctx
// ends. This slows senders down to the speed of the targets.
func (p *Pool) Get(ctx context.Context, n int) (*Buffer, error) { return p.GetAt(ctx, n, DiskOffset{}) }

// GetAt is Get for bytes with a known destination.
func (p *Pool) GetAt(ctx context.Context, n int, at DiskOffset) (*Buffer, error) {
	if n < 0 || n > MaxBuffer {
		return nil, fault.New(fault.Unsupported, "a write of %d bytes", n).
			WithHint("send at most %d bytes in one write", MaxBuffer)
	}
	b, t := p.lendOrQueue(classOf(n), at)
	if t != nil {
		p.relievePressure()
		var err error
		if b, err = p.waitForBuffer(ctx, t); err != nil {
			return nil, err
		}
	}
	b.n = n
	return b, nil
}

// lendOrQueue returns a buffer, or else a ticket for one.
func (p *Pool) lendOrQueue(class int, at DiskOffset) (*Buffer, *ticket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.queueFor(class)
	if l.isEmpty() {
		if b := p.lendBuffer(class, at); b != nil {
			return b, nil
		}
	}
	t := p.idleTicket()
	t.class, t.place = class, at
	l.push(t)
	return nil, t
}

// queueFor returns the queue of callers that wait for buffers of a class.
func (p *Pool) queueFor(class int) *waitQueue {
	if slotLen(class) <= smallSlot {
		return &p.small
	}
	return &p.large
}

// waitForBuffer waits for the answer to t. If ctx ends first, it withdraws t, or releases a buffer that
// arrived meanwhile.
func (p *Pool) waitForBuffer(ctx context.Context, t *ticket) (*Buffer, error) {
	select {
	case <-t.ready:
		return p.redeemTicket(t).buffer, nil
	case <-ctx.Done():
	}
	if p.abandonTicket(p.queueFor(t.class), t) {
		return nil, ctx.Err()
	}
	<-t.ready
	p.redeemTicket(t).buffer.Release()
	return nil, ctx.Err()
}

// lendBuffer returns a buffer of a class; nil if no memory is free. mu must be held.
func (p *Pool) lendBuffer(class int, at DiskOffset) *Buffer {
	reserve := smallReserve
	if slotLen(class) <= smallSlot {
		reserve = 0
	}
	h, off := at.toDiskMiB()
	block, slot := p.blocks.lendAt(class, reserve, h, off)
	if block == nil {
		return nil
	}
	p.free -= slotLen(class)
	p.lent += slotLen(class)
	b := p.idleBuffer()
	b.block, b.slot, b.memory = block, slot, block.slotMemory(slot)
	b.start = int64(slot) * slotLen(class)
	b.refs.Store(1)
	return b
}

// idleBuffer returns a Buffer struct without memory. mu must be held.
func (p *Pool) idleBuffer() *Buffer {
	if n := len(p.buffers); n > 0 {
		b := p.buffers[n-1]
		p.buffers = p.buffers[:n-1]
		return b
	}
	return &Buffer{pool: p}
}

// reclaimBuffer returns the memory of a buffer without references to the pool, and serves waiters.
func (p *Pool) reclaimBuffer(b *Buffer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := int64(len(b.memory))
	p.blocks.giveSlot(b.block, b.slot)
	p.free += n
	p.lent -= n
	if b.account != nil {
		b.account.lentBytes -= n
	}
	b.memory, b.block, b.account = nil, nil, nil
	p.buffers = append(p.buffers, b)
	p.serveWaiters()
}

// serveWaiters answers the waiting callers that can be served now. It checks only the first in each
// queue for buffers: otherwise a large buffer would wait forever behind small ones. mu must be held.
func (p *Pool) serveWaiters() {
	for _, l := range [...]*waitQueue{&p.small, &p.large} {
		if l.isEmpty() {
			continue
		}
		refused := false
		l.answerReady(func(t *ticket) bool {
			if !refused {
				t.buffer = p.lendBuffer(t.class, t.place)
				refused = t.buffer == nil
			}
			return !refused
		})
	}
	p.admitWaiting()
}

// idleTicket returns an unused ticket. mu must be held.
func (p *Pool) idleTicket() *ticket {
	if n := len(p.tickets); n > 0 {
		t := p.tickets[n-1]
		p.tickets = p.tickets[:n-1]
		return t
	}
	return &ticket{ready: make(chan struct{}, 1)}
}

// redeemTicket returns the content of an answered ticket and recycles the ticket.
func (p *Pool) redeemTicket(t *ticket) ticket {
	p.mu.Lock()
	defer p.mu.Unlock()
	answer := *t
	*t = ticket{ready: t.ready}
	p.tickets = append(p.tickets, t)
	return answer
}

// abandonTicket removes a ticket from its queue and reports whether it was not answered yet. Those
// behind it may be easier to serve.
func (p *Pool) abandonTicket(l *waitQueue, t *ticket) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := l.remove(t)
	p.serveWaiters()
	return left
}

// isStarved reports whether a caller waits for a buffer.
func (p *Pool) isStarved() bool { return p.small.hasWaiters() || p.large.hasWaiters() }

// relievePressure makes all files write incomplete chunks to free memory.
func (p *Pool) relievePressure() {
	p.mu.Lock()
	accounts := p.accounts // openAccount and closeAccount replace the slice
	p.mu.Unlock()
	for _, a := range accounts {
		a.freeMemory()
	}
}

// takeWindow lends a window of windowLen bytes to gather a run in, until giveWindow. It waits for its
// turn. It returns nil once the account is shut.
func (p *Pool) takeWindow(a *account) []byte {
	p.mu.Lock()
	if a.shut {
		p.mu.Unlock()
		return nil
	}
	if p.wide.isEmpty() {
		if w := p.lendWindow(a); w != nil {
			p.mu.Unlock()
			return w
		}
	}
	t := p.idleTicket()
	t.account = a
	p.wide.push(t)
	p.mu.Unlock()
	<-t.ready
	return p.redeemTicket(t).window
}

// lendWindow lends a window, unless the file has its share: as many as are left for all others. It
// returns nil then. mu must be held.
func (p *Pool) lendWindow(a *account) []byte {
	left := len(p.windows) + p.unmade
	if left == 0 || a.windows > 0 && a.windows >= left {
		return nil
	}
	a.windows++
	if len(p.windows) == 0 {
		p.unmade--
		return disk.AlignedMemory(p.windowLen)
	}
	w := p.windows[len(p.windows)-1]
	p.windows = p.windows[:len(p.windows)-1]
	return w
}

// giveWindow returns a window to the pool, and serves waiters.
func (p *Pool) giveWindow(a *account, w []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a.windows--
	p.windows = append(p.windows, w)
	p.wide.answerReady(func(t *ticket) bool {
		t.window = p.lendWindow(t.account)
		return t.window != nil
	})
}
