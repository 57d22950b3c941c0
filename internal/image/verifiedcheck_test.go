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

// recordOf is a record with a valid sum and these numbers: base, number of runs of chunks, gap and
// count of each, and the same of zeros.
func recordOf(info manifest.Info, numbers ...uint64) []byte {
	b := append([]byte(provenMagic), identityOf(info)...)
	for _, n := range numbers {
		b = binary.AppendUvarint(b, n)
	}
	sum := manifest.HashOf(b)
	return append(b, sum[:]...)
}

// A record with a valid sum is still refused unless every number fits the disk.
func TestNumbersOfARecord(t *testing.T) {
	whole := provenInfo
	whole.Size = 300 * manifest.ChunkSize
	for _, c := range []struct {
		info    manifest.Info
		numbers []uint64
		proven  int64 // chunks; -1 if the record is refused
	}{
		{provenInfo, []uint64{0, 0, 0}, 0},
		{provenInfo, []uint64{0, 1, 0, 301, 0}, 301},
		{provenInfo, []uint64{0, 1, 300, 1, 0}, 1},
		{provenInfo, []uint64{0, 2, 0, 300, 0, 1, 0}, 301},
		{provenInfo, []uint64{0, 2, 0, 100, 100, 101, 0}, 201},
		{whole, []uint64{0, 1, 0, 300, 0}, 300},
		{whole, []uint64{0, 1, 0, 301, 0}, -1},            // one chunk too many
		{provenInfo, []uint64{0, 1, 0, 302, 0}, -1},       // the same, of a disk whose last chunk is short
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
		r, err := parseProven(recordOf(c.info, c.numbers...), c.info)
		if (err != nil) != (c.proven < 0) {
			t.Errorf("%d: %v", c.numbers, err)
		}
		if err == nil {
			if n := (&VerifiedRecord{info: c.info, record: r}).Count(); n != c.proven {
				t.Errorf("%d: %d chunks are proven, want %d", c.numbers, n, c.proven)
			}
		}
	}
}

// Pieces of a chunk are noted as zeros one by one, and taken over with the chunk.
func TestZerosOfAChunk(t *testing.T) {
	dir := t.TempDir()
	from, to := openProven(t, filepath.Join(dir, "from"), provenInfo), openProven(t, filepath.Join(dir, "to"), provenInfo)
	b := make([]byte, manifest.ChunkSize)
	b[3*pieceSize], b[6*pieceSize-1] = 1, 1
	from.zeros.Set(disk.Range{Len: provenInfo.Size}) // cleared where there is data
	from.noteZeros(provenInfo.Chunk(7), b)
	last := provenInfo.Chunk(300)
	clear(b[:last.Len])
	b[last.Len] = 1 // beyond the end of the disk
	from.zeros.Clear(last)
	from.noteZeros(last, b)
	for _, p := range []struct {
		chunk   int64
		zeros   []int64 // pieces
		nonzero []int64
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
			t.Errorf("chunk %d is not proven, or more than it", p.chunk)
		}
	}
}

// fixture is a disk with given content and extents, which counts the bytes that are read.
type fixture struct {
	disk.Null
	content []byte
	extents func(disk.Range) []disk.Extent
	read    int64
}

func (f *fixture) ReadAt(_ context.Context, p []byte, off int64) error {
	f.read += int64(len(p))
	copy(p, f.content[off:])
	return nil
}

func (f *fixture) Extents(_ context.Context, r disk.Range) ([]disk.Extent, error) {
	return f.extents(r), nil
}

// Only a chunk that is zeros in the manifest and one hole in the image is proven unread.
func TestOnlyHolesAreProvenUnread(t *testing.T) {
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
		src := &fixture{Null: disk.NewNull(info.Size), content: c.content, extents: c.extents}
		p := openProven(t, path, info)
		var report WrittenReport
		for range 2 { // a chunk that is proven is not read again
			if err := p.verifyMissing(t.Context(), log, src, &report, func(manifest.Progress) {}); err != nil {
				t.Fatal(err)
			}
			if c.bad {
				break
			}
		}
		if src.read != c.read || report.Read != c.read || (len(report.Bad) > 0) != c.bad || p.Has(1) == c.bad || p.Has(0) {
			t.Errorf("%s: %d bytes read, report %+v, proven %v %v", name, src.read, report, p.Has(0), p.Has(1))
		}
	}
}

// What is dropped from the manifest is not proven, and its neighbours are.
func TestDroppedChunksAreNotProven(t *testing.T) {
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
			t.Errorf("chunk %d: proven %v, listed %v", c, p.Has(c), log.Has(c))
		}
	}
}

// A sample has as many chunks as were asked for, and all of them are listed.
func TestSampleIsOfListedChunks(t *testing.T) {
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
		t.Errorf("%d, want 16 of the first %d chunks", got, half)
	}
}
