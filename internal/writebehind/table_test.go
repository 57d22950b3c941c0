package writebehind

import (
	"slices"
	"testing"

	"github.com/decamp/decamp/internal/disk"
)

// ripeChunks returns the numbers of the ripe chunks. The caller holds mu.
func (t *chunkTable) ripeChunks() (numbers []int64) {
	for c := t.ripe.first; c != nil; c = c.next {
		numbers = append(numbers, c.number)
	}
	return numbers
}

// The timer makes chunks ripe that have not changed since it last fired, and no others.
func TestIdleChunksBecomeRipe(t *testing.T) {
	r := newTestFile(t, 4*chunkLen, Options{})
	put := func(off int64) { r.addToChunks(mustGet(t, r.pool, 100), disk.Range{Off: off, Len: 100}) }
	r.mu.Lock() // no writer can start
	defer r.mu.Unlock()
	put(0)
	put(chunkLen)
	for _, step := range []struct {
		put  int64 // offset of a write; -1 for none
		want []int64
	}{{200, nil} /* both changed since the start */, {chunkLen + 200, []int64{0}}, {-1, []int64{0, 1}}, {3 * chunkLen, []int64{0, 1}}, {-1, []int64{0, 1, 3}}} {
		if step.put >= 0 {
			put(step.put)
		}
		if r.table.urgeIdle(); !slices.Equal(r.table.ripeChunks(), step.want) {
			t.Errorf("after a write at %d: chunks %v are ripe, want %v", step.put, r.table.ripeChunks(), step.want)
		}
	}
}

// A view pins a chunk only if it must read the target there. Data in memory and blank chunks need no pin.
func TestViewPinsChunksThatItReads(t *testing.T) {
	r := newTestFile(t, 4*chunkLen, Options{})
	r.mustWrite(repeatByte(2*chunkLen, 1), 0)
	r.noError(r.Commit(t.Context()))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addToChunks(mustGet(t, r.pool, 1000), disk.Range{Off: 100, Len: 1000})
	r.addToChunks(mustGet(t, r.pool, 1000), disk.Range{Off: 2*chunkLen + 100, Len: 1000})
	for _, c := range []struct {
		r    disk.Range
		pins []int64
	}{
		{disk.Range{Off: 100, Len: 1000}, nil},
		{disk.Range{Off: 99, Len: 1000}, []int64{0}},
		{disk.Range{Off: 100, Len: 1001}, []int64{0}},
		{disk.Range{Off: chunkLen - 1, Len: 2}, []int64{0, 1}},
		{disk.Range{Off: 2 * chunkLen, Len: 2 * chunkLen}, nil},
		{disk.Range{Off: 0, Len: 4 * chunkLen}, []int64{0, 1}},
	} {
		v := r.table.takeView(c.r)
		var pins []int64
		for _, p := range v {
			if p.pinned != nil {
				pins = append(pins, p.pinned.number)
			}
		}
		if !slices.Equal(pins, c.pins) || int64(v.len()) != c.r.Len {
			t.Errorf("view of %v: %d bytes, chunks %v are pinned, want %v", c.r, v.len(), pins, c.pins)
		}
		r.table.releaseView(v)
		for _, c := range r.table.chunks {
			if c.pins != 0 {
				t.Errorf("chunk %d is still pinned", c.number)
			}
		}
	}
}

// A reader waits only if it touches a chunk that a writer waits for.
func TestReadersWaitForWantedChunks(t *testing.T) {
	r := newTestFile(t, 4*chunkLen+512, Options{})
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.table.getOrCreate(2)
	c.wanted = true
	for _, of := range []struct {
		r    disk.Range
		want bool
	}{
		{disk.Range{Off: 0, Len: 2 * chunkLen}, false},
		{disk.Range{Off: 0, Len: 2*chunkLen + 1}, true},
		{disk.Range{Off: 2 * chunkLen, Len: 1}, true},
		{disk.Range{Off: 3*chunkLen - 1, Len: 1}, true},
		{disk.Range{Off: 3 * chunkLen, Len: chunkLen + 512}, false},
		{disk.Range{Off: 2 * chunkLen}, false},
	} {
		if got := r.table.isWanted(of.r); got != of.want {
			t.Errorf("%v: wanted %v, want %v", of.r, got, of.want)
		}
	}
	c.wanted = false
	r.table.requeue(c)
}

// Each barrier waits for the data that is in memory when it starts, and not for later data.
func TestBarriersWaitForEarlierData(t *testing.T) {
	r := newTestFile(t, 4*chunkLen, Options{})
	closed := func(b *barrier) bool {
		select {
		case <-b.done:
			return true
		default:
			return false
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	tab := &r.table
	if b := tab.urgeAll(); !closed(b) || len(tab.barriers) != 0 {
		t.Error("a barrier without data does not end at once")
	}
	put := func(chunk int64) {
		r.addToChunks(mustGet(t, r.pool, 100), disk.Range{Off: chunk * chunkLen, Len: 100})
	}
	put(0)
	first := tab.urgeAll()
	put(1)
	second := tab.urgeAll()
	put(2)
	if tab.batches != 3 || !slices.Equal(tab.ripeChunks(), []int64{0, 1}) {
		t.Errorf("%d batches, chunks %v are ripe", tab.batches, tab.ripeChunks())
	}
	tab.endBatch(tab.chunks[1].began)
	if closed(first) || closed(second) {
		t.Error("a barrier has ended while the first chunk is in memory")
	}
	tab.endBatch(tab.chunks[2].began)
	if closed(first) || closed(second) {
		t.Error("a barrier has ended with a later chunk")
	}
	tab.removeBarrier(first)
	tab.endBatch(tab.chunks[0].began)
	if closed(first) || !closed(second) || len(tab.barriers) != 0 {
		t.Errorf("the second barrier has not ended, or the first one has; %d barriers remain", len(tab.barriers))
	}
	tab.batches = 3 // the original value: the chunks are still in the table
}
