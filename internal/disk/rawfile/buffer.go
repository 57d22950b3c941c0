package rawfile

import "github.com/decamp/decamp/internal/disk"

const (
	bufferSize  = 1 << 20
	bufferCount = 4
)

// buffers lends aligned memory. At most bufferCount are out; take waits for one.
type bufferPool struct {
	free chan []byte // never closed; nil stands for one not made yet
}

func newBuffers() *bufferPool {
	b := &bufferPool{free: make(chan []byte, bufferCount)}
	for range bufferCount {
		b.free <- nil
	}
	return b
}

// take lends a buffer of bufferSize bytes until give. Nobody takes a second one before
// giving back the first, so takers never wait for each other in a circle.
func (b *bufferPool) take() []byte {
	if p := <-b.free; p != nil {
		return p
	}
	return disk.AlignedMemory(bufferSize)
}

func (b *bufferPool) give(p []byte) { b.free <- p }
