package manifest

import "iter"

// A chunkIndex records which chunks are durable, and the positions of their hashes in the file. It
// needs at most 4 bytes for a chunk, and much less for the long runs of most disks. It is not safe for
// concurrent use.
type chunkIndex struct {
	start    int64     // offset of the first record in the file
	chunks   uint32    // number of chunks of the disk
	segments []segment // places of the chunks, segmentChunks in each segment
	missing  int64     // number of chunks without a place
	recent   []record  // newest records that added chunks, oldest first; at most maxRecent
}

// A place is empty, zeros, or a hash at hashPlace + n, n placeUnits after the start: the sizes of
// records and hashes are multiples of the unit. That is enough for maxRecords bytes.
const (
	noPlace   uint32 = 0 // the chunk is missing
	zeroPlace uint32 = 1 // the chunk is all zeros and has no hash in the file
	hashPlace uint32 = 2 // first place of a hash; place hashPlace + n is n placeUnits after start
	placeUnit        = 4 // unit of places in bytes. The sizes of records and hashes are multiples of it.
	// largest size of all records in bytes, so that every place fits into 32 bits
	maxRecords = (1<<32 - int64(hashPlace)) * placeUnit

	hashStep = uint32(hashLen / placeUnit) // difference between the places of two neighbouring hashes of a record
)

// placeAfter returns the place of the n-th chunk after one with place at, if both belong to the same
// run.
func placeAfter(at, n uint32) uint32 {
	if at < hashPlace {
		return at
	}
	return at + n*hashStep
}

// maxRecent is the number of newest records that are remembered for samples.
const maxRecent = 8

// newChunkIndex returns an index in which all chunks are missing. start is the offset of the first
// record.
func newChunkIndex(start, chunks int64) *chunkIndex {
	n := (chunks + segmentChunks - 1) / segmentChunks
	return &chunkIndex{start: start, chunks: uint32(chunks), segments: make([]segment, n), missing: chunks}
}

// applyRecord updates the index with a record of the file. It replaces the places of its chunks.
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

// has reports whether a chunk is durable. It returns false for chunks outside the disk.
func (s *chunkIndex) has(chunk int64) bool {
	if chunk < 0 || chunk >= int64(s.chunks) {
		return false
	}
	return s.segments[chunk/segmentChunks].placeOf(uint32(chunk%segmentChunks)) != noPlace
}

// pieceAt returns the place of a chunk, and the number of chunks from it on that continue each other.
// The number ends at the segment or the disk.
func (s *chunkIndex) pieceAt(chunk uint32) (at, n uint32) {
	at, n = s.segments[chunk/segmentChunks].pieceAt(chunk % segmentChunks)
	return at, min(n, s.chunks-chunk)
}

// runAt returns the longest run of durable chunks from first that one record can contain: zeros, or up
// to maxHashes hashes that are adjacent in the file. The chunk first must be durable.
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

// inOrder yields the durable chunks as runs in chunk order.
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
