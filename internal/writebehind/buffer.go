package writebehind

import "sync/atomic"

// A Buffer is memory lent by a Pool, aligned to disk.MemoryAlign. Its owner may write to Bytes until it
// is passed to File.Write or released; after that it must not change.
type Buffer struct {
	pool    *Pool        // pool that the memory returns to
	memory  []byte       // lent slot of block
	n       int          // requested bytes: the beginning of memory
	block   *block       // block that contains the slot
	slot    int          // index of the slot in the block
	start   int64        // position of the slot in the block's memory
	refs    atomic.Int32 // references: the owner, and each piece with bytes of the buffer
	account *account     // account of the file that holds it; nil before that
}

// Bytes returns the requested number of bytes. Their initial content is undefined.
func (b *Buffer) Bytes() []byte { return b.memory[:b.n] }

// Release drops one reference; the last one returns the memory to the pool. The owner calls it once,
// unless it passed the buffer to File.Write. Another call panics.
func (b *Buffer) Release() {
	switch n := b.refs.Add(-1); {
	case n == 0:
		b.pool.reclaimBuffer(b)
	case n < 0:
		panic("writebehind: buffer released twice")
	}
}

// retain adds a reference.
func (b *Buffer) retain() { b.refs.Add(1) }
