package manifest

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/decamp/decamp/internal/fault"
)

// Append durably adds runs. The image must have been synced after they were written to it. The runs may
// be in any order but must not overlap; adjacent runs become one record. After an error none of them is
// listed, and the log remains usable: after fault.Full it continues when there is space.
func (l *Log) Append(ctx context.Context, runs []Run) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	runs, err := l.sortRuns(runs)
	if err != nil {
		return fmt.Errorf("append to manifest %s: %w", l.path, err)
	}
	return l.writeRecords(func(j *recordBuilder) {
		for _, r := range runs {
			j.addRun(r)
		}
	})
}

// Drop durably removes chunks that the image does not contain correctly. They count as missing until
// appended again. A sealed manifest becomes an open one.
func (l *Log) Drop(first, n int64) error {
	if err := checkSpan(first, n, l.Chunks()); err != nil {
		return fmt.Errorf("drop from manifest %s: %w", l.path, err)
	}
	return l.writeRecords(func(j *recordBuilder) { j.addRecord(kindDrop, first, n, nil) })
}

// DropAll is Drop for chunks anywhere on the disk, given in order, with one durable write for all. The
// changes of a disk may be in thousands of places.
func (l *Log) DropAll(chunks []int64) error {
	for _, c := range chunks {
		if err := checkSpan(c, 1, l.Chunks()); err != nil {
			return fmt.Errorf("drop from manifest %s: %w", l.path, err)
		}
	}
	return l.writeRecords(func(j *recordBuilder) {
		for len(chunks) > 0 {
			n := 1
			for n < len(chunks) && chunks[n] == chunks[0]+int64(n) {
				n++
			}
			j.addRecord(kindDrop, chunks[0], int64(n), nil)
			chunks = chunks[n:]
		}
	})
}

// sortRuns returns a copy of runs in chunk order. It fails if they overlap or lie outside the disk.
func (l *Log) sortRuns(runs []Run) ([]Run, error) {
	runs = slices.Clone(runs)
	slices.SortFunc(runs, func(a, b Run) int { return cmp.Compare(a.First, b.First) })
	for i, r := range runs {
		if err := r.checkRun(l.Chunks()); err != nil {
			return nil, err
		}
		if i > 0 && runs[i-1].end() > r.First {
			return nil, fault.New(fault.Internal, "two runs of one append overlap at chunk %d", r.First)
		}
	}
	return runs, nil
}

// writeRecords appends the records that fill adds to the builder, durably. It does nothing if there are
// none.
func (l *Log) writeRecords(fill func(*recordBuilder)) error {
	l.ioMu.Lock()
	defer l.ioMu.Unlock()
	j := recordBuilder{tail: l.end}
	fill(&j)
	j.flush()
	if len(j.index) == 0 {
		return nil
	}
	if j.tail.off-l.chunks.start > maxRecords {
		return fault.New(fault.Unsupported, "write manifest %s: it has %d bytes and cannot grow", l.path, l.end.off).
			WithHint("delete it to copy the disk again")
	}
	if err := l.appendBytes(j.buf); err != nil {
		return fmt.Errorf("write manifest %s at byte %d: %w", l.path, l.end.off, err)
	}
	l.end = j.tail
	for _, r := range j.index {
		l.applyRecord(r)
	}
	return nil
}

// appendBytes durably writes b after the last record. If that fails, it truncates the file; if that
// fails too, the next call truncates before it writes. ioMu must be held.
func (l *Log) appendBytes(b []byte) error {
	if l.torn {
		if err := l.f.Truncate(l.end.off); err != nil {
			return kindOfIO(err)
		}
	}
	err := l.writeSynced(b)
	l.torn = err != nil && l.f.Truncate(l.end.off) != nil
	return kindOfIO(err)
}

// writeSynced writes b after the last record and syncs the file. ioMu must be held.
func (l *Log) writeSynced(b []byte) error {
	if err := l.step("append"); err != nil {
		return err
	}
	if _, err := l.f.WriteAt(b, l.end.off); err != nil {
		return err
	}
	if err := l.step("sync append"); err != nil {
		return err
	}
	return fdatasync(l.f)
}

// A recordBuilder encodes runs as as few records as possible.
type recordBuilder struct {
	tail  position // position of the next record
	buf   []byte   // encoded records
	index []record // records in buf, in order
	run   Run      // run that is not in buf yet; it may become longer
}

// addRun adds a run, which must follow the previous one in chunk order.
func (j *recordBuilder) addRun(r Run) {
	touches := j.run.Count() > 0 && j.run.end() == r.First
	if !touches || (j.run.Zeros > 0) != (r.Zeros > 0) {
		j.flush()
		j.run = Run{First: r.First, Hashes: j.run.Hashes[:0]}
	}
	j.run.Zeros += r.Zeros
	for len(r.Hashes) > 0 {
		n := min(len(r.Hashes), maxHashes-len(j.run.Hashes))
		j.run.Hashes = append(j.run.Hashes, r.Hashes[:n]...)
		if r.Hashes = r.Hashes[n:]; len(j.run.Hashes) == maxHashes {
			j.flush()
		}
	}
}

// flush encodes the pending run. The next run begins after it.
func (j *recordBuilder) flush() {
	r := j.run
	switch {
	case r.Zeros > 0:
		j.addRecord(kindZeros, r.First, r.Zeros, nil)
	case len(r.Hashes) > 0:
		j.addRecord(kindHashes, r.First, int64(len(r.Hashes)), r.Hashes)
	}
	j.run = Run{First: r.end(), Hashes: r.Hashes[:0]}
}

// addRecord encodes one record for count chunks from first.
func (j *recordBuilder) addRecord(k kind, first, count int64, hashes []Hash) {
	j.index = append(j.index, record{kind: k, off: j.tail.off + recordHead, first: uint32(first), count: uint32(count)})
	j.buf = j.tail.appendRecord(j.buf, k, first, count, hashes)
}
