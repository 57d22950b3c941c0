package writebehind

import (
	"iter"
	"slices"
	"sync"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/bitmap"
	"github.com/decamp/decamp/internal/manifest"
)

// A chunkTable has the chunks in memory, in the order of their writes, and the blank chunks of the
// disk. The file's mu guards all of it: all methods require mu, except blankRuns of a sealed file.
type chunkTable struct {
	image   *image
	taken   sync.Cond      // a wanted chunk was taken by its writer, or never will be
	blank   *bitmap.Bitmap // chunks that read as zeros except for data in memory, regardless of the target
	chunks  map[int64]*chunk
	spare   []*chunk
	ripe    queue // chunks to write, in order of arrival
	partial queue // may become complete

	epoch    uint64 // goes up with every Commit
	batches  int    // number of pieces in memory or being written
	barriers []*barrier
	ticks    uint64 // goes up with every urgeIdle
}

// getOrCreate returns a chunk, which begins to exist if need be. It needs mu.
func (t *chunkTable) getOrCreate(number int64) *chunk {
	if c := t.chunks[number]; c != nil {
		return c
	}
	c := &chunk{}
	if n := len(t.spare); n > 0 {
		c, t.spare = t.spare[n-1], t.spare[:n-1]
	}
	c.number = number
	t.chunks[number] = c
	return c
}

// isEmpty reports whether nothing is held, written or read. It needs mu.
func (t *chunkTable) isEmpty() bool { return len(t.chunks) == 0 }

// requeue puts a chunk where it belongs now: among those to be written, among those that
// wait for more, or nowhere. It needs mu.
func (t *chunkTable) requeue(c *chunk) {
	var to *queue
	switch {
	case c.busy || len(c.held) == 0:
	case c.isRipe(t.image.rangeOf(c.number).Len):
		to, c.urgent = &t.ripe, true // there it stays, whatever is added
	default:
		to = &t.partial
	}
	if to != c.in {
		c.unlink()
		if to != nil {
			to.push(c)
		}
	}
	if c.isUnused() {
		t.deleteChunk(c)
	}
}

func (t *chunkTable) deleteChunk(c *chunk) {
	delete(t.chunks, c.number)
	*c = chunk{held: c.held[:0], writing: c.writing[:0]}
	t.spare = append(t.spare, c)
}

// addPiece adds a piece to its chunk and takes its reference over. It needs mu.
func (t *chunkTable) addPiece(c *chunk, p piece) {
	if len(c.held) == 0 {
		c.began = t.epoch
		t.batches++
	}
	c.covered += c.held.add(p)
	c.touched = t.ticks
}

// dropData discards the data of a chunk. mu must be held.
func (t *chunkTable) dropData(c *chunk) {
	if len(c.held) == 0 {
		return
	}
	c.held.release()
	c.covered, c.urgent = 0, false
	t.clearWanted(c)
	t.endBatch(c.began)
}

// dropAll forgets all that is held. It needs mu.
func (t *chunkTable) dropAll() {
	for _, c := range t.chunks {
		t.dropData(c)
		t.requeue(c)
	}
	t.taken.Broadcast()
}

// dropFrom discards the data of chunks from first on, including data being written. mu must be held.
func (t *chunkTable) dropFrom(first int64) {
	for _, c := range t.chunks {
		if c.number < first {
			continue
		}
		t.dropData(c)
		c.void = c.busy
		t.requeue(c)
	}
}

// urgeIdle makes chunks urgent that nothing was added to since the last call. It needs mu.
func (t *chunkTable) urgeIdle() {
	for c := t.partial.first; c != nil; {
		next := c.next
		if c.touched < t.ticks {
			c.urgent = true
			t.requeue(c)
		}
		c = next
	}
	t.ticks++
}

// clearWanted lets readers in again. It needs mu.
func (t *chunkTable) clearWanted(c *chunk) {
	if c.wanted {
		c.wanted = false
		t.taken.Broadcast()
	}
}

// isWanted reports whether a writer waits to begin with a chunk of r. It needs mu.
func (t *chunkTable) isWanted(r disk.Range) bool {
	for off := r.Off; off < r.End(); {
		number := off / manifest.ChunkSize
		if c := t.chunks[number]; c != nil && c.wanted {
			return true
		}
		off = t.image.rangeOf(number).End()
	}
	return false
}

// takeView returns what r is now, and pins the chunks that the target must be read for.
func (t *chunkTable) takeView(r disk.Range) view {
	var v view
	for off := r.Off; off < r.End(); {
		number := off / manifest.ChunkSize
		p := part{Range: r.Intersect(t.image.rangeOf(number)), blank: t.blank.Has(off)}
		if c := t.chunks[number]; c != nil {
			p.pieces = c.newestPieces(p.Range)
		}
		if !p.blank && p.hasGaps() {
			p.pinned = t.getOrCreate(number)
			p.pinned.pins++
		}
		v = append(v, p)
		off = p.End()
	}
	return v
}

// releaseView releases the pieces and the chunks of a view. It needs mu.
func (t *chunkTable) releaseView(v view) {
	for i := range v {
		v[i].pieces.release()
		c := v[i].pinned
		if c == nil {
			continue
		}
		c.pins--
		t.requeue(c)
	}
}

// A barrier is a Commit that waits for the data in memory at its start.
type barrier struct {
	epoch uint64        // batches that began in this or an earlier one count
	left  int           // number of remaining batches
	done  chan struct{} // closed when none is left
}

// urgeAll makes all that is held urgent, and returns a barrier before which it lies. It
// needs mu.
func (t *chunkTable) urgeAll() *barrier {
	b := &barrier{epoch: t.epoch, left: t.batches, done: make(chan struct{})}
	t.epoch++
	if b.left == 0 {
		close(b.done)
		return b
	}
	t.barriers = append(t.barriers, b)
	for _, c := range t.chunks {
		if len(c.held) > 0 {
			c.urgent = true
			t.requeue(c)
		}
	}
	return b
}

// endBatch books a batch that began in an epoch as written, or given up. It needs mu.
func (t *chunkTable) endBatch(epoch uint64) {
	t.batches--
	for _, b := range t.barriers {
		if epoch > b.epoch {
			continue
		}
		if b.left--; b.left == 0 {
			close(b.done)
		}
	}
	t.barriers = slices.DeleteFunc(t.barriers, func(b *barrier) bool { return b.left == 0 })
}

// removeBarrier takes a barrier away that has no waiter any more. It needs mu.
func (t *chunkTable) removeBarrier(b *barrier) {
	t.barriers = slices.DeleteFunc(t.barriers, func(c *barrier) bool { return b == c })
}

// blankRuns yields runs of blank chunks in order, each zeroStep long at most. A sealed
// file has no others than those it has at the beginning.
func (t *chunkTable) blankRuns() iter.Seq[disk.Range] {
	return func(yield func(disk.Range) bool) {
		size := t.image.size()
		for off := int64(0); off < size; {
			step := disk.Range{Off: off, Len: min(zeroStep, size-off)}
			r := t.blank.Next(step)
			if r.Empty() {
				off = step.End()
				continue
			}
			if !yield(r) {
				return
			}
			off = r.End()
		}
	}
}
