package writebehind

import (
	"sync"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/manifest"
)

// maxPartial is the number of incomplete chunks that a sequential stream has at most, in the usual
// disorder. With more, the writes are random.
const maxPartial = 8

// writers write data in memory to the image, in as many goroutines as there is work for, up to most. A
// goroutine without work ends. The file's mu guards their state: freeMemory, takeRun and finishRun lock
// it, runWriter and writeNext run without it, and the other methods require it.
type writers struct {
	image           *image         // target and log
	table           *chunkTable    // chunks to write
	hashes          *pendingHashes // hashes of written chunks
	life            *lifecycle     // receives errors; Close waits for its group
	pool            *Pool          // windows, and the need for memory
	account         *account       // the file's share of the pool
	most            int            // highest number of goroutines
	checkpointIfDue func()         // called with mu after each run: a checkpoint may be due

	mu      *sync.Mutex // the file's
	running int         // number of goroutines
	busy    int         // chunks in the runs of all goroutines
	runs    []*run      // unused run structs
	stats   Stats       // counts since New
}

// freeMemory makes the file free memory, because another caller waits for it.
func (ws *writers) freeMemory() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.startWriter()
}

// isUnderPressure reports whether incomplete chunks must be written: the pool is used up, or the file's
// share is and the waiting writes will not complete its chunks. mu must be held.
func (ws *writers) isUnderPressure() bool {
	return ws.pool.isStarved() || ws.account.waiting.hasWaiters() && ws.table.partial.n > maxPartial
}

// admitIfIdle admits all writes that wait for the file's share if the file has nothing to write. The
// waiting writes must then complete its chunks, and their memory is lent already. mu must be held.
func (ws *writers) admitIfIdle() {
	if ws.busy == 0 && ws.table.ripe.n == 0 && ws.account.waiting.hasWaiters() {
		ws.pool.admitAll(ws.account)
	}
}

// backlog is the number of ripe chunks for each writer from which another one starts. Two writers that
// alternate on single chunks mostly wait for the file's lock. A Commit does not wait for busy writers.
const backlog = 1

// startWriter starts another writer if there is work for it. Writers end without work, so an idle file costs
// nothing. mu must be held.
func (ws *writers) startWriter() {
	if ws.running == ws.most || ws.running > 0 && ws.table.ripe.n <= backlog*ws.running && len(ws.table.barriers) == 0 {
		return
	}
	if ws.nextChunk() == nil {
		ws.admitIfIdle()
		return
	}
	if ws.life.isOver() {
		return
	}
	r := &run{}
	if n := len(ws.runs); n > 0 {
		r, ws.runs = ws.runs[n-1], ws.runs[:n-1]
	}
	ws.running++
	ws.life.group.Add(1)
	go ws.runWriter(r)
}

// runWriter writes runs until none is ripe.
func (ws *writers) runWriter(r *run) {
	defer ws.life.group.Done()
	for ws.writeNext(r) {
	}
}

// writeNext writes one run, and returns false if no chunk is ripe. It waits for a window before it
// takes the chunks, because a run grows in the meantime.
func (ws *writers) writeNext(r *run) bool {
	window := ws.pool.takeWindow(ws.account)
	if window != nil {
		defer ws.pool.giveWindow(ws.account, window)
	}
	if !ws.takeRun(r, window) {
		return false
	}
	ws.finishRun(r, ws.image.writeRun(r))
	return true
}

// nextChunk returns the first chunk that can be written now, or nil. Under pressure it may be
// incomplete, if no writer will free memory. Ripe chunks with readers become wanted: otherwise
// successive readers could delay them forever. mu must be held.
func (ws *writers) nextChunk() *chunk {
	if ws.hashes.isFull() {
		return nil
	}
	for c := ws.table.ripe.first; c != nil; c = c.next {
		if ws.canTake(c) {
			return c
		}
		if c.pins > 0 {
			c.wanted = true
		} else {
			ws.table.clearWanted(c) // a checkpoint is listing it; readers need not wait
		}
	}
	if ws.busy > 0 || !ws.isUnderPressure() {
		return nil
	}
	for c := ws.table.partial.first; c != nil; c = c.next {
		if ws.canTake(c) {
			return c
		}
	}
	return nil
}

// canTake reports whether a writer may take c: it has no readers of the target, and the log is not about
// to list its earlier content. mu must be held.
func (ws *writers) canTake(c *chunk) bool { return c.pins == 0 && !ws.hashes.isBeingListed(c.number) }

// takeRun moves the next chunks to r. It returns false if none can be written, or window is nil. Then
// the writer is unregistered under the same lock, so that the next write starts another.
func (ws *writers) takeRun(r *run, window []byte) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	c := ws.nextChunk()
	if c == nil || window == nil {
		ws.admitIfIdle()
		ws.running--
		ws.runs = append(ws.runs, r)
		return false
	}
	r.Range = disk.Range{Off: c.number * manifest.ChunkSize}
	r.chunks, r.written, r.gathered = r.chunks[:0], r.written[:0], false
	ws.takeChunk(r, c)
	if r.memory = c.contiguousBytes(r.Len); r.memory == nil || ws.table.ripe.n >= lagging {
		ws.extendRun(r, window)
	}
	ws.startWriter()
	return true
}

// lagging is the number of ripe chunks from which the target is the bottleneck: then long writes are
// worth their copying. With a fast target few chunks wait.
const lagging = 64

// extendRun adds the chunks that follow, as many as the window has room for. mu must be held.
func (ws *writers) extendRun(r *run, window []byte) {
	r.gathered = true
	for room := int64(len(window))/manifest.ChunkSize - 1; room > 0; room-- {
		c := ws.table.chunks[r.chunks[len(r.chunks)-1].number+1]
		if c == nil || c.in != &ws.table.ripe || !ws.canTake(c) {
			break
		}
		ws.takeChunk(r, c)
	}
	r.memory = window[:r.Len]
}

// takeChunk moves the data of a chunk to the run. mu must be held.
func (ws *writers) takeChunk(r *run, c *chunk) {
	c.unlink()
	c.unwritten, c.writing = c.writing, c.unwritten
	c.started, c.covered = c.began, 0
	c.busy, c.void, c.urgent = true, false, false
	ws.busy++
	ws.hashes.remove(c.number)
	ws.table.clearWanted(c)
	r.chunks = append(r.chunks, c)
	r.written = append(r.written, chunkResult{
		blank:     ws.table.blank.Has(c.number * manifest.ChunkSize),
		wasListed: ws.image.isListed(c.number),
	})
	r.Len += ws.image.rangeOf(c.number).Len
}

// finishRun records the result of a run: the target has its data, unless err is set.
func (ws *writers) finishRun(r *run, err error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if err != nil {
		ws.life.fail(err)
	}
	for i, c := range r.chunks {
		ws.finishChunk(c, r.written[i], err == nil)
	}
	ws.busy -= len(r.chunks)
	ws.countRun(r)
	ws.checkpointIfDue()
	ws.startWriter()
}

// finishChunk records the result of a chunk, and releases its written pieces. mu must be held.
func (ws *writers) finishChunk(c *chunk, w chunkResult, ok bool) {
	if ok && !w.unchanged {
		ws.hashes.dirty = true
	}
	if ok && !c.void {
		ws.table.blank.Clear(ws.image.rangeOf(c.number))
		if ws.image.hasLog() && !w.unchanged {
			ws.hashes.add(c.number, w.hash)
		}
	}
	c.writing.release()
	c.busy, c.void = false, false
	ws.table.endBatch(c.started)
	ws.table.requeue(c)
}

// countRun adds a run to the statistics. mu must be held.
func (ws *writers) countRun(r *run) {
	ws.stats.Runs++
	ws.stats.HashTime += r.hashing
	ws.stats.WriteTime += r.writing
	for g, a := range r.actions {
		n := min(grain, r.Len-int64(g)*grain)
		switch a {
		case write:
			ws.stats.Written += n
			ws.hashes.bytes += n
		case zero:
			ws.stats.Zeroed += n
		case leave:
			ws.stats.Left += n
		}
	}
}
