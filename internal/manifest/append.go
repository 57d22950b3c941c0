package manifest

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/decamp/decamp/internal/fault"
)

// Append adds runs and makes them durable. The image must have been synced after they
// were written to it. Runs of one call may come in any order but must not overlap; those
// that touch become one record. After an error none of them count, and the log can be
// used further: Full means that it continues once there is space.
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

// DropAll is Drop for chunks anywhere on the disk, given in order, with one durable write for
// all of them: what changed of a disk lies in thousands of places.
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

// sortRuns checks runs and returns them in chunk order.
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

// writeRecords puts the records that fill gives to the journal at the end of the file.
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

// appendBytes writes b behind the last record, durably. If that fails the file is cut back,
// and if that fails too, the next call cuts before it writes.
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

// A journal turns runs into as few records as it can.
type recordBuilder struct {
	tail  position
	buf   []byte   // the records
	index []record // records in buf
	run   Run      // not yet in buf
}

// addRun adds a run, which must come after the one before in chunk order.
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

// flush turns the run that add gathered into a record, and continues behind it.
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

func (j *recordBuilder) addRecord(k kind, first, count int64, hashes []Hash) {
	j.index = append(j.index, record{kind: k, off: j.tail.off + recordHead, first: uint32(first), count: uint32(count)})
	j.buf = j.tail.appendRecord(j.buf, k, first, count, hashes)
}
