package blockcopy

import (
	"context"
	"slices"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/manifest"
)

// A window is a run of whole chunks on its way from a reader to a writer. Between take and put one
// goroutine owns it. A window without a buffer is a run of zeros.
type window struct {
	disk.Range
	buf    []byte          // content of Range; nil for zeros
	data   []disk.Range    // ranges that contain bytes other than zero, in ascending order
	hashes []manifest.Hash // hashes of the chunks; nil if there is no manifest
}

// hashOf returns the hash of one chunk of the window.
func (w *window) hashOf(chunk disk.Range) manifest.Hash {
	if len(w.data) == 0 {
		return manifest.ZeroHash(int(chunk.Len))
	}
	return w.hashes[(chunk.Off-w.Off)/manifest.ChunkSize]
}

// A windowPool limits the memory of a Copy. Windows are cut from one allocation when they are first
// needed; pages of it that were never touched need no memory.
type windowPool struct {
	idle  chan *window // windows without an owner; never closed
	uncut chan []byte  // memory for windows that do not exist yet; never closed
}

// newWindowPool returns a pool of n windows of size bytes.
func newWindowPool(n int, size int64) *windowPool {
	p := &windowPool{idle: make(chan *window, n), uncut: make(chan []byte, n)}
	disk.ReleaseUnused(int64(n) * size)
	memory := disk.AlignedMemory(int64(n) * size)
	for room := range slices.Chunk(memory, int(size)) {
		p.uncut <- room
	}
	return p
}

// take returns an empty window for r. It waits for one if all are in use.
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

// idleOrNew returns an idle window if there is one, else a new one, else the next that becomes idle.
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

// put returns a window to the pool. Runs of zeros have no buffer and do not belong to the pool.
func (p *windowPool) put(w *window) {
	if w.buf != nil {
		p.idle <- w
	}
}
