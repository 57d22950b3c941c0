package behind

import "sync/atomic"

// A Buffer is memory lent by a Pool, aligned to disk.MemoryAlign. Whoever got it may write
// to Bytes until it is handed to File.Write or released; after that nobody may.
type Buffer struct {
	pool   *Pool
	memory []byte // the whole of what the pool lends
	n      int    // how many bytes of it were asked for
	refs   atomic.Int32
}

// Bytes returns the bytes that were asked for. They hold whatever was there before.
func (b *Buffer) Bytes() []byte { return b.memory[:b.n] }

// Release gives the memory back. It is called once by whoever owns the buffer.
func (b *Buffer) Release() {
	if b.refs.Add(-1) == 0 {
		b.pool.put(b)
	}
}
