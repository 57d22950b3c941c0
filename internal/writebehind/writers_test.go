package writebehind

import (
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/manifest"
)

// Incomplete chunks are written if the pool is used up. They are also written if a write waits for the file's share
// and the file has more than maxPartial of them.
func TestPressureOnIncompleteChunks(t *testing.T) {
	r := newTestFile(t, chunkLen, Options{})
	r.mu.Lock()
	defer r.mu.Unlock()
	ws, waiter := &r.writers, &ticket{}
	for _, c := range []struct {
		waits   bool
		partial int
		want    bool
	}{{false, 0, false}, {false, maxPartial + 1, false}, {true, 0, false}, {true, maxPartial, false}, {true, maxPartial + 1, true}} {
		if c.waits {
			r.account.waiting.push(waiter)
		}
		r.table.partial.n = c.partial
		if got := ws.isUnderPressure(); got != c.want {
			t.Errorf("a write waits: %v, %d incomplete chunks: under pressure %v, want %v", c.waits, c.partial, got, c.want)
		}
		r.account.waiting.remove(waiter)
	}
	r.table.partial.n = 0
	for _, l := range []*waitQueue{&r.pool.small, &r.pool.large} {
		l.push(waiter)
		if !ws.isUnderPressure() {
			t.Error("the pool is used up, but isUnderPressure is false")
		}
		l.remove(waiter)
	}
}

// Waiting writes are admitted beyond the share only if the file has no other chunks to write.
func TestWaitersAreAdmittedIfNothingIsWritten(t *testing.T) {
	r := newTestFile(t, chunkLen, Options{})
	r.mu.Lock()
	defer r.mu.Unlock()
	ws := &r.writers
	held := r.account.lentBytes
	r.account.lentBytes = r.pool.free
	b := mustGet(t, r.pool, 100)
	waiter, _ := r.pool.admitOrQueue(r.account, b)
	for _, c := range []struct{ busy, ripe int }{{1, 0}, {0, 1}, {1, 1}} {
		ws.busy, r.table.ripe.n = c.busy, c.ripe
		if ws.admitIfIdle(); len(waiter.ready) > 0 {
			t.Fatalf("admitted with %d chunks being written and %d to write", c.busy, c.ripe)
		}
	}
	ws.busy, r.table.ripe.n = 0, 0
	if ws.admitIfIdle(); len(waiter.ready) == 0 || !waiter.ok {
		t.Error("the waiter is not admitted, but no chunk will be written")
	}
	r.account.lentBytes = held + int64(len(b.memory))
	b.Release()
}

// Another writer starts when there are more chunks to write than writers, up to the maximum.
func TestWritersStartWithBacklog(t *testing.T) {
	r := newTestFile(t, 8*chunkLen, Options{Writers: 3})
	r.mu.Lock()
	ws := &r.writers
	ws.running = 1 // a stuck writer
	for n, want := range []int{1, 2, 3, 3, 3} {
		r.addToChunks(mustGet(t, r.pool, chunkLen), disk.Range{Off: int64(n) * chunkLen, Len: chunkLen})
		ws.startWriter() // has no effect without more chunks
		if ws.running != want {
			t.Errorf("%d chunks to write: %d writers, want %d", r.table.ripe.n, ws.running, want)
		}
	}
	ws.running--
	r.mu.Unlock()
	r.noError(r.Commit(t.Context()))
}

// A ripe chunk with a reader becomes wanted, so that new readers wait. A chunk that a checkpoint lists does not.
func TestWantedChunks(t *testing.T) {
	r := newTestFile(t, chunkLen, Options{})
	r.mu.Lock()
	ws := &r.writers
	ws.running = ws.most // no writer can start
	r.addToChunks(mustGet(t, r.pool, chunkLen), disk.Range{Len: chunkLen})
	c := r.table.chunks[0]
	c.pins = 1
	if ws.nextChunk() != nil || !c.wanted {
		t.Error("a chunk with a reader is taken, or not wanted")
	}
	c.pins, r.hashes.appending = 0, true
	r.hashes.listing[0] = manifest.Hash{}
	if ws.nextChunk() != nil || c.wanted {
		t.Error("a chunk that a checkpoint lists is taken or wanted")
	}
	r.hashes.endListing()
	if ws.nextChunk() != c {
		t.Error("a chunk without a reader and a checkpoint is not taken")
	}
	ws.running = 0
	r.mu.Unlock()
	r.noError(r.Commit(t.Context()))
}

// A chunk in contiguous memory is written without gathering, unless so many chunks wait that long writes are worth
// the copies.
func TestLaggingTargetGathersWrites(t *testing.T) {
	for waiting, gathered := range map[int64]bool{1: false, lagging: false, lagging + 1: true} {
		r := newTestFile(t, (lagging+2)*chunkLen, Options{})
		ws := &r.writers
		window := r.pool.takeWindow(r.account)
		r.mu.Lock()
		ws.running = ws.most // no other writer can start
		for n := range waiting {
			b, err := r.pool.GetAt(t.Context(), chunkLen, DiskOffset{Disk: 1, Off: n * chunkLen})
			r.noError(err)
			copy(b.Bytes(), repeatByte(chunkLen, byte(n)+1))
			r.addToChunks(b, disk.Range{Off: n * chunkLen, Len: chunkLen})
		}
		r.mu.Unlock()
		var of run
		chunks := 1
		if gathered {
			chunks = len(window) / chunkLen
		}
		if !ws.takeRun(&of, window) || of.gathered != gathered || len(of.chunks) != chunks || of.Len != int64(chunks)*chunkLen {
			t.Errorf("%d chunks wait: a run of %d chunks, gathered %v", waiting, len(of.chunks), of.gathered)
		}
		ws.finishRun(&of, ws.image.writeRun(&of))
		r.pool.giveWindow(r.account, window)
		r.mu.Lock()
		ws.running = 0
		r.mu.Unlock()
		r.noError(r.Commit(t.Context()))
		want := make([]byte, (lagging+2)*chunkLen)
		for n := range waiting {
			copy(want[n*chunkLen:], repeatByte(chunkLen, byte(n)+1))
		}
		wantBytes(t, "image", r.img.now, want, 0)
		wantListed(t, r.log, want)
	}
}
