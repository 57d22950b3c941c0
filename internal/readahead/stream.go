package readahead

import (
	"time"

	"github.com/decamp/decamp/internal/disk"
)

const (
	// number of bytes that must be read in sequence before read-ahead begins. A booting guest reads many
	// files of 100 KiB; a copy exceeds this at once.
	sequentialAfter = 256 << 10
	// first read-ahead in bytes. It grows to four times the bytes that were read in sequence.
	leastWindow = 1 << 20
	// how far a reader may jump back and forth, in bytes, and count as one reader. qemu-img convert -m 16
	// -W has 16 concurrent reads of 2 MiB.
	mostDisorder = 32 << 20
	// largest number of readers of a file that are distinguished
	streamsPerFile = 24
	// time without a read after which no pages are kept for a reader
	stale = 5 * time.Second
)

// A stream is one reader, as derived from its reads: a range of a file that grows at its end. The
// cache's lock guards it.
type stream struct {
	file  *File     // file that is read
	start int64     // offset of the first byte that was read
	end   int64     // offset after the furthest byte that was read
	run   int64     // bytes read in sequence
	reads int       // number of reads
	ahead int64     // offset up to which pages were requested
	last  time.Time // time of the last read
}

// isSequential reports whether the reader probably continues at end.
func (s *stream) isSequential() bool { return s.reads > 1 && s.run >= sequentialAfter }

// maxGap returns the number of bytes that a reader may skip and count as the same reader.
func (s *stream) maxGap() int64 { return max(blockSize, min(s.run/4, mostDisorder/2)) }

// isNear reports whether a read of r probably belongs to the stream, because it is near its end. A read
// before the end belongs to the stream only if a page contains it (known). Otherwise it is another
// reader, or one that starts again.
func (s *stream) isNear(r disk.Range, known bool) bool {
	if r.End() <= s.end {
		return known && r.Off >= max(s.start, s.end-mostDisorder)
	}
	return r.Off >= s.start && r.Off <= s.end+s.maxGap()
}

// addRead records a read. A read that skips more bytes than it reads halves the sequence.
func (s *stream) addRead(r disk.Range, now time.Time) {
	s.reads++
	s.last = now
	if r.End() <= s.end {
		return
	}
	if r.Off-s.end > r.Len {
		s.run /= 2
	} else {
		s.run += r.End() - max(s.end, r.Off)
	}
	s.end = r.End()
}

// overlaps reports whether the ranges of s and t touch, so that they are one reader.
func (s *stream) overlaps(t *stream) bool {
	return t.start <= s.end && t.end >= max(s.start, s.end-mostDisorder)
}

// mergeFrom adds the reads of t to s.
func (s *stream) mergeFrom(t *stream) {
	s.start, s.end = min(s.start, t.start), max(s.end, t.end)
	s.run += t.run
	s.reads += t.reads
	s.ahead = max(s.ahead, t.ahead)
}

// aheadWindow returns the read-ahead in bytes. share is the number of pages for the reader, of size
// bytes each. A quarter of them stays for pages behind its furthest read.
func (s *stream) aheadWindow(share int, size int64) int64 {
	most := max(int64(share)*3/4, 1) * size
	return min(max(4*s.run, leastWindow), most)
}
