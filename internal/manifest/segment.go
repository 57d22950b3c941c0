package manifest

import (
	"slices"
	"sort"
)

const (
	segmentChunks = 4096 // number of chunks of a segment

	// number of pieces above which a segment is a list of places. Such a list is hardly larger, and
	// changes faster.
	mostPieces = 1024
)

// A segment has the places of segmentChunks chunks, as pieces or as a list. In the zero segment all
// chunks are missing.
type segment struct {
	pieces []piece  // pieces in order, the first from chunk 0; nil if all chunks are missing or places is used
	places []uint32 // place of each chunk; nil if pieces are used
}

// A piece is a range of chunks that continue each other: missing, zeros, or hashes that are adjacent in
// the file.
type piece struct {
	first uint32 // first chunk in the segment; the piece ends at the next one
	at    uint32 // place of the first chunk
}

// placeOf returns the place of chunk c of the segment.
func (s *segment) placeOf(c uint32) uint32 {
	if s.places != nil {
		return s.places[c]
	}
	at, _ := s.pieceAt(c)
	return at
}

// pieceAt returns the place of chunk c, and the number of chunks from c on that continue each other.
func (s *segment) pieceAt(c uint32) (at, n uint32) {
	if s.places != nil {
		return s.places[c], s.countFollowing(c)
	}
	if s.pieces == nil {
		return noPlace, segmentChunks - c
	}
	i := s.findPiece(c)
	p := s.pieces[i]
	return placeAfter(p.at, c-p.first), s.pieceEnd(i) - c
}

// countFollowing returns the number of chunks from c on whose places continue each other. places must
// be in use.
func (s *segment) countFollowing(c uint32) uint32 {
	n := uint32(1)
	for c+n < segmentChunks && s.places[c+n] == placeAfter(s.places[c], n) {
		n++
	}
	return n
}

// findPiece returns the index of the piece that contains chunk c. pieces must be in use.
func (s *segment) findPiece(c uint32) int {
	return sort.Search(len(s.pieces), func(i int) bool { return s.pieces[i].first > c }) - 1
}

// pieceEnd returns the first chunk after piece i.
func (s *segment) pieceEnd(i int) uint32 {
	if i+1 < len(s.pieces) {
		return s.pieces[i+1].first
	}
	return segmentChunks
}

// setPlaces sets the places of n chunks from first, beginning with at. It returns by how much the
// number of missing chunks grows.
func (s *segment) setPlaces(first, n, at uint32) (missing int64) {
	missing = -int64(s.countMissing(first, n))
	if at == noPlace {
		missing += int64(n)
	}
	if s.places == nil {
		s.setPiece(first, n, at)
		return missing
	}
	for i := range n {
		s.places[first+i] = placeAfter(at, i)
	}
	return missing
}

// countMissing returns the number of missing chunks among n from first.
func (s *segment) countMissing(first, n uint32) (none uint32) {
	for c := first; c < first+n; {
		at, m := s.pieceAt(c)
		m = min(m, first+n-c)
		if at == noPlace {
			none += m
		}
		c += m
	}
	return none
}

// setPiece inserts a piece. It cuts overlapping pieces, and joins neighbours that continue each other.
func (s *segment) setPiece(first, n, at uint32) {
	if s.pieces == nil {
		s.pieces = []piece{{0, noPlace}}
	}
	from, to := s.findPiece(first), s.findPiece(first+n-1)
	added := make([]piece, 0, 3)
	if p := s.pieces[from]; p.first < first {
		added = append(added, p)
	}
	added = appendPiece(added, piece{first, at})
	if end := s.pieceEnd(to); first+n < end {
		p := s.pieces[to]
		added = appendPiece(added, piece{first + n, placeAfter(p.at, first+n-p.first)})
	}
	before := s.pieces[:from]
	if from > 0 && isContinued(before[from-1], added[0]) {
		from, added[0] = from-1, before[from-1]
	}
	if last := added[len(added)-1]; to+1 < len(s.pieces) && isContinued(last, s.pieces[to+1]) {
		to++
	}
	s.pieces = slices.Replace(s.pieces, from, to+1, added...)
	if len(s.pieces) > mostPieces {
		s.expandPlaces()
	}
}

// appendPiece appends p to list, unless p continues the last piece.
func appendPiece(list []piece, p piece) []piece {
	if n := len(list); n > 0 && isContinued(list[n-1], p) {
		return list
	}
	return append(list, p)
}

// isContinued reports whether b, which begins at the end of a, continues a.
func isContinued(a, b piece) bool { return placeAfter(a.at, b.first-a.first) == b.at }

// expandPlaces replaces the pieces by a list of places.
func (s *segment) expandPlaces() {
	places := make([]uint32, segmentChunks)
	for i, p := range s.pieces {
		for c := p.first; c < s.pieceEnd(i); c++ {
			places[c] = placeAfter(p.at, c-p.first)
		}
	}
	s.pieces, s.places = nil, places
}
