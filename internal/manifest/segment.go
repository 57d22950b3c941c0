package manifest

import (
	"slices"
	"sort"
)

const (
	segmentChunks = 4096

	// mostPieces is how many pieces a segment is kept as. From there on a list of places
	// is hardly larger, and quicker to change.
	mostPieces = 1024
)

// A segment is the places of segmentChunks chunks: as pieces, or one by one where they
// are many. The zero segment has no places.
type segment struct {
	pieces []piece  // pieces in order, the first from chunk 0; nil if none has a place
	places []uint32 // places of the chunks; nil while there are pieces
}

// A piece is chunks that continue one another: without a place, zeros, or hashes in a row.
type piece struct {
	first uint32 // chunk of the segment; the piece ends where the next one begins
	at    uint32 // its place
}

// placeOf returns the place of chunk c.
func (s *segment) placeOf(c uint32) uint32 {
	if s.places != nil {
		return s.places[c]
	}
	at, _ := s.pieceAt(c)
	return at
}

// pieceAt returns the place of chunk c, and how many chunks from it on continue one another.
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

// countFollowing counts the chunks from c on whose places continue one another.
func (s *segment) countFollowing(c uint32) uint32 {
	n := uint32(1)
	for c+n < segmentChunks && s.places[c+n] == placeAfter(s.places[c], n) {
		n++
	}
	return n
}

// findPiece returns the index of the piece that has chunk c.
func (s *segment) findPiece(c uint32) int {
	return sort.Search(len(s.pieces), func(i int) bool { return s.pieces[i].first > c }) - 1
}

func (s *segment) pieceEnd(i int) uint32 {
	if i+1 < len(s.pieces) {
		return s.pieces[i+1].first
	}
	return segmentChunks
}

// setPlaces gives n chunks from first on places that continue one another from at. It returns
// how many more chunks are without a place than before.
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

// countMissing counts the chunks from first on, n of them, that have no place.
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

// setPiece puts a piece among the others, which it cuts and joins.
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

// appendPiece appends p to list, unless it continues the last one there.
func appendPiece(list []piece, p piece) []piece {
	if n := len(list); n > 0 && isContinued(list[n-1], p) {
		return list
	}
	return append(list, p)
}

// isContinued reports whether b, which begins where a ends, is a further part of it.
func isContinued(a, b piece) bool { return placeAfter(a.at, b.first-a.first) == b.at }

// expandPlaces writes the pieces out as places.
func (s *segment) expandPlaces() {
	places := make([]uint32, segmentChunks)
	for i, p := range s.pieces {
		for c := p.first; c < s.pieceEnd(i); c++ {
			places[c] = placeAfter(p.at, c-p.first)
		}
	}
	s.pieces, s.places = nil, places
}
