package mount

import (
	"time"

	"github.com/decamp/decamp/internal/disk"
)

const (
	// sequentialAfter is how much must be read in a row before anything is read ahead. A
	// booting guest reads many files of 100 KiB; a copy is past this at once.
	sequentialAfter = 256 << 10
	// leastWindow is the first read-ahead in bytes. It grows with the bytes read in sequence, up to
	// four times of them.
	leastWindow = 1 << 20
	// mostDisorder is how far a reader may jump back and forth and be one reader: qemu-img
	// convert -m 16 -W has 16 reads of 2 MiB under way.
	mostDisorder = 32 << 20
	// streamsPerFile is the number of distinguished readers of a file.
	streamsPerFile = 24
	// stale is after how long without a read nothing is kept for a reader.
	stale = 5 * time.Second
)

// stream is one reader, as its reads show it: a stretch of a file that grows at its end.
// The cache's lock guards it.
type stream struct {
	file  *file
	start int64
	end   int64 // after the furthest byte that was read
	run   int64 // bytes read in sequence
	reads int
	ahead int64 // pages were asked for up to here
	last  time.Time
}

// isSequential reports whether the reader will go on where it is.
func (s *stream) isSequential() bool { return s.reads > 1 && s.run >= sequentialAfter }

// maxGap is how far a reader may jump ahead and still be the same.
func (s *stream) maxGap() int64 { return max(blockSize, min(s.run/4, mostDisorder/2)) }

// isNear reports whether a read of r is one of the stream's: near its end. What lies
// behind the end is the stream's only while there is a page of it (known): else it is
// another reader, or one that starts again.
func (s *stream) isNear(r disk.Range, known bool) bool {
	if r.End() <= s.end {
		return known && r.Off >= max(s.start, s.end-mostDisorder)
	}
	return r.Off >= s.start && r.Off <= s.end+s.maxGap()
}

// addRead notes a read. One that leaves out more than it reads is half a jump.
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

// overlaps reports whether t is the same reader as s: their stretches meet.
func (s *stream) overlaps(t *stream) bool {
	return t.start <= s.end && t.end >= max(s.start, s.end-mostDisorder)
}

// mergeFrom takes over what t was.
func (s *stream) mergeFrom(t *stream) {
	s.start, s.end = min(s.start, t.start), max(s.end, t.end)
	s.run += t.run
	s.reads += t.reads
	s.ahead = max(s.ahead, t.ahead)
}

// aheadWindow returns the read-ahead of a reader with share pages to use. A quarter stays for unconsumed
// pages behind its furthest read.
func (s *stream) aheadWindow(share int, size int64) int64 {
	most := max(int64(share)*3/4, 1) * size
	return min(max(4*s.run, leastWindow), most)
}
