package behind

import (
	"math/bits"

	"github.com/decamp/decamp/internal/disk"
)

const (
	blockLen = 1 << 20 // what memory is cut into first, in bytes
	minSlot  = disk.MemoryAlign
	classes  = 9 // slots of 4 KiB, 8 KiB and so on to a whole block

	// arenaBlocks is how many blocks are allocated at once: enough for huge pages, few
	// enough that a pool that is hardly used stays small.
	arenaBlocks = 16
)

// A block is blockLen bytes cut into slots of one class. With all its slots free it
// belongs to no class and can be cut anew, so no mixture of sizes wastes memory for long.
type block struct {
	memory []byte
	class  int
	used   [blockLen / minSlot / 64]uint64 // one bit for each slot that is lent
	lent   int
	at     int // its place in blocks.room[class], -1 if it is not there
}

// blocks is the memory of a Pool. Slots are lent last in, first out: what was written to
// the image just now is still in the processor's cache when it is filled again.
type blocks struct {
	idle  []*block
	uncut int // blocks not allocated yet
	room  [classes][]*block
}

// classOf returns the class of the smallest slots that take n bytes, blockLen at most.
func classOf(n int) int {
	return bits.Len(uint(max(n, 1)-1) / minSlot)
}

func slotLen(class int) int64 { return minSlot << class }

// spare returns how many whole blocks are free.
func (m *blocks) spare() int { return len(m.idle) + m.uncut }

// lend lends a slot; nil without one. It leaves reserve whole blocks alone.
func (m *blocks) lend(class, reserve int) (*block, int) {
	room := m.room[class]
	if len(room) == 0 {
		if m.spare() <= reserve {
			return nil, 0
		}
		m.enter(m.whole(), class)
		room = m.room[class]
	}
	b := room[len(room)-1]
	slot := b.take()
	if int64(b.lent)*slotLen(class) == blockLen {
		m.leave(b)
	}
	return b, slot
}

// give takes a slot back.
func (m *blocks) give(b *block, slot int) {
	b.used[slot/64] &^= 1 << (slot % 64)
	b.lent--
	switch {
	case b.lent == 0:
		m.leave(b)
		m.idle = append(m.idle, b)
	case b.at < 0:
		m.enter(b, b.class)
	}
}

// whole returns a block without a class. There must be one.
func (m *blocks) whole() *block {
	if len(m.idle) == 0 {
		m.allocate()
	}
	b := m.idle[len(m.idle)-1]
	m.idle = m.idle[:len(m.idle)-1]
	return b
}

func (m *blocks) allocate() {
	n := min(m.uncut, arenaBlocks)
	m.uncut -= n
	arena := disk.AlignedMemory(int64(n) * blockLen)
	for len(arena) > 0 {
		m.idle = append(m.idle, &block{memory: arena[:blockLen:blockLen], at: -1})
		arena = arena[blockLen:]
	}
}

// enter lists a block among those of a class that have room.
func (m *blocks) enter(b *block, class int) {
	b.class, b.at = class, len(m.room[class])
	m.room[class] = append(m.room[class], b)
}

// leave takes a block off that list, if it is there.
func (m *blocks) leave(b *block) {
	if b.at < 0 {
		return
	}
	room := m.room[b.class]
	last := room[len(room)-1]
	room[b.at], last.at = last, b.at
	m.room[b.class], b.at = room[:len(room)-1], -1
}

// take lends the block's first free slot. There must be one.
func (b *block) take() int {
	for i, word := range b.used {
		if ^word != 0 {
			bit := bits.TrailingZeros64(^word)
			b.used[i] |= 1 << bit
			b.lent++
			return i*64 + bit
		}
	}
	panic("behind: a full block is listed as one with room")
}

func (b *block) slotMemory(slot int) []byte {
	n := int(slotLen(b.class))
	return b.memory[slot*n : (slot+1)*n : (slot+1)*n]
}
