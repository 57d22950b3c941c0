package writebehind

// maxPieces is the number of pieces from which an incomplete chunk is written: twice as many as writes
// of 4 KiB that cover a chunk.
const maxPieces = 512

// A chunk is a chunk of the disk whose content is not, or not only, in the target. It exists while it
// has data in memory, a writer or a reader. The file's mu guards it. Its writer reads writing without
// mu, because that does not change meanwhile.
type chunk struct {
	number int64 // offset on the disk in units of manifest.ChunkSize

	unwritten pieces // pieces newer than those being written and those of the target
	covered   int64  // bytes of unwritten
	began     uint64 // epoch in which the oldest unwritten piece arrived
	touched   uint64 // tick in which the last piece arrived
	urgent    bool   // the chunk must be written although it is incomplete

	busy    bool   // a writer has it
	writing pieces // pieces that the writer writes; unchanged until it is done
	started uint64 // epoch in which the oldest piece of writing arrived
	void    bool   // truncated while a writer had it: the writer's result is ignored

	pins   int  // readers that read the target here: no writer may begin
	wanted bool // a writer waits for the readers: no further reader may join

	in         *queue // queue that contains it; nil if none does
	prev, next *chunk // neighbours in that queue
}

// isUnused reports whether the chunk has no data, writer or reader, so that it can be deleted.
func (c *chunk) isUnused() bool { return !c.busy && c.pins == 0 && len(c.unwritten) == 0 }

// isRipe reports whether the unwritten pieces should be written now. n is the length of the chunk.
func (c *chunk) isRipe(n int64) bool {
	return c.urgent || c.covered == n || len(c.unwritten) >= maxPieces
}

// contiguousBytes returns the pieces being written if they are the chunk's n bytes and contiguous in memory; nil
// if they must be gathered.
func (c *chunk) contiguousBytes(n int64) []byte {
	if len(c.writing) == 0 || c.writing[0].from == nil {
		return nil
	}
	block, start := c.writing[0].from.block, c.writing[0].blockOff()
	for i, p := range c.writing {
		if p.from == nil || p.from.block != block || p.blockOff()-start != p.Off-c.writing[0].Off {
			return nil
		}
		if i > 0 && p.Off != c.writing[i-1].End() {
			return nil
		}
	}
	if last := c.writing[len(c.writing)-1]; last.End()-c.writing[0].Off != n {
		return nil
	}
	return block.memory[start : start+n : start+n]
}

// A queue contains chunks in order of arrival. A chunk is in at most one queue, and can leave it from
// any position.
type queue struct {
	first, last *chunk // ends of the list; nil if it is empty
	n           int    // number of chunks
}

// push appends a chunk, which must be in no queue.
func (q *queue) push(c *chunk) {
	c.in, c.prev, c.next = q, q.last, nil
	if q.last != nil {
		q.last.next = c
	} else {
		q.first = c
	}
	q.last = c
	q.n++
}

// unlink removes the chunk from its queue, if it is in one.
func (c *chunk) unlink() {
	q := c.in
	if q == nil {
		return
	}
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		q.first = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	} else {
		q.last = c.prev
	}
	q.n--
	c.in, c.prev, c.next = nil, nil, nil
}
