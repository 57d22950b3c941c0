package manifest

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// A chunkIndex of several segments has the same content as a plain list of places after random records: long and
// short, overlapping, until segments list each chunk, and until their runs are joined again.
func TestChunkIndexAgainstAList(t *testing.T) {
	for _, shape := range []struct{ most, records int }{{3, 9000}, {200, 3000}, {3 * segmentChunks, 400}} {
		t.Run(fmt.Sprintf("up to %d chunks", shape.most), func(t *testing.T) {
			const chunks = 3*segmentChunks + 77
			rng := rand.New(rand.NewPCG(1, uint64(shape.most)))
			s, list, off := newChunkIndex(100, chunks), make([]uint32, chunks), int64(100)
			for i := range shape.records {
				r := record{kind: kind(1 + rng.IntN(3)), first: uint32(rng.IntN(chunks)), off: off}
				r.count = uint32(1 + rng.IntN(min(shape.most, chunks-int(r.first))))
				off += int64(r.count) * hashLen
				s.applyRecord(r)
				applyToList(list, r)
				if i%(shape.records/20) == 0 {
					compareIndex(t, s, list)
				}
			}
			all := record{kind: kindZeros, count: chunks}
			s.applyRecord(all)
			applyToList(list, all)
			compareIndex(t, s, list)
		})
	}
}

// applyToList applies a record to a list of places, like applyRecord.
func applyToList(list []uint32, r record) {
	for i := range r.count {
		switch r.kind {
		case kindHashes:
			list[r.first+i] = hashPlace + uint32((r.off-100+int64(i)*hashLen)/placeUnit)
		case kindZeros:
			list[r.first+i] = zeroPlace
		case kindDrop:
			list[r.first+i] = noPlace
		}
	}
}

func compareIndex(t *testing.T, s *chunkIndex, list []uint32) {
	t.Helper()
	missing := int64(0)
	for c, want := range list {
		at, n := s.pieceAt(uint32(c))
		if at != want {
			t.Fatalf("chunk %d has place %d, want %d", c, at, want)
		}
		for i := range n {
			if list[c+int(i)] != placeAfter(want, i) {
				t.Fatalf("piece of %d chunks from %d: the chunk after %d does not continue it", n, c, i)
			}
		}
		if want == noPlace {
			missing++
			continue
		}
		if r := s.runAt(uint32(c)); c%97 == 0 && r.end() < s.chunks && r.count < maxHashes && list[r.end()] == placeAfter(want, r.count) {
			t.Fatalf("the run from %d ends at %d, but the next chunk continues it", c, r.end())
		}
	}
	if s.missing != missing {
		t.Fatalf("%d chunks are missing, want %d", s.missing, missing)
	}
}

// The index of a disk with long runs is as small as the package comment promises.
func TestChunkIndexIsSmallForLongRuns(t *testing.T) {
	const chunks = 62 << 20 // 62 TiB
	s := newChunkIndex(0, chunks)
	for c := uint32(0); c < chunks; c += 1600 {
		s.applyRecord(record{kind: kindHashes, first: c, count: 16, off: int64(c) * hashLen / 100})
		s.applyRecord(record{kind: kindZeros, first: c + 16, count: min(1584, chunks-c-16)})
	}
	pieces := 0
	for _, seg := range s.segments {
		if seg.places != nil {
			t.Fatal("a segment lists each chunk")
		}
		pieces += len(seg.pieces)
	}
	if most := len(s.segments) * 7; pieces > most {
		t.Errorf("%d pieces, want at most %d", pieces, most)
	}
}
