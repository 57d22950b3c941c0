package writebehind

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/manifest"
)

// recorder is a target and a ledger that records the calls, in order.
type recorder struct {
	disk.Null
	*manifest.Log
	calls   []string
	hashErr error
}

func newRecorder(t *testing.T, size int64) *recorder {
	log, _ := newLog(t, size)
	return &recorder{Null: disk.NewNull(size), Log: log}
}

func (c *recorder) Close() error { return nil }

func (c *recorder) WriteAt(_ context.Context, p []byte, off int64) error {
	c.calls = append(c.calls, fmt.Sprintf("write %d+%d", off>>10, len(p)))
	return nil
}

func (c *recorder) Zero(_ context.Context, r disk.Range) error {
	c.calls = append(c.calls, fmt.Sprintf("zero %d+%d", r.Off>>10, r.Len))
	return nil
}

func (c *recorder) Drop(first, n int64) error {
	c.calls = append(c.calls, fmt.Sprintf("drop %d+%d", first, n))
	return c.Log.Drop(first, n)
}

func (c *recorder) Append(ctx context.Context, runs []manifest.Run) error {
	c.calls = append(c.calls, fmt.Sprintf("append %d", len(runs)))
	return c.Log.Append(ctx, runs)
}

func (c *recorder) Hash(chunk int64) (manifest.Hash, bool, error) {
	if c.hashErr != nil {
		return manifest.Hash{}, false, c.hashErr
	}
	return c.Log.Hash(chunk)
}

func (c *recorder) newImage(t *testing.T) *image {
	return &image{target: c, log: c, ctx: t.Context()}
}

// If a chunk is written again, only the grains that a piece touches are written, and no grain next to them.
func TestGrainsOutsidePiecesAreNotWritten(t *testing.T) {
	within := disk.Range{Off: 3 * chunkLen, Len: chunkLen}
	for _, c := range []struct {
		pieces []disk.Range // relative to the beginning of the chunk
		all    bool         // the target has the whole chunk
		want   []int        // written grains
	}{
		{nil, false, nil},
		{[]disk.Range{{Off: 0, Len: 1}}, false, []int{0}},
		{[]disk.Range{{Off: 0, Len: grain}}, false, []int{0}},
		{[]disk.Range{{Off: grain - 1, Len: 2}}, false, []int{0, 1}},
		{[]disk.Range{{Off: grain, Len: grain}, {Off: 5*grain + 7, Len: 2 * grain}}, false, []int{1, 5, 6, 7}},
		{[]disk.Range{{Off: 15 * grain, Len: grain}}, false, []int{15}},
		{[]disk.Range{{Off: 0, Len: grain}}, true, nil},
	} {
		actions := slices.Repeat([]action{write}, chunkGrains)
		var touched pieces
		for _, r := range c.pieces {
			touched.add(piece{Range: disk.Range{Off: within.Off + r.Off, Len: r.Len}})
		}
		leaveUntouched(actions, within, touched, c.all)
		var got []int
		for g, a := range actions {
			if a == write {
				got = append(got, g)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("pieces %v: grains %v are written, want %v", c.pieces, got, c.want)
		}
	}
}

// A run is written in as few calls as possible, up to the end of a short disk.
func TestRunIsWrittenInFewCalls(t *testing.T) {
	const size = 2*chunkLen + grain + 100
	c := newRecorder(t, size)
	r := &run{Range: disk.Range{Off: chunkLen, Len: size - chunkLen}, memory: make([]byte, size-chunkLen)}
	r.actions = slices.Concat(slices.Repeat([]action{write}, 3), []action{zero}, slices.Repeat([]action{leave}, 12), []action{zero, write})
	if err := c.newImage(t).applyActions(r); err != nil {
		t.Fatal(err)
	}
	want := []string{"write 1024+196608", "zero 1216+65536", "zero 2048+65536", "write 2112+100"}
	if !slices.Equal(c.calls, want) {
		t.Errorf("%q, want %q", c.calls, want)
	}
}

// Before a run is written, its listed chunks that change are dropped, with one call for neighbours, and
// no others.
func TestChangedChunksAreDropped(t *testing.T) {
	c := newRecorder(t, 20*chunkLen)
	if err := c.Log.Append(t.Context(), []manifest.Run{{Zeros: 20}}); err != nil {
		t.Fatal(err)
	}
	r := &run{}
	for n, w := range []chunkResult{
		{wasListed: true}, {wasListed: true}, {wasListed: true, unchanged: true}, {}, {wasListed: true}, {wasListed: true, unchanged: true}, {}, {wasListed: true}, {wasListed: true}, {wasListed: true},
	} {
		r.chunks, r.written = append(r.chunks, &chunk{number: int64(n) + 5}), append(r.written, w)
	}
	if err := c.newImage(t).unlistRun(r); err != nil {
		t.Fatal(err)
	}
	if want := []string{"drop 5+2", "drop 9+1", "drop 12+3"}; !slices.Equal(c.calls, want) {
		t.Errorf("%q, want %q", c.calls, want)
	}
}

// A chunk counts as unchanged only if the log lists it with the same hash. If the log cannot be read,
// it is written again.
func TestUnchangedChunksAreInTheLog(t *testing.T) {
	c := newRecorder(t, 4*chunkLen)
	h := manifest.HashOf(repeatByte(chunkLen, 1))
	if err := c.Log.Append(t.Context(), []manifest.Run{{First: 1, Hashes: []manifest.Hash{h}}}); err != nil {
		t.Fatal(err)
	}
	m := c.newImage(t)
	if !m.logHasHash(1, h) || m.logHasHash(1, manifest.Hash{}) || m.logHasHash(2, manifest.Hash{}) {
		t.Error("logHasHash is not true for chunk 1 and its hash only")
	}
	c.hashErr = errors.New("medium error")
	if m.logHasHash(1, h) || m.logHasHash(1, manifest.Hash{}) {
		t.Error("a chunk whose hash cannot be read counts as unchanged")
	}
}

// hashOf returns the hash of a chunk's bytes, also for zeros and for a short last chunk.
func TestHashOfGrains(t *testing.T) {
	for _, n := range []int{chunkLen, grain, 100} {
		zeros, data := make([]byte, n), repeatByte(n, 3)
		actions := slices.Repeat([]action{zero}, (n+grain-1)/grain)
		if hashOf(zeros, actions) != manifest.HashOf(zeros) {
			t.Errorf("%d zeros have another hash", n)
		}
		actions[len(actions)-1] = write
		if hashOf(data, actions) != manifest.HashOf(data) {
			t.Errorf("%d bytes have another hash", n)
		}
	}
}

// chunksAfter returns the range of the chunks that are entirely after a size. chunksIn counts the chunks in a range.
func TestChunksAfterASize(t *testing.T) {
	const size = 3*chunkLen + 100
	m := newRecorder(t, size).newImage(t)
	for at, want := range map[int64]disk.Range{
		0: {Off: 0, Len: size}, 1: {Off: chunkLen, Len: size - chunkLen}, chunkLen: {Off: chunkLen, Len: size - chunkLen},
		chunkLen + 1: {Off: 2 * chunkLen, Len: size - 2*chunkLen}, 3 * chunkLen: {Off: 3 * chunkLen, Len: 100},
		3*chunkLen + 1: {Off: size}, size: {Off: size},
	} {
		if got := m.chunksAfter(at); got != want {
			t.Errorf("after %d: %v, want %v", at, got, want)
		}
	}
	if got := m.rangeOf(3); got != (disk.Range{Off: 3 * chunkLen, Len: 100}) {
		t.Errorf("the last chunk is %v", got)
	}
	for n, want := range map[int64]int64{0: 0, 1: 1, chunkLen: 1, chunkLen + 1: 2} {
		if got := chunksIn(disk.Range{Len: n}); got != want {
			t.Errorf("%d bytes have %d chunks, want %d", n, got, want)
		}
	}
}

// unlistChunks drops chunks from the log only if one of them is listed.
func TestUnlistDropsListedChunks(t *testing.T) {
	c := newRecorder(t, 8*chunkLen)
	m := c.newImage(t)
	at := func(first, n int64) disk.Range { return disk.Range{Off: first * chunkLen, Len: n * chunkLen} }
	if err := errors.Join(m.unlistChunks(at(0, 8)), c.Log.Append(t.Context(), []manifest.Run{{First: 3, Zeros: 2}}),
		m.unlistChunks(at(0, 3)), m.unlistChunks(at(5, 3)), m.unlistChunks(at(4, 0)), m.unlistChunks(at(4, 4)), m.unlistChunks(at(4, 4))); err != nil {
		t.Fatal(err)
	}
	if want := []string{"drop 4+4"}; !slices.Equal(c.calls, want) || !c.Has(3) || c.Has(4) {
		t.Errorf("%q, want %q", c.calls, want)
	}
	if err := (&image{target: c}).unlistChunks(at(0, 8)); err != nil {
		t.Errorf("without a log: %v", err)
	}
}

// Runs of zeros are listed in batches, each run once.
func TestZerosAreListedInBatches(t *testing.T) {
	for _, n := range []int{0, 1, zeroRuns - 1, zeroRuns, zeroRuns + 1} {
		c := newRecorder(t, 2*(zeroRuns+1)*chunkLen)
		var blank iter.Seq[disk.Range] = func(yield func(disk.Range) bool) {
			for i := range n {
				if !yield(disk.Range{Off: int64(2*i) * chunkLen, Len: chunkLen}) {
					return
				}
			}
		}
		if err := c.newImage(t).listZeros(t.Context(), blank); err != nil {
			t.Fatal(err)
		}
		var want []string
		for left := n; left > 0; left -= zeroRuns {
			want = append(want, fmt.Sprintf("append %d", min(left, zeroRuns)))
		}
		if !slices.Equal(c.calls, want) || c.Chunks()-c.Missing() != int64(n) {
			t.Errorf("%d runs: %q, want %q; %d chunks listed", n, c.calls, want, c.Chunks()-c.Missing())
		}
	}
}

// Hashes of written chunks become runs of neighbours, without changed and truncated chunks.
func TestHashesOfWrittenChunks(t *testing.T) {
	h := func(n int64) manifest.Hash { return manifest.Hash{byte(n)} }
	p := newPendingHashes()
	if p.beginListing() || p.isBeingListed(1) {
		t.Error("beginListing or isBeingListed is true without hashes")
	}
	for _, n := range []int64{9, 1, 2, 3, 7, 8, 12, 13} {
		p.add(n, h(n))
	}
	p.remove(2)
	p.removeFrom(12)
	p.dirty = true
	if !p.beginListing() || p.dirty {
		t.Error("beginListing returned false, or the hashes are still dirty")
	}
	p.add(3, h(30)) // written again during the sync
	p.remove(8)
	if p.isBeingListed(7) {
		t.Error("listed before the target is synced")
	}
	want := []manifest.Run{{First: 1, Hashes: []manifest.Hash{h(1)}}, {First: 3, Hashes: []manifest.Hash{h(3)}}, {First: 7, Hashes: []manifest.Hash{h(7)}}, {First: 9, Hashes: []manifest.Hash{h(9)}}}
	if got := p.runsToList(); fmt.Sprint(got) != fmt.Sprint(want) || !p.isBeingListed(7) || p.isBeingListed(8) || p.isBeingListed(12) {
		t.Errorf("%v, want %v", got, want)
	}
	p.endListing()
	if p.isBeingListed(7) {
		t.Error("still being listed")
	}
	p.dirty = true
	p.beginListing()
	p.add(4, h(4))
	if got := p.runsToList(); len(got) != 1 || got[0].First != 3 || got[0].Hashes[0] != h(30) {
		t.Errorf("the next checkpoint lists %v, want chunk 3", got)
	}
	p.endListing()
	for n := range int64(maxPending - 1) {
		p.add(n, h(n))
	}
	if p.isFull() {
		t.Error("isFull is true with maxPending-1 chunks")
	}
	if p.add(maxPending-1, h(0)); !p.isFull() {
		t.Error("isFull is false with maxPending chunks")
	}
}

// Neighbouring chunks are listed as one run.
func TestNeighbouringHashesAreOneRun(t *testing.T) {
	p := newPendingHashes()
	for n := range int64(10) {
		if n != 4 {
			p.add(n, manifest.Hash{byte(n)})
		}
	}
	p.dirty = true
	p.beginListing()
	got := p.runsToList()
	if len(got) != 2 || got[0].First != 0 || got[0].Count() != 4 || got[1].First != 5 || got[1].Count() != 5 || got[1].Hashes[4] != (manifest.Hash{9}) {
		t.Errorf("runs %v", got)
	}
}

// A chunk is ripe if it is complete, is requested, or has too many pieces.
func TestRipeChunks(t *testing.T) {
	for _, c := range []struct {
		chunk chunk
		want  bool
	}{
		{chunk{}, false},
		{chunk{covered: 99}, false},
		{chunk{covered: 100}, true},
		{chunk{urgent: true}, true},
		{chunk{unwritten: make(pieces, maxPieces-1)}, false},
		{chunk{unwritten: make(pieces, maxPieces)}, true},
	} {
		if got := c.chunk.isRipe(100); got != c.want {
			t.Errorf("%d bytes in %d pieces: ripe %v", c.chunk.covered, len(c.chunk.unwritten), got)
		}
	}
	for _, c := range []chunk{{busy: true}, {pins: 1}, {unwritten: make(pieces, 1)}} {
		if c.isUnused() {
			t.Errorf("%+v counts as unused", c)
		}
	}
	if c := (chunk{}); !c.isUnused() {
		t.Error("an empty chunk does not count as unused")
	}
}

// Chunks can be removed from any position of a queue, and the others keep their order.
func TestQueueKeepsItsOrder(t *testing.T) {
	for _, leave := range [][]int64{nil, {0}, {4}, {2}, {0, 4}, {1, 2}, {0, 1, 2, 3, 4}, {4, 3, 2}, {2, 2}} {
		var q queue
		var all []*chunk
		for n := range int64(5) {
			all = append(all, &chunk{number: n})
			q.push(all[n])
		}
		for _, n := range leave {
			all[n].unlink()
		}
		var want, forward, backward []int64
		for n := range int64(5) {
			if !slices.Contains(leave, n) {
				want = append(want, n)
			}
		}
		for c := q.first; c != nil; c = c.next {
			forward = append(forward, c.number)
		}
		for c := q.last; c != nil; c = c.prev {
			backward = append(backward, c.number)
		}
		slices.Reverse(backward)
		if !slices.Equal(forward, want) || !slices.Equal(backward, want) || q.n != len(want) {
			t.Errorf("without %v: %v, backward %v, %d chunks", leave, forward, backward, q.n)
		}
	}
}

// eachGap passes the gaps between pieces in order, without empty ones.
func TestGapsBetweenPieces(t *testing.T) {
	r := disk.Range{Off: 100, Len: 100}
	for _, c := range []struct{ pieces, want []disk.Range }{
		{nil, []disk.Range{r}},
		{[]disk.Range{r}, nil},
		{[]disk.Range{{Off: 100, Len: 10}}, []disk.Range{{Off: 110, Len: 90}}},
		{[]disk.Range{{Off: 190, Len: 10}}, []disk.Range{{Off: 100, Len: 90}}},
		{[]disk.Range{{Off: 110, Len: 10}, {Off: 120, Len: 10}, {Off: 140, Len: 10}}, []disk.Range{{Off: 100, Len: 10}, {Off: 130, Len: 10}, {Off: 150, Len: 50}}},
	} {
		var ps pieces
		for _, p := range c.pieces {
			ps.add(piece{Range: p})
		}
		var got []disk.Range
		if err := ps.eachGap(r, func(g disk.Range) error { got = append(got, g); return nil }); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("pieces %v: gaps %v, want %v", c.pieces, got, c.want)
		}
		if len(c.want) > 0 {
			if err := ps.eachGap(r, func(disk.Range) error { return errBroken }); !errors.Is(err, errBroken) {
				t.Errorf("pieces %v: %v", c.pieces, err)
			}
		}
	}
}

// A Size outside of the target is refused, and the default number of writers is within its limits.
func TestOptionsOfAFile(t *testing.T) {
	const size = 2 * chunkLen
	log, _ := newLog(t, size)
	for s, ok := range map[int64]bool{-1: false, 0: true, size: true, size + 1: false} {
		if err := (Options{Size: s}).check(newImage(t, size), log); (err == nil) != ok {
			t.Errorf("%d bytes: %v", s, err)
		}
	}
	if err := log.Append(t.Context(), []manifest.Run{{Zeros: 1}}); err != nil {
		t.Fatal(err)
	}
	if err := (Options{Fresh: true}).check(newImage(t, size), log); err == nil || !strings.Contains(err.Error(), "lists 1 chunks") {
		t.Errorf("a fresh target whose manifest lists one of two chunks: %v", err)
	}
	for streams, want := range map[int]int{0: 2, 2: 2, 3: 3, 4: 4, 9: 4} {
		img := newImage(t, size)
		img.hints.Streams = streams
		if got := (Options{}).withDefaults(img).Writers; got != want {
			t.Errorf("%d streams: %d writers, want %d", streams, got, want)
		}
	}
}

// A file that is resumed with a size within a chunk reads zeros after that size, regardless of the target's content.
func TestResumedSizeWithinAChunk(t *testing.T) {
	const size = 3 * chunkLen
	for _, had := range []int64{chunkLen, chunkLen + 1, 2*chunkLen - 1, 2 * chunkLen} {
		img := newImage(t, size)
		log, path := newLog(t, size)
		first := openTestFile(t, img, log, path, NewPool(MinBudget), Options{Fresh: true})
		first.mustWrite(repeatByte(size, 7), 0)
		first.noError(first.Commit(t.Context()))
		first.noError(first.Close())
		r := openTestFile(t, img, log, path, NewPool(MinBudget), Options{Size: had})
		r.noError(r.Truncate(t.Context(), size))
		want := bytes.Clone(repeatByte(size, 7))
		clear(want[had:])
		r.wantRead(want, 0)
		r.noError(r.Finish(t.Context()))
		r.wantImage(want)
	}
}

// Truncate refuses sizes outside of the target, and does not wait if the size stays the same.
func TestTruncateToItsLimits(t *testing.T) {
	const size = 2 * chunkLen
	r := newTestFile(t, size, Options{})
	for _, to := range []int64{-1, size + 1} {
		if err := r.Truncate(t.Context(), to); err == nil {
			t.Errorf("truncated to %d bytes", to)
		}
	}
	for _, to := range []int64{size, size, 0, 0, size} {
		if err := r.Truncate(t.Context(), to); err != nil || r.Size() != to {
			t.Errorf("%d bytes, want %d: %v", r.Size(), to, err)
		}
	}
	r.noError(r.checkpoints.lockSyncing(t.Context()))
	defer r.checkpoints.unlockSyncing()
	r.noError(r.Truncate(t.Context(), size)) // does not wait for the checkpoint
}

// The pieces of a chunk are not gathered if they are in one block in the order of the disk.
func TestContiguousPieces(t *testing.T) {
	memory := make([]byte, blockLen)
	block1, block2 := &block{memory: memory}, &block{memory: make([]byte, blockLen)}
	at := func(b *block, start int64) *Buffer { return &Buffer{block: b, start: start, memory: b.memory[start:]} }
	p := func(from *Buffer, off, at, n int64) piece {
		return piece{Range: disk.Range{Off: off, Len: n}, from: from, at: at}
	}
	const off = 5 * chunkLen
	for name, c := range map[string]struct {
		writing pieces
		start   int64 // offset in block1; -1 if the pieces are gathered
	}{
		"none":              {nil, -1},
		"one":               {pieces{p(at(block1, 0), off, 0, 300)}, 0},
		"one in the middle": {pieces{p(at(block1, 4096), off, 0, 300)}, 4096},
		"end of a buffer":   {pieces{p(at(block1, 4096), off, 512, 300)}, 4608},
		"two":               {pieces{p(at(block1, 4096), off, 0, 100), p(at(block1, 4096), off+100, 100, 200)}, 4096},
		"two buffers":       {pieces{p(at(block1, 4096), off, 4096-100, 100), p(at(block1, 8192), off+100, 0, 200)}, 8192 - 100},
		"in another order":  {pieces{p(at(block1, 4096), off, 200, 100), p(at(block1, 4096), off+100, 0, 200)}, -1},
		"with a gap":        {pieces{p(at(block1, 4096), off, 0, 100), p(at(block1, 4096), off+101, 101, 199)}, -1},
		"too short":         {pieces{p(at(block1, 4096), off, 0, 299)}, -1},
		"in two blocks":     {pieces{p(at(block1, 4096), off, 0, 100), p(at(block2, 4096), off+100, 100, 200)}, -1},
		"zeros first":       {pieces{p(nil, off, 0, 100), p(at(block1, 4096), off+100, 100, 200)}, -1},
		"zeros last":        {pieces{p(at(block1, 4096), off, 0, 100), p(nil, off+100, 0, 200)}, -1},
	} {
		got := (&chunk{writing: c.writing}).contiguousBytes(300)
		if (got == nil) != (c.start < 0) || got != nil && (len(got) != 300 || &got[0] != &memory[c.start]) {
			t.Errorf("%s: %d bytes, want those from %d", name, len(got), c.start)
		}
	}
}

// A disk that is complete when it is resumed is finished without a write, also if its last chunk is short.
func TestResumedCompleteDiskIsNotWritten(t *testing.T) {
	for _, size := range []int64{2 * chunkLen, 2*chunkLen + 512, 2*chunkLen + grain + 512} {
		img := newImage(t, size)
		log, path := newLog(t, size)
		first := openTestFile(t, img, log, path, NewPool(MinBudget), Options{Fresh: true})
		first.mustWrite(repeatByte(int(size), 7), 0)
		first.noError(errors.Join(first.Finish(t.Context()), first.Close()))
		if s := first.Stats(); s.Held != size || s.Written != size || s.Zeroed != 0 || s.Runs < 1 || s.Runs > 3 {
			t.Errorf("%d bytes, first file: %+v", size, s)
		}
		r := openTestFile(t, img, log, path, NewPool(MinBudget), Options{Size: size})
		r.noError(r.Finish(t.Context()))
		if s := r.Stats(); s.Runs != 0 || s.Checkpoints != 0 {
			t.Errorf("%d bytes, resumed file: %+v", size, s)
		}
		r.wantImage(repeatByte(int(size), 7))
	}
}

// A chunk that is sent again with the same content is neither written nor synced.
func TestSameContentNeedsNoCheckpoint(t *testing.T) {
	const size = chunkLen + 512
	r := newTestFile(t, size, Options{})
	r.mustWrite(repeatByte(size, 3), 0)
	r.noError(r.Commit(t.Context()))
	writes, syncs := len(r.img.writes), r.img.syncs
	r.mustWrite(repeatByte(size, 3), 0)
	r.noError(r.Commit(t.Context()))
	if s := r.Stats(); len(r.img.writes) != writes || r.img.syncs != syncs || s.Left != size || s.Written != size || s.Checkpoints != 1 {
		t.Errorf("%d more writes, %d more syncs, %+v", len(r.img.writes)-writes, r.img.syncs-syncs, s)
	}
	r.noError(r.Finish(t.Context()))
	r.wantImage(repeatByte(size, 3))
}

// A file without a log can be finished, with its zeros.
func TestFinishWithoutALog(t *testing.T) {
	const size = 3*chunkLen + 100
	img := newImage(t, size)
	img.fillWithGarbage()
	pool := NewPool(MinBudget)
	f, err := New(img, nil, pool, Options{Fresh: true, Source: img, CheckpointEvery: never})
	if err != nil {
		t.Fatal(err)
	}
	r := &testFile{File: f, t: t, img: img, pool: pool}
	r.mustWrite(repeatByte(chunkLen, 1), chunkLen)
	r.noError(errors.Join(r.Finish(t.Context()), r.Close()))
	want := make([]byte, size)
	copy(want[chunkLen:], repeatByte(chunkLen, 1))
	wantBytes(t, "image", img.now, want, 0)
}

// If the target fails while Finish zeroes blank chunks, Finish returns the error, and the file keeps it.
func TestFailedZeroFailsFinish(t *testing.T) {
	for _, op := range []string{"zero", "sync"} {
		r := newTestFile(t, 2*chunkLen, Options{})
		r.img.before = func(did string, _ disk.Range) error {
			if did == op {
				return errBroken
			}
			return nil
		}
		if err := r.Finish(t.Context()); !errors.Is(err, errBroken) || !errors.Is(r.Err(), errBroken) || !errors.Is(r.Finish(t.Context()), errBroken) {
			t.Errorf("%s: %v, then %v", op, err, r.Err())
		}
	}
}

// A Finish that is canceled while it zeroes can be called again.
func TestCanceledFinishCanBeRepeated(t *testing.T) {
	r := newTestFile(t, 2*chunkLen, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	r.img.before = func(string, disk.Range) error { cancel(); return nil }
	if err := r.Finish(ctx); !errors.Is(err, context.Canceled) || r.Err() != nil {
		t.Errorf("%v, then %v", err, r.Err())
	}
	r.noError(r.Finish(t.Context()))
	r.wantImage(make([]byte, 2*chunkLen))
}

// fullLog is a log that cannot be written.
type fullLog struct{ *manifest.Log }

func (fullLog) Append(context.Context, []manifest.Run) error { return errBroken }

// If the manifest cannot be written, Finish fails with its error.
func TestFailedManifestFailsFinish(t *testing.T) {
	for _, data := range []bool{false, true} {
		log, _ := newLog(t, 2*chunkLen)
		img, pool := newImage(t, 2*chunkLen), NewPool(MinBudget)
		f, err := New(img, fullLog{log}, pool, Options{Fresh: true, Source: img, CheckpointEvery: never})
		if err != nil {
			t.Fatal(err)
		}
		r := &testFile{File: f, t: t, img: img, pool: pool}
		if data {
			r.mustWrite(repeatByte(chunkLen, 1), 0)
		}
		if err := r.Finish(t.Context()); !errors.Is(err, errBroken) || !errors.Is(r.Err(), errBroken) {
			t.Errorf("with data %v: %v, then %v", data, err, r.Err())
		}
		r.noError(r.Close())
	}
}

// Close returns the error of a failed sync, unless an earlier call returned it.
func TestFailedSyncFailsClose(t *testing.T) {
	for _, known := range []bool{false, true} {
		img := newImage(t, 2*chunkLen)
		log, _ := newLog(t, 2*chunkLen)
		pool := NewPool(MinBudget)
		f, err := New(img, log, pool, Options{Fresh: true, Source: img, CheckpointEvery: never})
		if err != nil {
			t.Fatal(err)
		}
		img.before = func(op string, _ disk.Range) error {
			if op == "sync" {
				return errBroken
			}
			return nil
		}
		r := &testFile{File: f, t: t, img: img, log: log, pool: pool}
		r.mustWrite(repeatByte(chunkLen, 1), 0)
		waitForFile(t, f, func() bool { return r.writers.busy == 0 && r.table.ripe.first == nil })
		if known {
			if err := f.Commit(t.Context()); !errors.Is(err, errBroken) {
				t.Errorf("commit: %v", err)
			}
		}
		if err := f.Close(); errors.Is(err, errBroken) == known {
			t.Errorf("Close, error returned before: %v: %v", known, err)
		}
		if log.Missing() != 2 {
			t.Error("the manifest lists chunks that were not synced")
		}
	}
}
