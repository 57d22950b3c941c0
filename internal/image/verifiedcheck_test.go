package image

import (
	"bytes"
	"context"
	"encoding/binary"
	"path/filepath"
	"slices"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/manifest"
)

// encodeNumbers returns a record with a valid checksum and the given numbers: base, number of runs of chunks, gap and
// count of each run, and the same for zeros.
func encodeNumbers(info manifest.Info, numbers ...uint64) []byte {
	b := append([]byte(provenMagic), identityOf(info)...)
	for _, n := range numbers {
		b = binary.AppendUvarint(b, n)
	}
	sum := manifest.HashOf(b)
	return append(b, sum[:]...)
}

// A record with a valid checksum is refused if a number does not fit the disk.
func TestRecordNumbersMustFitDisk(t *testing.T) {
	whole := provenInfo
	whole.Size = 300 * manifest.ChunkSize
	for _, c := range []struct {
		info    manifest.Info
		numbers []uint64
		proven  int64 // number of verified chunks; -1 if the record is refused
	}{
		{provenInfo, []uint64{0, 0, 0}, 0},
		{provenInfo, []uint64{0, 1, 0, 301, 0}, 301},
		{provenInfo, []uint64{0, 1, 300, 1, 0}, 1},
		{provenInfo, []uint64{0, 2, 0, 300, 0, 1, 0}, 301},
		{provenInfo, []uint64{0, 2, 0, 100, 100, 101, 0}, 201},
		{whole, []uint64{0, 1, 0, 300, 0}, 300},
		{whole, []uint64{0, 1, 0, 301, 0}, -1},            // one chunk too many
		{provenInfo, []uint64{0, 1, 0, 302, 0}, -1},       // the same with a short last chunk
		{provenInfo, []uint64{0, 1, 302, 1, 0}, -1},       // begins beyond the end
		{provenInfo, []uint64{0, 1, 301, 1, 0}, -1},       // begins at the end
		{provenInfo, []uint64{0, 1, 5, 0, 0}, -1},         // is empty
		{provenInfo, []uint64{0, 2, 0, 300, 0, 2, 0}, -1}, // second run too long
		{provenInfo, []uint64{0, 2, 299, 1, 1, 1, 0}, -1}, // second run beyond the end
		{provenInfo, []uint64{1 << 63, 0, 0}, -1},         // base is negative
		{provenInfo, []uint64{1<<63 - 1, 0, 0}, 0},
		{provenInfo, []uint64{0, 0, 0, 0}, -1}, // bytes after the end
		{provenInfo, []uint64{0, 0}, -1},       // no zeros
		{provenInfo, []uint64{0}, -1},          // no runs
		{provenInfo, nil, -1},                  // no base
		{provenInfo, []uint64{0, 1}, -1},       // no gap
		{provenInfo, []uint64{0, 1, 5}, -1},    // no count
	} {
		r, err := parseProven(encodeNumbers(c.info, c.numbers...), c.info)
		if (err != nil) != (c.proven < 0) {
			t.Errorf("%d: %v", c.numbers, err)
		}
		if err == nil {
			if n := (&VerifiedRecord{info: c.info, record: r}).Count(); n != c.proven {
				t.Errorf("%d: %d chunks are verified, want %d", c.numbers, n, c.proven)
			}
		}
	}
}

// noteZeros records each piece of a chunk that is zeros, and copyVerified copies these with the chunk.
func TestChunkZerosAreRecordedAndCopied(t *testing.T) {
	dir := t.TempDir()
	from, to := openProven(t, filepath.Join(dir, "from"), provenInfo), openProven(t, filepath.Join(dir, "to"), provenInfo)
	b := make([]byte, manifest.ChunkSize)
	b[3*pieceSize], b[6*pieceSize-1] = 1, 1
	from.zeros.Set(disk.Range{Len: provenInfo.Size}) // noteZeros clears the pieces with data
	from.noteZeros(provenInfo.Chunk(7), b)
	last := provenInfo.Chunk(300)
	clear(b[:last.Len])
	b[last.Len] = 1 // beyond the end of the disk
	from.zeros.Clear(last)
	from.noteZeros(last, b)
	for _, p := range []struct {
		chunk   int64
		zeros   []int64 // pieces of zeros
		nonzero []int64 // pieces with data
	}{{7, []int64{0, 1, 2, 4, 6, 15}, []int64{3, 5}}, {300, []int64{0}, nil}} {
		to.copyVerified(p.chunk, from)
		for _, of := range []*VerifiedRecord{from, to} {
			for _, n := range p.zeros {
				if !of.zeros.Has(p.chunk*manifest.ChunkSize + n*pieceSize) {
					t.Errorf("chunk %d: piece %d is not zeros", p.chunk, n)
				}
			}
			for _, n := range p.nonzero {
				if of.zeros.Has(p.chunk*manifest.ChunkSize + n*pieceSize) {
					t.Errorf("chunk %d: piece %d is zeros", p.chunk, n)
				}
			}
		}
		if !to.Has(p.chunk) || to.zeros.Has(8*manifest.ChunkSize) {
			t.Errorf("chunk %d is not verified, or chunk 8 has zeros", p.chunk)
		}
	}
}

// testDisk is a disk with given content and extents. It counts the bytes that are read.
type testDisk struct {
	disk.Null
	content []byte
	extents func(disk.Range) []disk.Extent
	read    int64
}

func (f *testDisk) ReadAt(_ context.Context, p []byte, off int64) error {
	f.read += int64(len(p))
	copy(p, f.content[off:])
	return nil
}

func (f *testDisk) Extents(_ context.Context, r disk.Range) ([]disk.Extent, error) {
	return f.extents(r), nil
}

// Only a chunk that is zeros in the manifest and one hole in the image is verified without a read.
func TestOnlyHolesAreVerifiedWithoutARead(t *testing.T) {
	info := manifest.Info{Disk: "2000", Size: 2 * manifest.ChunkSize, Source: "run 7"}
	hole := func(r disk.Range) []disk.Extent { return []disk.Extent{{Range: r, Kind: disk.Zero}} }
	data := func(r disk.Range) []disk.Extent { return []disk.Extent{{Range: r, Kind: disk.Data}} }
	parts := func(r disk.Range) []disk.Extent {
		half := r.Len / 2
		return []disk.Extent{{Range: disk.Range{Off: r.Off, Len: half}, Kind: disk.Zero}, {Range: disk.Range{Off: r.Off + half, Len: half}, Kind: disk.Data}}
	}
	zeros, ones := make([]byte, info.Size), bytes.Repeat([]byte{1}, int(info.Size))
	for name, c := range map[string]struct {
		listed, content []byte
		extents         func(disk.Range) []disk.Extent
		read            int64
		bad             bool
	}{
		"a hole":                      {zeros, zeros, hole, 0, false},
		"zeros that take space":       {zeros, zeros, data, manifest.ChunkSize, false},
		"hole and data":               {zeros, zeros, parts, manifest.ChunkSize, false},
		"data in the place of zeros":  {zeros, ones, data, manifest.ChunkSize, true},
		"data behind a hole":          {zeros, ones, parts, manifest.ChunkSize, true},
		"data":                        {ones, ones, data, manifest.ChunkSize, false},
		"a hole in the place of data": {ones, zeros, hole, manifest.ChunkSize, true},
	} {
		path := filepath.Join(t.TempDir(), "manifest")
		log, err := manifest.Create(path, info)
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		if err := log.Append(t.Context(), []manifest.Run{{First: 1, Hashes: []manifest.Hash{manifest.HashOf(c.listed[:manifest.ChunkSize])}}}); err != nil {
			t.Fatal(err)
		}
		src := &testDisk{Null: disk.NewNull(info.Size), content: c.content, extents: c.extents}
		p := openProven(t, path, info)
		var report WrittenReport
		for range 2 { // a verified chunk is not read again
			if err := p.verifyMissing(t.Context(), log, src, &report, func(manifest.Progress) {}); err != nil {
				t.Fatal(err)
			}
			if c.bad {
				break
			}
		}
		if src.read != c.read || report.Read != c.read || (len(report.Bad) > 0) != c.bad || p.Has(1) == c.bad || p.Has(0) {
			t.Errorf("%s: %d bytes read, report %+v, verified %v %v", name, src.read, report, p.Has(0), p.Has(1))
		}
	}
}

// Chunks that are dropped from the manifest are no longer verified. Their neighbours are.
func TestDroppedChunksAreNotVerified(t *testing.T) {
	path := filepath.Join(t.TempDir(), "manifest")
	log, err := manifest.Create(path, provenInfo)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if err := log.Append(t.Context(), []manifest.Run{{First: 0, Zeros: 10}}); err != nil {
		t.Fatal(err)
	}
	p := openProven(t, path, provenInfo)
	for c := range int64(10) {
		p.setVerified(c)
	}
	ledger, err := p.Ledger(log)
	if err != nil {
		t.Fatal(err)
	}
	if err := ledger.Drop(3, 2); err != nil {
		t.Fatal(err)
	}
	for c := range int64(10) {
		if want := c != 3 && c != 4; p.Has(c) != want || log.Has(c) != want {
			t.Errorf("chunk %d: verified %v, listed %v", c, p.Has(c), log.Has(c))
		}
	}
}

// randomChunks returns the requested number of chunks, all from the listed ones.
func TestRandomSampleUsesListedChunks(t *testing.T) {
	info := manifest.Info{Disk: "2000", Size: 1 << 40, Source: "run 7"}
	log, err := manifest.Create(filepath.Join(t.TempDir(), "manifest"), info)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	half := info.Chunks() / 2
	if err := log.Append(t.Context(), []manifest.Run{{First: 0, Zeros: half}}); err != nil {
		t.Fatal(err)
	}
	j := Job{Info: info, Seed: 4}
	got := j.randomChunks(log, 16)
	if len(got) != 16 || !slices.IsSorted(got) || got[15] >= half {
		t.Errorf("chunks %d, want 16 of the first %d", got, half)
	}
}
