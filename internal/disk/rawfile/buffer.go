package rawfile

import "github.com/decamp/decamp/internal/disk"

const (
	bufferSize  = 1 << 20 // size of a buffer in bytes
	bufferCount = 4       // number of buffers of each File and Source
)

// A bufferPool lends aligned memory. At most bufferCount buffers are in use; take waits for one.
type bufferPool struct {
	free chan []byte // unused buffers; never closed. nil is a buffer that is not allocated yet.
}

// newBuffers returns a pool that has not allocated memory.
func newBuffers() *bufferPool {
	b := &bufferPool{free: make(chan []byte, bufferCount)}
	for range bufferCount {
		b.free <- nil
	}
	return b
}

// take returns a buffer of bufferSize bytes for exclusive use until give. A goroutine must not take a
// second one before it returns the first: otherwise goroutines could wait for each other for ever.
func (b *bufferPool) take() []byte {
	if p := <-b.free; p != nil {
		return p
	}
	return disk.AlignedMemory(bufferSize)
}

// give returns a buffer to the pool.
func (b *bufferPool) give(p []byte) { b.free <- p }
