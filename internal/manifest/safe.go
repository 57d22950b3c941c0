package manifest

import "iter"

// safe is which chunks are safe, and where the file has their hashes: 4 bytes per chunk,
// whatever order the records came in.
type safe struct {
	start   int64    // of the first record in the file
	places  []uint32 // of each chunk
	missing int64    // chunks without a place
	recent  []record // the newest that gave a place to chunks, oldest first
}

// A place is none, zeros, or a hash at hashPlace + n, n placeUnits behind the start:
// records and hashes are all multiples of the unit. That is enough for maxRecords bytes.
const (
	noPlace    uint32 = 0
	zeroPlace  uint32 = 1
	hashPlace  uint32 = 2
	placeUnit         = 4
	maxRecords        = (1<<32 - int64(hashPlace)) * placeUnit

	hashStep = uint32(hashLen / placeUnit) // between the places of two hashes of a record
)

// maxRecent is how many of the newest records are remembered.
const maxRecent = 8

func newSafe(start, chunks int64) *safe {
	return &safe{start: start, places: make([]uint32, chunks), missing: chunks}
}

// apply takes a record that is in the file into account. Later records win.
func (s *safe) apply(r record) {
	at, step := noPlace, uint32(0)
	switch r.kind {
	case kindHashes:
		at, step = hashPlace+uint32((r.off-s.start)/placeUnit), hashStep
	case kindZeros:
		at = zeroPlace
	case kindDrop:
	case kindSeal:
		return
	}
	for c := r.first; c < r.end(); c++ {
		s.set(c, at)
		at += step
	}
	if r.kind != kindDrop {
		s.recent = append(s.recent[max(0, len(s.recent)-maxRecent+1):], r)
	}
}

func (s *safe) set(chunk, place uint32) {
	if s.places[chunk] == noPlace {
		s.missing--
	}
	if place == noPlace {
		s.missing++
	}
	s.places[chunk] = place
}

func (s *safe) has(chunk int64) bool {
	return chunk >= 0 && chunk < int64(len(s.places)) && s.places[chunk] != noPlace
}

// run returns the longest run of safe chunks from first on that one record could hold:
// zeros, or up to maxHashes hashes that follow each other in the file.
func (s *safe) run(first uint32) record {
	r := record{kind: kindZeros, first: first, count: 1}
	limit, step := uint32(len(s.places))-first, uint32(0)
	if at := s.places[first]; at != zeroPlace {
		r.kind, r.off = kindHashes, s.start+int64(at-hashPlace)*placeUnit
		limit, step = min(limit, maxHashes), hashStep
	}
	for r.count < limit && s.places[first+r.count] == s.places[first]+r.count*step {
		r.count++
	}
	return r
}

// inOrder yields all chunks, which must be safe, as runs in chunk order.
func (s *safe) inOrder() iter.Seq[record] {
	return func(yield func(record) bool) {
		for c := uint32(0); c < uint32(len(s.places)); {
			r := s.run(c)
			if !yield(r) {
				return
			}
			c = r.end()
		}
	}
}
