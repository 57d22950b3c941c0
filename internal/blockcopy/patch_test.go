package blockcopy

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/bitmap"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/test/lane"
)

// memDisk is a disk in memory that records its reads.
type memDisk struct {
	bytes []byte
	mu    sync.Mutex
	read  []disk.Range
}

func (s *memDisk) Size() int64       { return int64(len(s.bytes)) }
func (s *memDisk) Hints() disk.Hints { return disk.Hints{Streams: 3} }
func (s *memDisk) Close() error      { return nil }

func (s *memDisk) ReadAt(ctx context.Context, p []byte, off int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read = append(s.read, disk.Range{Off: off, Len: int64(len(p))})
	copy(p, s.bytes[off:])
	return ctx.Err()
}

// Extents reports each grain as zeros or data, like an exact map of the disk.
func (s *memDisk) Extents(_ context.Context, r disk.Range) (list []disk.Extent, err error) {
	for off := r.Off; off < r.End(); off = nextGrain(off) {
		g := disk.Range{Off: off, Len: min(nextGrain(off), r.End()) - off}
		e := disk.Extent{Range: g, Kind: disk.Zero}
		if !bytes.Equal(s.bytes[g.Off:g.End()], zeros[:g.Len]) {
			e.Kind = disk.Data
		}
		list = append(list, e)
	}
	return list, nil
}

// diskHistory is a disk before and after changes by a guest.
type diskHistory struct {
	old, new *memDisk
	changed  *bitmap.Bitmap // changed grains
	grains   int64          // bytes of changed grains
}

// newHistory changes random grains, on average one of every grains. Some become zeros, and some get the same
// content.
func newHistory(seed uint64, size int64, every int) *diskHistory {
	rnd := rand.New(rand.NewPCG(seed, 1))
	h := &diskHistory{old: &memDisk{bytes: make([]byte, size)}, new: &memDisk{bytes: make([]byte, size)}, changed: bitmap.New(size, PatchGrain)}
	noise := rand.NewChaCha8([32]byte{byte(seed)})
	fill := func(b []byte) { noise.Read(b) }
	for off := int64(0); off < size; off = nextGrain(off) {
		r := disk.Range{Off: off, Len: min(nextGrain(off), size) - off}
		if rnd.IntN(3) > 0 {
			fill(h.old.bytes[r.Off:r.End()])
		}
		copy(h.new.bytes[r.Off:r.End()], h.old.bytes[r.Off:r.End()])
		if rnd.IntN(every) > 0 {
			continue
		}
		h.changed.Set(r)
		h.grains += r.Len
		switch rnd.IntN(4) {
		case 0:
			clear(h.new.bytes[r.Off:r.End()])
		case 1: // the same content
		default:
			fill(h.new.bytes[r.Off+r.Len/3 : r.End()])
		}
	}
	return h
}

// differing returns the length of the chunks whose content differs between the states.
func (h *diskHistory) differing(log *manifest.Log) (n int64) {
	for c := range log.Chunks() {
		if hashAt(h.old.bytes, c) != hashAt(h.new.bytes, c) {
			n += log.Info().Chunk(c).Len
		}
	}
	return n
}

// ReadAt makes memImage a Reader.
func (m *memImage) ReadAt(_ context.Context, p []byte, off int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.countOp("read"); err != nil {
		return err
	}
	copy(p, m.now[off:])
	return nil
}

const patchSize = 12<<20 + 3*disk.SectorSize

func TestPatchReadsAndWritesChangedGrains(t *testing.T) {
	for seed := range uint64(8) {
		h := newHistory(seed, patchSize, 9)
		img := newMemImage(patchSize)
		log, _ := newLog(t, patchSize)
		if _, err := Copy(t.Context(), h.old, img, Options{Manifest: log}); err != nil {
			t.Fatal(err)
		}
		img.writes, img.zeroed = 0, 0
		var last Progress
		var paced countingPacer
		res, err := Patch(t.Context(), h.new, img, img, h.changed, Options{Manifest: log, Pace: paced.pace, Progress: func(p Progress) { last = p }})
		if err != nil {
			t.Fatal(err)
		}
		if paced.bytes.Load() != res.Read {
			t.Errorf("seed %d: requested %d bytes from the budget and read %d", seed, paced.bytes.Load(), res.Read)
		}
		checkImage(t, img, log, h.new)
		checkHashes(t, log, h.new)
		if res.Read > h.grains || res.Written != img.writes || img.writes+img.zeroed != h.grains {
			t.Errorf("seed %d: read %d, wrote %d and zeroed %d bytes for %d changed bytes", seed, res.Read, img.writes, img.zeroed, h.grains)
		}
		if res.Done+res.Skipped != patchSize || last.Done+last.Skipped != patchSize {
			t.Errorf("seed %d: result %+v, progress at the end %+v", seed, res.Progress, last)
		}
	}
}

// With Compare, Copy reads all data and writes only the chunks that differ. A crash leaves no wrong chunk in the
// manifest.
func TestCompareWritesOnlyDifferingChunks(t *testing.T) {
	var wrote int64 // by the copies after a crash
	for seed := range uint64(12) {
		h := newHistory(seed, patchSize, 60)
		img := newMemImage(patchSize)
		log, path := newLog(t, patchSize)
		if _, err := Copy(t.Context(), h.old, img, Options{Manifest: log}); err != nil {
			t.Fatal(err)
		}
		killed, at := errors.New("killed"), img.ops+int(seed)
		img.fail = func(_ string, n int) error {
			if n > at {
				return killed
			}
			return nil
		}
		if _, err := Copy(t.Context(), h.new, img, Options{Manifest: log, Compare: true}); err != nil && !errors.Is(err, killed) {
			t.Fatal(err)
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		img.crash()
		log, err := manifest.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		checkHashesOfEither(t, img, log, h.old, h.new)
		for i, most := range []int64{h.differing(log), 0} { // the second copy finds no difference
			img.writes, img.zeroed = 0, 0
			if _, err := Copy(t.Context(), h.new, img, Options{Manifest: log, Compare: true}); err != nil {
				t.Fatal(err)
			}
			if img.writes+img.zeroed > most {
				t.Errorf("seed %d, copy %d: wrote %d and zeroed %d bytes, want at most %d", seed, i, img.writes, img.zeroed, most)
			}
			wrote += img.writes + img.zeroed
		}
		checkImage(t, img, log, h.new)
		checkHashes(t, log, h.new)
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if wrote == 0 {
		t.Error("no copy after a crash wrote anything")
	}
}

// Patch copies the chunks that an interrupted Copy did not reach completely from the later state.
func TestPatchCompletesACopy(t *testing.T) {
	h := newHistory(20, patchSize, 5)
	img := newMemImage(patchSize)
	log, _ := newLog(t, patchSize)
	broken := errors.New("broken")
	img.fail = func(op string, n int) error {
		if op == "write" && n > 60 {
			return broken
		}
		return nil
	}
	_, err := Copy(t.Context(), h.old, img, Options{Manifest: log, Window: 1 << 20, Readers: 1, Writers: 1})
	if !errors.Is(err, broken) || log.Complete() || log.Missing() == log.Chunks() {
		t.Fatalf("%v, %d chunks missing", err, log.Missing())
	}
	img.fail = nil
	if _, err := Patch(t.Context(), h.new, img, img, h.changed, Options{Manifest: log}); err != nil {
		t.Fatal(err)
	}
	checkImage(t, img, log, h.new)
	checkHashes(t, log, h.new)
}

// After a crash of Patch, each chunk in the manifest equals the image, and the old or the new state. Another Patch with
// the same changes completes the image.
func TestPatchSurvivesACrashAnywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("crashes at every operation")
	}
	step := map[bool]uint64{false: 2, true: 1}[lane.Slow]
	for seed := uint64(0); seed < 40; seed += step {
		h := newHistory(seed, patchSize, 9)
		img := newMemImage(patchSize)
		log, path := newLog(t, patchSize)
		o := Options{Manifest: log, Window: 1 << 20, Readers: 2, Writers: 2, CheckpointBytes: 1 << 20}
		if _, err := Copy(t.Context(), h.old, img, o); err != nil {
			t.Fatal(err)
		}
		killed, at := errors.New("killed"), img.ops+int(seed)*4
		img.fail = func(_ string, n int) error {
			if n > at {
				return killed
			}
			return nil
		}
		_, err := Patch(t.Context(), h.new, img, img, h.changed, o)
		if err != nil && !errors.Is(err, killed) {
			t.Fatal(err)
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		img.crash()
		log, err = manifest.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		checkHashesOfEither(t, img, log, h.old, h.new)
		o.Manifest = log
		if _, err := Patch(t.Context(), h.new, img, img, h.changed, o); err != nil {
			t.Fatal(err)
		}
		checkImage(t, img, log, h.new)
		checkHashes(t, log, h.new)
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// checkHashes fails the test if the manifest does not have the hash of every chunk of s.
func checkHashes(t *testing.T, log *manifest.Log, s *memDisk) {
	t.Helper()
	for c := range log.Chunks() {
		h, ok, err := log.Hash(c)
		if err != nil || !ok || h != hashAt(s.bytes, c) {
			t.Fatalf("chunk %d: hash %v, %v, %v", c, h, ok, err)
		}
	}
}

// checkHashesOfEither fails the test if a chunk in the manifest differs from the image, or from both
// states.
func checkHashesOfEither(t *testing.T, img *memImage, log *manifest.Log, states ...*memDisk) {
	t.Helper()
	for c := range log.Chunks() {
		h, ok, err := log.Hash(c)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			continue
		}
		if h != hashAt(img.now, c) {
			t.Fatalf("chunk %d of the image differs from the manifest", c)
		}
		if h != hashAt(states[0].bytes, c) && h != hashAt(states[1].bytes, c) {
			t.Fatalf("chunk %d differs from both states", c)
		}
	}
}

func hashAt(b []byte, chunk int64) manifest.Hash {
	off := chunk * manifest.ChunkSize
	return manifest.HashOf(b[off:min(off+manifest.ChunkSize, int64(len(b)))])
}

// Patch handles more chunks than one batch contains, each of them once.
func TestPatchWorksInBatches(t *testing.T) {
	const size = (patchBatch + 300) << 20
	old, later := disk.NewSparsePattern(size, 0.01, 1), disk.NewSparsePattern(size, 0.01, 2)
	log, _ := newLog(t, size)
	check := &checkedImage{Target: disk.NewNull(size), source: old}
	if _, err := Copy(t.Context(), old, check, Options{Manifest: log}); err != nil {
		t.Fatal(err)
	}
	changed := bitmap.New(size, PatchGrain)
	changed.Set(disk.Range{Len: size})
	res, err := Patch(t.Context(), later, check, check, changed, Options{Manifest: log})
	if err != nil || res.Done != size || res.Skipped != 0 {
		t.Errorf("%+v, %v", res.Progress, err)
	}
}

// checkedImage is a target whose reads return the data of source.
type checkedImage struct {
	disk.Target
	source disk.Source
}

func (c *checkedImage) ReadAt(ctx context.Context, p []byte, off int64) error {
	return c.source.ReadAt(ctx, p, off)
}

// If the unchanged part of a changed chunk is corrupted in the image, Patch copies the chunk from the source. It does
// not read unchanged chunks, so it does not detect corruption there.
func TestPatchReplacesCorruptedPartOfChangedChunk(t *testing.T) {
	h := newHistory(3, patchSize, 1<<30) // no changes
	img := newMemImage(patchSize)
	log, _ := newLog(t, patchSize)
	if _, err := Copy(t.Context(), h.old, img, Options{Manifest: log}); err != nil {
		t.Fatal(err)
	}
	h.new.bytes[5<<20+9] ^= 1
	h.changed.Set(disk.Range{Off: 5 << 20, Len: PatchGrain})
	for _, off := range []int64{6<<20 - 1, 8<<20 + 7} { // one in the changed chunk, one in another
		img.now[off] ^= 1
	}
	res, err := Patch(t.Context(), h.new, img, img, h.changed, Options{Manifest: log})
	if err != nil || res.Mismatched != 1 || res.Read != manifest.ChunkSize {
		t.Fatalf("%d mismatched chunks, %d bytes read, %v", res.Mismatched, res.Read, err)
	}
	img.now[8<<20+7] ^= 1
	checkImage(t, img, log, h.new)
	checkHashes(t, log, h.new)
}

// Patch of a disk that did not change still completes the copy of an earlier attempt.
func TestPatchWithoutChangesCompletesACopy(t *testing.T) {
	h := newHistory(5, patchSize, 1<<30) // no changes
	img := newMemImage(patchSize)
	log, _ := newLog(t, patchSize)
	if _, err := Copy(t.Context(), h.old, img, Options{Manifest: log}); err != nil {
		t.Fatal(err)
	}
	if err := log.DropAll([]int64{2, 3, 12}); err != nil {
		t.Fatal(err)
	}
	clear(img.now[2<<20 : 4<<20])
	if _, err := Patch(t.Context(), h.new, img, img, h.changed, Options{Manifest: log}); err != nil {
		t.Fatal(err)
	}
	checkImage(t, img, log, h.new)
	checkHashes(t, log, h.new)
}

// For a partly changed chunk, Patch reads the image once, and only the changed grains of the source. It writes
// neighbouring grains together.
func TestPatchReadsAChunkOfTheImageOnce(t *testing.T) {
	const size = 3<<20 + 300<<10 + 512
	h := newHistory(9, size, 1<<30)
	img := newMemImage(size)
	log, _ := newLog(t, size)
	if _, err := Copy(t.Context(), h.old, img, Options{Manifest: log}); err != nil {
		t.Fatal(err)
	}
	changed := []disk.Range{
		{Off: 64 << 10, Len: 64 << 10}, {Off: 5 * 64 << 10, Len: 3 * 64 << 10}, {Off: 15 * 64 << 10, Len: 64 << 10},
		{Off: 2 << 20, Len: 1 << 20},
		{Off: 3<<20 + 128<<10, Len: 64 << 10},
	}
	grains := int64(0)
	for _, r := range changed {
		h.changed.Set(r)
		grains += r.Len
		for off := r.Off; off < r.End(); off++ {
			h.new.bytes[off] = byte(off) | 1
		}
	}
	ops := map[string]int{}
	img.fail = func(op string, _ int) error { ops[op]++; return nil }
	res, err := Patch(t.Context(), h.new, img, img, h.changed, Options{Manifest: log})
	if err != nil || res.Mismatched != 0 || res.Read != grains || res.Written != grains {
		t.Errorf("%+v, %v; want %d bytes", res, err, grains)
	}
	if ops["read"] != 2 || ops["write"] != 5 {
		t.Errorf("%d reads and %d writes of the image, want one read for each of two chunks and one write for each of five ranges", ops["read"], ops["write"])
	}
	checkImage(t, img, log, h.new)
	checkHashes(t, log, h.new)
}

// Patch keeps a limited number of image chunks in memory. It releases the chunks that are written, and no
// others, because other readers still need them.
func TestChunksOfTheImageInMemory(t *testing.T) {
	const size = (maxImageChunks + 8) << 20
	img := &checkedImage{Target: disk.NewNull(size), source: disk.NewPattern(size)}
	p := &patch{Source: disk.NewPattern(size), image: img, changed: bitmap.New(size, PatchGrain), imageChunks: map[int64][]byte{}}
	for c := range int64(maxImageChunks + 8) {
		if b, err := p.imageChunk(t.Context(), c); err != nil || len(b) != manifest.ChunkSize {
			t.Fatalf("chunk %d: %d bytes, %v", c, len(b), err)
		}
		if n := min(int(c)+1, maxImageChunks); len(p.imageChunks) != n {
			t.Fatalf("%d chunks in memory after %d, want %d", len(p.imageChunks), c+1, n)
		}
	}
	p.imageChunks = map[int64][]byte{}
	for c := range int64(5) {
		if _, err := p.imageChunk(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	p.releaseChunks(disk.Range{Off: 1 << 20, Len: 2 << 20})
	for c := range int64(5) {
		if kept := p.imageChunks[c] != nil; kept != (c != 1 && c != 2) {
			t.Errorf("chunk %d is in memory: %v", c, kept)
		}
	}
	if len(p.idle) != 2 {
		t.Errorf("%d buffers can be used again, want 2", len(p.idle))
	}
}

// Patch reads a corrupted chunk of the image from the source, and unchanged bytes next to it from the image. If the
// source cannot be read there, Patch fails.
func TestPatchReadsCorruptChunkFromSource(t *testing.T) {
	for _, broken := range []bool{false, true} {
		h := newHistory(3, patchSize, 1<<30) // no changes
		img := newMemImage(patchSize)
		log, _ := newLog(t, patchSize)
		if _, err := Copy(t.Context(), h.old, img, Options{Manifest: log}); err != nil {
			t.Fatal(err)
		}
		for _, off := range []int64{5 << 20, 6<<20 + 512<<10} { // between them is one run of unchanged bytes
			h.new.bytes[off] ^= 1
			h.changed.Set(disk.Range{Off: off, Len: PatchGrain})
		}
		img.now[5<<20+200<<10] ^= 1
		src, bad := disk.Source(h.new), errors.New("bad sector")
		if broken {
			src = badSectorSource{Source: h.new, at: 6<<20 - 1, err: bad} // read only because the chunk is corrupted
		}
		res, err := Patch(t.Context(), src, img, img, h.changed, Options{Manifest: log, Window: 4 << 20, Readers: 1})
		if broken {
			if !errors.Is(err, bad) || log.Has(5) {
				t.Errorf("%v, the corrupted chunk is in the manifest: %v", err, log.Has(5))
			}
			continue
		}
		if err != nil || res.Mismatched != 1 {
			t.Fatalf("%d mismatched chunks, %v", res.Mismatched, err)
		}
		checkImage(t, img, log, h.new)
		checkHashes(t, log, h.new)
	}
}
