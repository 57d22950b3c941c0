package writebehind

import (
	"iter"
	"slices"
	"sync"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/bitmap"
	"github.com/decamp/decamp/internal/manifest"
)

// A chunkTable contains the chunks in memory, in the order of their writes, and the blank chunks of the
// disk. The file's mu guards all of it: all methods require mu, except blankRuns of a sealed file.
type chunkTable struct {
	image   *image           // size and layout of the disk
	taken   sync.Cond        // signals that a wanted chunk was taken by its writer, or never will be
	blank   *bitmap.Bitmap   // chunks that read as zeros except for data in memory, regardless of the target
	chunks  map[int64]*chunk // chunks in memory, by number
	spare   []*chunk         // unused chunk structs
	ripe    queue            // chunks to write, in order of arrival
	partial queue            // incomplete chunks, in order of arrival

	epoch    uint64     // number of Commits
	batches  int        // number of batches: the pieces of a chunk that a writer takes at once
	barriers []*barrier // Commits that wait
	ticks    uint64     // number of urgeIdle calls
}

// getOrCreate returns the chunk with that number. mu must be held.
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

// isEmpty reports whether no chunk has data in memory, a writer or a reader. mu must be held.
func (t *chunkTable) isEmpty() bool { return len(t.chunks) == 0 }

// requeue moves a chunk to the queue that it belongs to after a change: ripe, partial or none. It
// deletes an unused chunk. mu must be held.
func (t *chunkTable) requeue(c *chunk) {
	var to *queue
	switch {
	case c.busy || len(c.unwritten) == 0:
	case c.isRipe(t.image.rangeOf(c.number).Len):
		to, c.urgent = &t.ripe, true // a ripe chunk stays ripe after further pieces
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

// deleteChunk removes an unused chunk and recycles its memory.
func (t *chunkTable) deleteChunk(c *chunk) {
	delete(t.chunks, c.number)
	*c = chunk{unwritten: c.unwritten[:0], writing: c.writing[:0]}
	t.spare = append(t.spare, c)
}

// addPiece adds a piece to its chunk and owns its reference. mu must be held.
func (t *chunkTable) addPiece(c *chunk, p piece) {
	if len(c.unwritten) == 0 {
		c.began = t.epoch
		t.batches++
	}
	c.covered += c.unwritten.add(p)
	c.touched = t.ticks
}

// dropData discards the unwritten data of a chunk. mu must be held.
func (t *chunkTable) dropData(c *chunk) {
	if len(c.unwritten) == 0 {
		return
	}
	c.unwritten.release()
	c.covered, c.urgent = 0, false
	t.clearWanted(c)
	t.endBatch(c.began)
}

// dropAll discards all unwritten data. mu must be held.
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

// urgeIdle makes chunks urgent that got no piece since the last call. mu must be held.
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

// clearWanted admits readers again. mu must be held.
func (t *chunkTable) clearWanted(c *chunk) {
	if c.wanted {
		c.wanted = false
		t.taken.Broadcast()
	}
}

// isWanted reports whether a writer waits to take a chunk of r. mu must be held.
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

// takeView returns a view of r, and pins the chunks for which the target must be read. mu must be held.
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

// releaseView releases the pieces and unpins the chunks of a view. mu must be held.
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

// urgeAll makes all data in memory urgent, and returns a barrier for it. mu must be held.
func (t *chunkTable) urgeAll() *barrier {
	b := &barrier{epoch: t.epoch, left: t.batches, done: make(chan struct{})}
	t.epoch++
	if b.left == 0 {
		close(b.done)
		return b
	}
	t.barriers = append(t.barriers, b)
	for _, c := range t.chunks {
		if len(c.unwritten) > 0 {
			c.urgent = true
			t.requeue(c)
		}
	}
	return b
}

// endBatch counts a batch from an epoch as written or discarded. It closes barriers without remaining
// batches. mu must be held.
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

// removeBarrier removes a barrier without a waiter. mu must be held.
func (t *chunkTable) removeBarrier(b *barrier) {
	t.barriers = slices.DeleteFunc(t.barriers, func(c *barrier) bool { return b == c })
}

// blankRuns yields runs of blank chunks in order, each at most zeroStep long. It may be called without
// mu for a sealed file, whose blank chunks do not increase.
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
