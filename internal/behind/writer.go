package behind

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/manifest"
)

// grain is the smallest run of zeros that is kept out of the image, and the least that is
// written of a chunk that is written again: a qcow2 cluster, and a length any file system
// can leave as a hole.
const grain = 64 << 10

// chunkGrains is the grains of a whole chunk; the last grain of a disk may be shorter.
const chunkGrains = manifest.ChunkSize / grain

var zeros [grain]byte

// what to do with a grain
type action uint8

const (
	leave action = iota // the target has it
	write
	zero
)

// A run is neighbouring chunks on their way to the target. One writer has it.
type run struct {
	disk.Range
	chunks  []*chunk
	written []written // of each chunk
	memory  []byte    // the bytes of Range
	actions []action  // of each grain

	gathered bool // memory is a window; else it is where the only chunk lies

	hashing, writing time.Duration // that the writer spent with it
}

// written is what a writer finds out about one chunk.
type written struct {
	blank bool // it read as zeros when it was taken
	safe  bool // the log lists it
	same  bool // with the very same bytes, so that it is not written
	hash  manifest.Hash
}

// maxPartial is how many incomplete chunks a stream may have, reordered as it is. With more
// it is no stream.
const maxPartial = 8

// press makes the file give back memory, now that somebody waits for it.
func (f *File) press() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kick()
}

// pressed reports whether chunks must be written although they are not complete: because
// the pool is used up, or the file's share is and what waits for it will not help. It
// needs mu.
func (f *File) pressed() bool {
	return f.pool.starved() || f.account.waiting.long() && f.partial.n > maxPartial
}

// relax admits all that waits for the file's share if the file has nothing to write: what
// completes its chunks must be among them, and their memory is taken already. It needs mu.
func (f *File) relax() {
	if f.busy == 0 && f.ripe.n == 0 && f.account.waiting.long() {
		f.pool.admitAll(f.account)
	}
}

// backlog is how many ripe chunks there are for each writer before another one begins. Two
// that take turns at single chunks mostly wait for the file's lock in the kernel. A Commit
// does not wait for a writer that is busy with something else.
const backlog = 1

// kick starts another writer if there is work for it. Writers end when there is none, so a
// file that is idle costs nothing. It needs mu.
func (f *File) kick() {
	if f.running == f.o.Writers || f.running > 0 && f.ripe.n <= backlog*f.running && len(f.barriers) == 0 {
		return
	}
	if f.first() == nil {
		f.relax()
		return
	}
	select {
	case <-f.failed:
		return
	default:
	}
	r := &run{}
	if n := len(f.runs); n > 0 {
		r, f.runs = f.runs[n-1], f.runs[:n-1]
	}
	f.running++
	f.group.Add(1)
	go f.writer(r)
}

// writer writes runs until none is ripe.
func (f *File) writer(r *run) {
	defer f.group.Done()
	for f.writeNext(r) {
	}
}

// writeNext waits for a window first, and takes what to write second: a run that waits
// grows.
func (f *File) writeNext(r *run) bool {
	window := f.pool.takeWindow(f.account)
	if window != nil {
		defer f.pool.giveWindow(f.account, window)
	}
	if !f.take(r, window) {
		return false
	}
	f.done(r, f.write(r))
	return true
}

// first returns the first chunk that can be written now. Under pressure, when nothing else
// will give memory back, that may be one that is not complete. Ripe chunks that are being
// read are wanted from now on: else readers that follow each other could keep them from
// being written for ever. It needs mu.
func (f *File) first() *chunk {
	if f.ledger.full() {
		return nil
	}
	for c := f.ripe.first; c != nil; c = c.next {
		if f.free(c) {
			return c
		}
		if c.pins > 0 {
			c.wanted = true
		} else {
			f.unwant(c) // no reader is in the way: a checkpoint lists it
		}
	}
	if f.busy > 0 || !f.pressed() {
		return nil
	}
	for c := f.partial.first; c != nil; c = c.next {
		if f.free(c) {
			return c
		}
	}
	return nil
}

// free reports whether a writer may begin with c: nobody reads the target there, and the
// log is not just about to list what it held before. It needs mu.
func (f *File) free(c *chunk) bool { return c.pins == 0 && !f.ledger.lists(c.number) }

// take gives r the next run, and reports false if there is none: then the writer is booked
// out, in the same breath, so that whoever brings work next starts another. A nil window
// says that nothing is to be written any more.
func (f *File) take(r *run, window []byte) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.first()
	if c == nil || window == nil {
		f.relax()
		f.running--
		f.runs = append(f.runs, r)
		return false
	}
	r.Range = disk.Range{Off: c.number * manifest.ChunkSize}
	r.chunks, r.written, r.gathered = r.chunks[:0], r.written[:0], false
	f.takeChunk(r, c)
	if r.memory = c.whole(r.Len); r.memory == nil || f.ripe.n >= lagging {
		f.extend(r, window)
	}
	f.kick()
	return true
}

// lagging is how many ripe chunks mean that the target is what everybody waits for: then
// long writes are worth their copying. A target that keeps up has a few waiting.
const lagging = 64

// extend takes the chunks that follow too, as many as the window holds. It needs mu.
func (f *File) extend(r *run, window []byte) {
	r.gathered = true
	for room := int64(len(window))/manifest.ChunkSize - 1; room > 0; room-- {
		c := f.chunks[r.chunks[len(r.chunks)-1].number+1]
		if c == nil || c.in != &f.ripe || !f.free(c) {
			break
		}
		f.takeChunk(r, c)
	}
	r.memory = window[:r.Len]
}

// takeChunk makes what is held of a chunk what is being written. It needs mu.
func (f *File) takeChunk(r *run, c *chunk) {
	c.unlink()
	c.held, c.writing = c.writing, c.held
	c.started, c.covered = c.began, 0
	c.busy, c.void, c.urgent = true, false, false
	f.busy++
	f.ledger.forget(c.number)
	f.unwant(c)
	r.chunks = append(r.chunks, c)
	r.written = append(r.written, written{
		blank: f.blank.Has(c.number * manifest.ChunkSize),
		safe:  f.log != nil && f.log.Has(c.number),
	})
	r.Len += f.rangeOf(c.number).Len
}

// unwant lets readers in again. It needs mu.
func (f *File) unwant(c *chunk) {
	if c.wanted {
		c.wanted = false
		f.taken.Broadcast()
	}
}

// write brings a run to the target. What the log lists is taken off it, durably, before
// its bytes change.
func (f *File) write(r *run) error {
	began := time.Now()
	r.actions, r.writing = r.actions[:0], 0
	err := f.ready(r)
	r.hashing = time.Since(began)
	if err != nil {
		return err
	}
	defer func() { r.writing = time.Since(began) - r.hashing }()
	if err := f.unlist(r); err != nil {
		return err
	}
	return f.apply(r)
}

// ready finds out what of a run is to be written.
func (f *File) ready(r *run) error {
	for i := range r.chunks {
		if err := f.gather(r, i); err != nil {
			return err
		}
		f.inspect(r, i)
	}
	return nil
}

// gather makes the whole chunk of its pieces, and of what lies between them.
func (f *File) gather(r *run, i int) error {
	c, within := r.chunks[i], f.rangeOf(r.chunks[i].number)
	if !r.gathered {
		return nil
	}
	to := r.chunkMemory(within)
	err := c.writing.gaps(within, func(g disk.Range) error {
		p := to[g.Off-within.Off : g.End()-within.Off]
		if r.written[i].blank {
			clear(p)
			return nil
		}
		return f.readBack(f.ctx, p, g.Off)
	})
	if err != nil {
		return err
	}
	c.writing.copyTo(to, within.Off)
	return nil
}

func (r *run) chunkMemory(within disk.Range) []byte {
	return r.memory[within.Off-r.Off : within.End()-r.Off]
}

// inspect decides what to do with each grain of a chunk, and hashes it, while it is in the
// processor's cache. Zeros are zeroed, what the target has is left alone.
func (f *File) inspect(r *run, i int) {
	within := f.rangeOf(r.chunks[i].number)
	memory := r.chunkMemory(within)
	first := len(r.actions)
	for off := 0; off < len(memory); off += grain {
		g := memory[off:min(off+grain, len(memory))]
		if bytes.Equal(g, zeros[:len(g)]) {
			r.actions = append(r.actions, zero)
		} else {
			r.actions = append(r.actions, write)
		}
	}
	actions := r.actions[first:]
	w := &r.written[i]
	if f.log != nil {
		w.hash = hashOf(memory, actions)
		w.same = w.safe && f.lists(r.chunks[i].number, w.hash)
	}
	if w.same || !w.blank {
		keep(actions, within, r.chunks[i].writing, w.same)
	}
}

// hashOf spares zeros the arithmetic.
func hashOf(memory []byte, actions []action) manifest.Hash {
	if !slices.Contains(actions, write) {
		return manifest.ZeroHash(len(memory))
	}
	return manifest.HashOf(memory)
}

// lists reports whether the log has a chunk with that hash. If that cannot be read, the
// chunk is written again, which is never wrong.
func (f *File) lists(number int64, h manifest.Hash) bool {
	had, ok, err := f.log.Hash(number)
	return err == nil && ok && had == h
}

// keep leaves alone the grains that no piece touches.
func keep(actions []action, within disk.Range, touched pieces, all bool) {
	var changed [chunkGrains]bool
	if !all {
		for _, p := range touched {
			for g := (p.Off - within.Off) / grain; g*grain < p.End()-within.Off; g++ {
				changed[g] = true
			}
		}
	}
	for g := range actions {
		if !changed[g] {
			actions[g] = leave
		}
	}
}

// unlist drops the chunks from the log that are listed and will change.
func (f *File) unlist(r *run) error {
	for i := 0; i < len(r.written); i++ {
		n := 0
		for i+n < len(r.written) && r.written[i+n].safe && !r.written[i+n].same {
			n++
		}
		if n == 0 {
			continue
		}
		if err := f.log.Drop(r.chunks[i].number, int64(n)); err != nil {
			return err
		}
		i += n
	}
	return nil
}

// apply gives the target the run, neighbouring grains at once.
func (f *File) apply(r *run) error {
	for g := 0; g < len(r.actions); {
		end := g + 1
		for end < len(r.actions) && r.actions[end] == r.actions[g] {
			end++
		}
		off := int64(g) * grain
		part := disk.Range{Off: r.Off + off, Len: min(int64(end)*grain, r.Len) - off}
		if err := f.act(r.actions[g], part, r.memory[off:off+part.Len]); err != nil {
			return err
		}
		g = end
	}
	return nil
}

func (f *File) act(a action, r disk.Range, p []byte) error {
	switch a {
	case write:
		if err := f.target.WriteAt(f.ctx, p, r.Off); err != nil {
			return fmt.Errorf("write behind at %v: %w", r, err)
		}
	case zero:
		if err := f.target.Zero(f.ctx, r); err != nil {
			return fmt.Errorf("zero behind at %v: %w", r, err)
		}
	case leave:
	}
	return nil
}

// done books a run: it is what the target has now, unless err says that it is not.
func (f *File) done(r *run, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.fail(err)
	}
	for i, c := range r.chunks {
		f.doneChunk(c, r.written[i], err == nil)
	}
	f.busy -= len(r.chunks)
	f.count(r)
	f.checkpointIfDue()
	f.kick()
}

// doneChunk needs mu.
func (f *File) doneChunk(c *chunk, w written, ok bool) {
	if ok && !w.same {
		f.ledger.dirty = true
	}
	if ok && !c.void {
		f.blank.Clear(f.rangeOf(c.number))
		if f.log != nil && !w.same {
			f.ledger.hold(c.number, w.hash)
		}
	}
	c.writing.release()
	c.busy, c.void = false, false
	f.ended(c.started)
	f.settle(c)
}

// count needs mu.
func (f *File) count(r *run) {
	f.stats.Runs++
	f.stats.HashTime += r.hashing
	f.stats.WriteTime += r.writing
	for g, a := range r.actions {
		n := min(grain, r.Len-int64(g)*grain)
		switch a {
		case write:
			f.stats.Written += n
			f.ledger.bytes += n
		case zero:
			f.stats.Zeroed += n
		case leave:
			f.stats.Left += n
		}
	}
}
