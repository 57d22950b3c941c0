package blockcopy

import (
	"context"
	"slices"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/manifest"
)

// A window is a run of whole chunks on its way from a reader to a writer. Between take
// and put exactly one goroutine owns it. A window without a buffer is a run of zeros.
type window struct {
	disk.Range
	buf    []byte          // the bytes of Range; nil for zeros
	data   []disk.Range    // ranges that are not zero, determined from the content
	hashes []manifest.Hash // hashes of the chunks; nil if they are not needed
}

// hashOf returns that of one of its chunks.
func (w *window) hashOf(chunk disk.Range) manifest.Hash {
	if len(w.data) == 0 {
		return manifest.ZeroHash(int(chunk.Len))
	}
	return w.hashes[(chunk.Off-w.Off)/manifest.ChunkSize]
}

// windowPool bounds the memory of a Copy: windows are cut off one piece of memory when
// first needed, and untouched memory that is fresh from the system takes none.
type windowPool struct {
	idle  chan *window // never closed
	uncut chan []byte  // never closed; room for windows not made yet
}

func newWindowPool(n int, size int64) *windowPool {
	p := &windowPool{idle: make(chan *window, n), uncut: make(chan []byte, n)}
	disk.ReleaseUnused(int64(n) * size)
	memory := disk.AlignedMemory(int64(n) * size)
	for room := range slices.Chunk(memory, int(size)) {
		p.uncut <- room
	}
	return p
}

// take returns an empty window for r, waiting for one if all are in use.
func (p *windowPool) take(ctx context.Context, r disk.Range) (*window, error) {
	w, err := p.idleOrNew(ctx)
	if err != nil {
		return nil, err
	}
	w.Range = r
	w.buf = w.buf[:r.Len]
	w.data = w.data[:0]
	w.hashes = w.hashes[:0]
	return w, nil
}

func (p *windowPool) idleOrNew(ctx context.Context) (*window, error) {
	select {
	case w := <-p.idle:
		return w, nil
	default:
	}
	select {
	case w := <-p.idle:
		return w, nil
	case room := <-p.uncut:
		return &window{buf: room}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// put gives a window back. Runs of zeros have no buffer and are not ours.
func (p *windowPool) put(w *window) {
	if w.buf != nil {
		p.idle <- w
	}
}
