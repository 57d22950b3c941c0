package writebehind

// maxPieces is how many pieces a chunk gathers before it is written although it is not
// complete: what a chunk of 4 KiB writes in any order needs, twice.
const maxPieces = 512

// A chunk is one chunk of the disk that is not, or not only, what the target holds. It
// exists while something of it is held, written or read. The file's mu guards it.
type chunk struct {
	number int64

	held    pieces // pieces newer than those being written and those of the target
	covered int64  // bytes of held
	began   uint64 // the epoch in which held began
	touched uint64 // the tick in which held was added to last
	urgent  bool   // write it although it is not complete

	busy    bool   // one writer has it
	writing pieces // pieces that the writer writes; unchanged until it is done
	started uint64 // the epoch in which writing began to be held
	void    bool   // the chunk was cut off meanwhile: the writer's result is ignored

	pins   int  // readers that read the target here: no writer may begin
	wanted bool // a writer waits for them: no reader may join

	in         *queue
	prev, next *chunk
}

// isUnused reports that nothing speaks against forgetting the chunk.
func (c *chunk) isUnused() bool { return !c.busy && c.pins == 0 && len(c.held) == 0 }

// isRipe reports whether held should be written now. n is the chunk's length.
func (c *chunk) isRipe(n int64) bool {
	return c.urgent || c.covered == n || len(c.held) >= maxPieces
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

// A queue is chunks in the order they came. A chunk is in one queue at most, and can leave
// it from anywhere.
type queue struct {
	first, last *chunk
	n           int
}

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

// unlink takes c out of the queue it is in, if any.
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
