package writebehind

import (
	"math/bits"

	"github.com/decamp/decamp/internal/disk"
)

const (
	blockLen = 1 << 20          // size of a memory block, in bytes
	minSlot  = disk.MemoryAlign // smallest slot in bytes
	classes  = 9                // slots of 4 KiB, 8 KiB and so on to a whole block

	// arenaBlocks is the number of blocks in one allocation: enough for huge pages, and few enough that a
	// hardly used pool stays small.
	arenaBlocks = 16
)

// A block is blockLen bytes divided into slots of one class. With all its slots free it belongs to no
// class and can be divided again, so no mixture of sizes wastes memory for long.
type block struct {
	memory    []byte                          // blockLen bytes
	class     int                             // class of all its slots; meaningless while no slot is lent
	used      [blockLen / minSlot / 64]uint64 // one bit for each slot that is lent
	lent      int                             // number of slots that are lent
	list      *[]*block                       // list of blocks with free slots that contains it; nil if none does
	listIndex int                             // index in that list
	dest      diskMiB                         // part of a disk that its slots are reserved for; zero if they are not
}

// A diskMiB identifies one MiB of a disk. Its pieces get slots of one block, at their offsets: then
// they are in memory as on the disk, and can be written without a copy.
type diskMiB struct {
	disk uint64 // DiskOffset.Disk; 0 means no reservation
	mib  int64  // number of the MiB from the start of the disk
}

// blocks is the memory of a Pool. The last freed slot is lent first: its memory was just written to the
// image and is still in the processor's cache. The pool's mu guards it.
type blocks struct {
	idle     []*block           // allocated blocks without lent slots
	uncut    int                // number of blocks that are not allocated yet
	room     [classes][]*block  // blocks with free slots, by class
	reserved [classes][]*block  // the same for blocks with a dest, which others use only in need
	byDest   map[diskMiB]*block // blocks with a dest
}

// newBlocks returns blocks without memory.
func newBlocks() blocks { return blocks{byDest: map[diskMiB]*block{}} }

// classOf returns the class of the smallest slot for n bytes, at most blockLen.
func classOf(n int) int {
	return bits.Len(uint(max(n, 1)-1) / minSlot)
}

// slotLen returns the bytes of a slot of that class.
func slotLen(class int) int64 { return minSlot << class }

// freeBlocks returns how many whole blocks are free.
func (m *blocks) freeBlocks() int { return len(m.idle) + m.uncut }

// lendSlot lends a slot of a class; nil if no memory is free. It leaves the given number of whole
// blocks in reserve.
func (m *blocks) lendSlot(class, reserve int) (*block, int) {
	list := &m.room[class]
	if len(*list) == 0 {
		switch {
		case m.freeBlocks() > reserve:
			m.listBlock(m.takeWholeBlock(), class, list)
		case len(m.reserved[class]) > 0:
			list = &m.reserved[class]
		default:
			return nil, 0
		}
	}
	b := (*list)[len(*list)-1]
	slot := b.freeSlot()
	m.takeSlot(b, slot)
	return b, slot
}

// lendAt lends the slot that is reserved for offset off of h, or any other slot if that one is not
// available.
func (m *blocks) lendAt(class, reserve int, h diskMiB, off int) (*block, int) {
	n := int(slotLen(class))
	if h.disk == 0 || off%n != 0 {
		return m.lendSlot(class, reserve)
	}
	b := m.byDest[h]
	if b == nil && m.freeBlocks() > reserve {
		b = m.takeWholeBlock()
		b.dest = h
		m.byDest[h] = b
		m.listBlock(b, class, &m.reserved[class])
	}
	if b == nil || b.class != class || b.isLent(off/n) {
		return m.lendSlot(class, reserve)
	}
	m.takeSlot(b, off/n)
	return b, off / n
}

// takeSlot marks a free slot of b as lent. A block without free slots leaves its list.
func (m *blocks) takeSlot(b *block, slot int) {
	b.used[slot/64] |= 1 << (slot % 64)
	b.lent++
	if int64(b.lent)*slotLen(b.class) == blockLen {
		m.unlistBlock(b)
	}
}

// giveSlot marks a slot as free. A block without lent slots loses its class and dest.
func (m *blocks) giveSlot(b *block, slot int) {
	b.used[slot/64] &^= 1 << (slot % 64)
	b.lent--
	switch {
	case b.lent == 0:
		m.unlistBlock(b)
		delete(m.byDest, b.dest)
		b.dest = diskMiB{}
		m.idle = append(m.idle, b)
	case b.list == nil && b.dest.disk != 0:
		m.listBlock(b, b.class, &m.reserved[b.class])
	case b.list == nil:
		m.listBlock(b, b.class, &m.room[b.class])
	}
}

// takeWholeBlock returns a free block, without a class. freeBlocks must not be 0.
func (m *blocks) takeWholeBlock() *block {
	if len(m.idle) == 0 {
		m.allocateArena()
	}
	b := m.idle[len(m.idle)-1]
	m.idle = m.idle[:len(m.idle)-1]
	return b
}

// allocateArena allocates up to arenaBlocks blocks at once.
func (m *blocks) allocateArena() {
	n := min(m.uncut, arenaBlocks)
	m.uncut -= n
	arena := disk.AlignedMemory(int64(n) * blockLen)
	for len(arena) > 0 {
		m.idle = append(m.idle, &block{memory: arena[:blockLen:blockLen]})
		arena = arena[blockLen:]
	}
}

// listBlock sets the class of a block and adds it to a list of blocks with free slots.
func (m *blocks) listBlock(b *block, class int, list *[]*block) {
	b.class, b.list, b.listIndex = class, list, len(*list)
	*list = append(*list, b)
}

// unlistBlock removes a block from its list, if it is in one.
func (m *blocks) unlistBlock(b *block) {
	if b.list == nil {
		return
	}
	list := *b.list
	last := list[len(list)-1]
	list[b.listIndex], last.listIndex = last, b.listIndex
	*b.list, b.list = list[:len(list)-1], nil
}

// freeSlot returns the first free slot. It panics if all slots are lent.
func (b *block) freeSlot() int {
	for i, word := range b.used {
		if ^word != 0 {
			return i*64 + bits.TrailingZeros64(^word)
		}
	}
	panic("writebehind: full block in a list of blocks with free slots")
}

// isLent reports whether a slot is lent.
func (b *block) isLent(slot int) bool { return b.used[slot/64]>>(slot%64)&1 != 0 }

// slotMemory returns the bytes of a slot.
func (b *block) slotMemory(slot int) []byte {
	n := int(slotLen(b.class))
	return b.memory[slot*n : (slot+1)*n : (slot+1)*n]
}
