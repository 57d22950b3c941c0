package writebehind

import (
	"math/bits"

	"github.com/decamp/decamp/internal/disk"
)

const (
	blockLen = 1 << 20 // size of a memory block, in bytes
	minSlot  = disk.MemoryAlign
	classes  = 9 // slots of 4 KiB, 8 KiB and so on to a whole block

	// arenaBlocks is how many blocks are allocated at once: enough for huge pages, few
	// enough that a pool that is hardly used stays small.
	arenaBlocks = 16
)

// A block is blockLen bytes divided into slots of one class. With all its slots free it belongs to no
// class and can be divided again, so no mixture of sizes wastes memory for long.
type block struct {
	memory []byte
	class  int
	used   [blockLen / minSlot / 64]uint64 // one bit for each slot that is lent
	lent   int
	in     *[]*block // the list of blocks with room that it is in, nil if none
	at     int       // its place there
	home   home      // reservation of its slots, if any
}

// A home is the MiB of a disk whose pieces belong into one block, each at its own place: so
// that they lie in memory as they do on the disk, and need not be gathered to be written.
type home struct {
	disk uint64 // 0 is no home
	mib  int64
}

// blocks is the memory of a Pool. The last freed slot is lent first: its memory was just written to the
// image and is still in the processor's cache.
type blocks struct {
	idle  []*block
	uncut int // blocks not allocated yet
	room  [classes][]*block
	kept  [classes][]*block // the same of blocks with a home: for others only in need
	homes map[home]*block
}

func newBlocks() blocks { return blocks{homes: map[home]*block{}} }

// classOf returns the class of the smallest slots that take n bytes, blockLen at most.
func classOf(n int) int {
	return bits.Len(uint(max(n, 1)-1) / minSlot)
}

func slotLen(class int) int64 { return minSlot << class }

// spare returns how many whole blocks are free.
func (m *blocks) spare() int { return len(m.idle) + m.uncut }

// lend lends a slot; nil without one. It leaves reserve whole blocks alone.
func (m *blocks) lend(class, reserve int) (*block, int) {
	list := &m.room[class]
	if len(*list) == 0 {
		switch {
		case m.spare() > reserve:
			m.enter(m.whole(), class, list)
		case len(m.kept[class]) > 0:
			list = &m.kept[class]
		default:
			return nil, 0
		}
	}
	b := (*list)[len(*list)-1]
	slot := b.free()
	m.take(b, slot)
	return b, slot
}

// lendAt lends the slot that belongs to what begins off bytes into a home, or else any.
func (m *blocks) lendAt(class, reserve int, h home, off int) (*block, int) {
	n := int(slotLen(class))
	if h.disk == 0 || off%n != 0 {
		return m.lend(class, reserve)
	}
	b := m.homes[h]
	if b == nil && m.spare() > reserve {
		b = m.whole()
		b.home = h
		m.homes[h] = b
		m.enter(b, class, &m.kept[class])
	}
	if b == nil || b.class != class || b.isLent(off/n) {
		return m.lend(class, reserve)
	}
	m.take(b, off/n)
	return b, off / n
}

// take books a free slot of b as lent.
func (m *blocks) take(b *block, slot int) {
	b.used[slot/64] |= 1 << (slot % 64)
	b.lent++
	if int64(b.lent)*slotLen(b.class) == blockLen {
		m.leave(b)
	}
}

// give takes a slot back.
func (m *blocks) give(b *block, slot int) {
	b.used[slot/64] &^= 1 << (slot % 64)
	b.lent--
	switch {
	case b.lent == 0:
		m.leave(b)
		delete(m.homes, b.home)
		b.home = home{}
		m.idle = append(m.idle, b)
	case b.in == nil && b.home.disk != 0:
		m.enter(b, b.class, &m.kept[b.class])
	case b.in == nil:
		m.enter(b, b.class, &m.room[b.class])
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
		m.idle = append(m.idle, &block{memory: arena[:blockLen:blockLen]})
		arena = arena[blockLen:]
	}
}

// enter lists a block among those of a class that have room.
func (m *blocks) enter(b *block, class int, list *[]*block) {
	b.class, b.in, b.at = class, list, len(*list)
	*list = append(*list, b)
}

// leave takes a block off the list it is in, if any.
func (m *blocks) leave(b *block) {
	if b.in == nil {
		return
	}
	list := *b.in
	last := list[len(list)-1]
	list[b.at], last.at = last, b.at
	*b.in, b.in = list[:len(list)-1], nil
}

// free returns the block's first free slot. There must be one.
func (b *block) free() int {
	for i, word := range b.used {
		if ^word != 0 {
			return i*64 + bits.TrailingZeros64(^word)
		}
	}
	panic("writebehind: a full block is listed as one with room")
}

func (b *block) isLent(slot int) bool { return b.used[slot/64]>>(slot%64)&1 != 0 }

func (b *block) slotMemory(slot int) []byte {
	n := int(slotLen(b.class))
	return b.memory[slot*n : (slot+1)*n : (slot+1)*n]
}
