package writebehind

import "sync/atomic"

// A Buffer is memory lent by a Pool, aligned to disk.MemoryAlign. Its owner may write to Bytes until it
// is passed to File.Write or released; after that it must not change.
type Buffer struct {
	pool    *Pool
	memory  []byte // the slot of block that is lent
	n       int    // how many bytes of it were asked for
	block   *block
	slot    int
	start   int64        // position of the slot in the block's memory
	refs    atomic.Int32 // the owner, and every piece that shows part of it
	account *account     // account of the file that holds it; nil before that
}

// Bytes returns the bytes that were asked for. They hold whatever was there before.
func (b *Buffer) Bytes() []byte { return b.memory[:b.n] }

// Release gives the memory back. Whoever owns the buffer calls it once; File.Write takes
// the ownership over.
func (b *Buffer) Release() {
	switch n := b.refs.Add(-1); {
	case n == 0:
		b.pool.put(b)
	case n < 0:
		panic("writebehind: a buffer was released twice")
	}
}

func (b *Buffer) retain() { b.refs.Add(1) }
