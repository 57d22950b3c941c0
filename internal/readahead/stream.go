package readahead

import (
	"slices"
	"time"

	"github.com/decamp/decamp/internal/disk"
)

const (
	// number of bytes that must be read in sequence before read-ahead begins. A booting guest reads many
	// files of 100 KiB; a copy exceeds this at once.
	sequentialAfter = 256 << 10
	// first read-ahead in bytes. It grows to four times the bytes that were read in sequence.
	leastWindow = 1 << 20
	// how far the concurrent reads of a reader are apart at most, in bytes. qemu-img convert -m 16 -W has 16
	// concurrent reads of 2 MiB.
	mostDisorder = 32 << 20
	// how far a reader may jump ahead, in bytes, and count as one reader. A reader beyond is a new one, until
	// the first one reaches it.
	mostJump = 2 << 20
	// largest number of gaps of a reader that are remembered: nbdcopy has 64 concurrent requests
	mostGaps = 64
	// largest number of readers of a file that are distinguished
	streamsPerFile = 24
	// time without a read after which no pages are kept for a reader
	stale = 5 * time.Second
	// number of later reads of a reader after which none of its reads is late any more
	lateReads = 64
	// number of reads of others after which a reader has no share of the pages: nbdcopy has 64 requests of
	// 256 KiB on each of 4 connections
	activeReads = 512
)

// A stream is one reader, as derived from its reads: a range of a file that grows at its end. The
// cache's lock guards it.
type stream struct {
	file  *File        // file that is read
	start int64        // offset of the first byte that was read
	end   int64        // offset after the furthest byte that was read
	gaps  []disk.Range // ranges before end that reads skipped, and late reads may fill
	run   int64        // bytes read in sequence
	reads int          // number of reads
	ahead int64        // offset up to which pages were requested
	last  time.Time    // time of the last read
	used  int64        // number of the last read: Cache.reads
}

// isSequential reports whether the reader probably continues at end.
func (s *stream) isSequential() bool { return s.reads > 1 && s.run >= sequentialAfter }

// maxGap returns the number of bytes that a reader may skip and count as the same reader.
func (s *stream) maxGap() int64 { return max(blockSize, min(s.run/4, mostJump)) }

// distanceTo returns how far a read of r is from the expected position of the stream. It returns false
// if r probably belongs to another reader. A read before the end belongs to the stream if the stream
// skipped it, or if a page contains it (known). Otherwise it is another reader, or one that starts again.
func (s *stream) distanceTo(r disk.Range, known bool) (int64, bool) {
	switch {
	case r.Off > s.end:
		return r.Off - s.end, r.Off <= s.end+s.maxGap()
	case r.End() > s.end:
		return 0, r.Off >= s.start
	case s.gapWith(r) >= 0:
		return 0, true
	}
	return s.end - r.Off, known && r.Off >= max(s.start, s.end-mostDisorder)
}

// gapWith returns the index of the gap that contains the first byte of r, or -1.
func (s *stream) gapWith(r disk.Range) int {
	return slices.IndexFunc(s.gaps, func(g disk.Range) bool { return g.Off <= r.Off && r.Off < g.End() })
}

// addRead records a read. A read that skips more bytes than it reads halves the sequence.
func (s *stream) addRead(r disk.Range, now time.Time, number int64) {
	s.reads++
	s.last, s.used = now, number
	switch {
	case r.End() <= s.end:
		s.fillGap(r)
		return
	case r.Off-s.end > r.Len:
		s.run /= 2
	default:
		s.run += r.End() - max(s.end, r.Off)
	}
	if r.Off > s.end {
		s.addGap(disk.Range{Off: s.end, Len: r.Off - s.end})
	}
	s.end = r.End()
}

// addGap records a range that was skipped.
func (s *stream) addGap(g disk.Range) {
	if len(s.gaps) == mostGaps {
		s.gaps = slices.Delete(s.gaps, 0, 1)
	}
	s.gaps = append(s.gaps, g)
}

// fillGap removes r from the gap that contains its first byte.
func (s *stream) fillGap(r disk.Range) {
	i := s.gapWith(r)
	if i < 0 {
		return
	}
	g := s.gaps[i]
	s.gaps = slices.Delete(s.gaps, i, i+1)
	s.run += g.Intersect(r).Len
	if r.Off > g.Off {
		s.addGap(disk.Range{Off: g.Off, Len: r.Off - g.Off})
	}
	if r.End() < g.End() {
		s.addGap(disk.Range{Off: r.End(), Len: g.End() - r.End()})
	}
}

// hasReached reports whether a read of s, which ended at before, has reached the start of t, and t has
// not read more than a reader may jump: then both are one reader.
func (s *stream) hasReached(t *stream, before int64) bool {
	return before < t.start && t.start <= s.end && t.end-t.start <= mostDisorder
}

// mergeFrom adds the reads of t to s, which has reached t.
func (s *stream) mergeFrom(t *stream) {
	for _, g := range t.gaps {
		s.addGap(g)
	}
	s.end = max(s.end, t.end)
	s.run += t.run
	s.reads += t.reads
	s.ahead = max(s.ahead, t.ahead, t.end)
}

// aheadWindow returns the read-ahead in bytes. share is the number of pages for the reader, of size
// bytes each. Half of them stays for reads under way, and pages behind them.
func (s *stream) aheadWindow(share int, size int64) int64 {
	most := max(int64(share)/windowShare, 1) * size
	return min(max(4*s.run, leastWindow), most)
}
