package manifest

import "iter"

// safe is which chunks are safe, and where the file has their hashes, whatever order the
// records came in: at most 4 bytes per chunk, and much less for the long runs that most
// disks are.
type chunkIndex struct {
	start    int64 // start of the first record in the file
	chunks   uint32
	segments []segment
	missing  int64    // chunks without a place
	recent   []record // the newest that gave a place to chunks, oldest first
}

// A place is empty, zeros, or a hash at hashPlace + n, n placeUnits after the start: the sizes of
// records and hashes are multiples of the unit. That is enough for maxRecords bytes.
const (
	noPlace    uint32 = 0
	zeroPlace  uint32 = 1
	hashPlace  uint32 = 2
	placeUnit         = 4
	maxRecords        = (1<<32 - int64(hashPlace)) * placeUnit

	hashStep = uint32(hashLen / placeUnit) // between the places of two hashes of a record
)

// placeAfter returns the place of the n-th chunk after one at a place, if they continue
// one another.
func placeAfter(at, n uint32) uint32 {
	if at < hashPlace {
		return at
	}
	return at + n*hashStep
}

// maxRecent is how many of the newest records are remembered.
const maxRecent = 8

func newChunkIndex(start, chunks int64) *chunkIndex {
	n := (chunks + segmentChunks - 1) / segmentChunks
	return &chunkIndex{start: start, chunks: uint32(chunks), segments: make([]segment, n), missing: chunks}
}

// applyRecord takes a record that is in the file into account. Later records win.
func (s *chunkIndex) applyRecord(r record) {
	at := noPlace
	switch r.kind {
	case kindHashes:
		at = hashPlace + uint32((r.off-s.start)/placeUnit)
	case kindZeros:
		at = zeroPlace
	case kindDrop:
	case kindSeal:
		return
	}
	for c := r.first; c < r.end(); {
		n := min(r.end()-c, segmentChunks-c%segmentChunks)
		s.missing += s.segments[c/segmentChunks].setPlaces(c%segmentChunks, n, placeAfter(at, c-r.first))
		c += n
	}
	if r.kind != kindDrop {
		s.recent = append(s.recent[max(0, len(s.recent)-maxRecent+1):], r)
	}
}

func (s *chunkIndex) has(chunk int64) bool {
	if chunk < 0 || chunk >= int64(s.chunks) {
		return false
	}
	return s.segments[chunk/segmentChunks].placeOf(uint32(chunk%segmentChunks)) != noPlace
}

// pieceAt returns the place of a chunk, and how many chunks from it on continue one another
// within its segment and the disk.
func (s *chunkIndex) pieceAt(chunk uint32) (at, n uint32) {
	at, n = s.segments[chunk/segmentChunks].pieceAt(chunk % segmentChunks)
	return at, min(n, s.chunks-chunk)
}

// runAt returns the longest run of safe chunks from first on that one record could hold:
// zeros, or up to maxHashes hashes that follow each other in the file.
func (s *chunkIndex) runAt(first uint32) record {
	at, n := s.pieceAt(first)
	r := record{kind: kindZeros, first: first, count: n}
	limit := s.chunks - first
	if at != zeroPlace {
		r.kind, r.off = kindHashes, s.start+int64(at-hashPlace)*placeUnit
		limit = min(limit, maxHashes)
	}
	for r.count < limit {
		next, n := s.pieceAt(r.end())
		if next != placeAfter(at, r.count) {
			break
		}
		r.count += n
	}
	r.count = min(r.count, limit)
	return r
}

// inOrder yields the chunks that are safe, as runs in chunk order.
func (s *chunkIndex) inOrder() iter.Seq[record] {
	return func(yield func(record) bool) {
		for c := uint32(0); c < s.chunks; {
			if at, n := s.pieceAt(c); at == noPlace {
				c += n
				continue
			}
			r := s.runAt(c)
			if !yield(r) {
				return
			}
			c = r.end()
		}
	}
}
