package writebehind

import (
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/manifest"
)

// Chunks that are not complete are written if the pool is used up, or if the file waits for its share
// and has more of them than a stream has.
func TestPressureOnIncompleteChunks(t *testing.T) {
	r := newRig(t, chunkLen, Options{})
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
			t.Errorf("a write waits: %v, %d incomplete chunks: %v", c.waits, c.partial, got)
		}
		r.account.waiting.remove(waiter)
	}
	r.table.partial.n = 0
	for _, l := range []*waitQueue{&r.pool.small, &r.pool.large} {
		l.push(waiter)
		if !ws.isUnderPressure() {
			t.Error("the pool is used up, and nothing is written")
		}
		l.remove(waiter)
	}
}

// Writes that wait are admitted beyond the share only if the file has nothing else to write.
func TestWaitersAreAdmittedIfNothingIsWritten(t *testing.T) {
	r := newRig(t, chunkLen, Options{})
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
		t.Error("not admitted, and nothing will be written")
	}
	r.account.lentBytes = held + int64(len(b.memory))
	b.Release()
}

// Another writer begins once there are more chunks to write than there are writers, up to their maximum.
func TestWritersBeginWithTheBacklog(t *testing.T) {
	r := newRig(t, 8*chunkLen, Options{Writers: 3})
	r.mu.Lock()
	ws := &r.writers
	ws.running = 1 // one that is stuck
	for n, want := range []int{1, 2, 3, 3, 3} {
		r.addToChunks(mustGet(t, r.pool, chunkLen), disk.Range{Off: int64(n) * chunkLen, Len: chunkLen})
		ws.startWriter() // without more chunks nothing changes
		if ws.running != want {
			t.Errorf("%d chunks to write: %d writers, want %d", r.table.ripe.n, ws.running, want)
		}
	}
	ws.running--
	r.mu.Unlock()
	r.must(r.Commit(t.Context()))
}

// A ripe chunk that is read is wanted by its writer, and readers wait; one that a checkpoint lists is not.
func TestWantedChunks(t *testing.T) {
	r := newRig(t, chunkLen, Options{})
	r.mu.Lock()
	ws := &r.writers
	ws.running = ws.most // no writer begins
	r.addToChunks(mustGet(t, r.pool, chunkLen), disk.Range{Len: chunkLen})
	c := r.table.chunks[0]
	c.pins = 1
	if ws.nextChunk() != nil || !c.wanted {
		t.Error("a chunk that is read is not wanted")
	}
	c.pins, r.hashes.appending = 0, true
	r.hashes.listing[0] = manifest.Hash{}
	if ws.nextChunk() != nil || c.wanted {
		t.Error("a chunk that a checkpoint lists is taken or wanted")
	}
	r.hashes.endListing()
	if ws.nextChunk() != c {
		t.Error("a chunk that nothing is in the way of is not taken")
	}
	ws.running = 0
	r.mu.Unlock()
	r.must(r.Commit(t.Context()))
}

// A chunk that lies together is written from where it is, unless so many wait that long writes are worth
// their copying.
func TestRunsOfALaggingTarget(t *testing.T) {
	for waiting, gathered := range map[int64]bool{1: false, lagging: false, lagging + 1: true} {
		r := newRig(t, (lagging+2)*chunkLen, Options{})
		ws := &r.writers
		window := r.pool.takeWindow(r.account)
		r.mu.Lock()
		ws.running = ws.most // no other writer begins
		for n := range waiting {
			b, err := r.pool.GetAt(t.Context(), chunkLen, DiskOffset{Disk: 1, Off: n * chunkLen})
			r.must(err)
			copy(b.Bytes(), fill(chunkLen, byte(n)+1))
			r.addToChunks(b, disk.Range{Off: n * chunkLen, Len: chunkLen})
		}
		r.mu.Unlock()
		var of run
		chunks := 1
		if gathered {
			chunks = len(window) / chunkLen
		}
		if !ws.takeRun(&of, window) || of.gathered != gathered || len(of.chunks) != chunks || of.Len != int64(chunks)*chunkLen {
			t.Errorf("%d chunks wait: %d are written at once, gathered %v", waiting, len(of.chunks), of.gathered)
		}
		ws.finishRun(&of, ws.image.writeRun(&of))
		r.pool.giveWindow(r.account, window)
		r.mu.Lock()
		ws.running = 0
		r.mu.Unlock()
		r.must(r.Commit(t.Context()))
		want := make([]byte, (lagging+2)*chunkLen)
		for n := range waiting {
			copy(want[n*chunkLen:], fill(chunkLen, byte(n)+1))
		}
		wantBytes(t, "image", r.img.now, want, 0)
		wantListed(t, r.log, want)
	}
}
