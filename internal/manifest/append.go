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
	runs, err := l.arrange(runs)
	if err != nil {
		return fmt.Errorf("append to manifest %s: %w", l.path, err)
	}
	return l.write(func(j *journal) {
		for _, r := range runs {
			j.add(r)
		}
	})
}

// Drop durably removes chunks that the image does not contain correctly. They count as missing until
// appended again. A sealed manifest becomes an open one.
func (l *Log) Drop(first, n int64) error {
	if err := checkSpan(first, n, l.Chunks()); err != nil {
		return fmt.Errorf("drop from manifest %s: %w", l.path, err)
	}
	return l.write(func(j *journal) { j.put(kindDrop, first, n, nil) })
}

// DropAll is Drop for chunks anywhere on the disk, given in order, with one durable write for
// all of them: what changed of a disk lies in thousands of places.
func (l *Log) DropAll(chunks []int64) error {
	for _, c := range chunks {
		if err := checkSpan(c, 1, l.Chunks()); err != nil {
			return fmt.Errorf("drop from manifest %s: %w", l.path, err)
		}
	}
	return l.write(func(j *journal) {
		for len(chunks) > 0 {
			n := 1
			for n < len(chunks) && chunks[n] == chunks[0]+int64(n) {
				n++
			}
			j.put(kindDrop, chunks[0], int64(n), nil)
			chunks = chunks[n:]
		}
	})
}

// arrange checks runs and returns them in chunk order.
func (l *Log) arrange(runs []Run) ([]Run, error) {
	runs = slices.Clone(runs)
	slices.SortFunc(runs, func(a, b Run) int { return cmp.Compare(a.First, b.First) })
	for i, r := range runs {
		if err := r.check(l.Chunks()); err != nil {
			return nil, err
		}
		if i > 0 && runs[i-1].end() > r.First {
			return nil, fault.New(fault.Internal, "two runs of one append overlap at chunk %d", r.First)
		}
	}
	return runs, nil
}

// write puts the records that fill gives to the journal at the end of the file.
func (l *Log) write(fill func(*journal)) error {
	l.io.Lock()
	defer l.io.Unlock()
	j := journal{tail: l.tail}
	fill(&j)
	j.flush()
	if len(j.index) == 0 {
		return nil
	}
	if j.tail.off-l.safe.start > maxRecords {
		return fault.New(fault.Unsupported, "write manifest %s: it has %d bytes and cannot grow", l.path, l.tail.off).
			WithHint("delete it to copy the disk again")
	}
	if err := l.persist(j.buf); err != nil {
		return fmt.Errorf("write manifest %s at byte %d: %w", l.path, l.tail.off, err)
	}
	l.tail = j.tail
	for _, r := range j.index {
		l.apply(r)
	}
	return nil
}

// persist writes b behind the last record, durably. If that fails the file is cut back,
// and if that fails too, the next call cuts before it writes.
func (l *Log) persist(b []byte) error {
	if l.torn {
		if err := l.f.Truncate(l.tail.off); err != nil {
			return kindOfIO(err)
		}
	}
	err := l.store(b)
	l.torn = err != nil && l.f.Truncate(l.tail.off) != nil
	return kindOfIO(err)
}

func (l *Log) store(b []byte) error {
	if err := l.step("append"); err != nil {
		return err
	}
	if _, err := l.f.WriteAt(b, l.tail.off); err != nil {
		return err
	}
	if err := l.step("sync append"); err != nil {
		return err
	}
	return datasync(l.f)
}

// A journal turns runs into as few records as it can.
type journal struct {
	tail  tail
	buf   []byte   // the records
	index []record // records in buf
	run   Run      // not yet in buf
}

// add adds a run, which must come after the one before in chunk order.
func (j *journal) add(r Run) {
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
func (j *journal) flush() {
	r := j.run
	switch {
	case r.Zeros > 0:
		j.put(kindZeros, r.First, r.Zeros, nil)
	case len(r.Hashes) > 0:
		j.put(kindHashes, r.First, int64(len(r.Hashes)), r.Hashes)
	}
	j.run = Run{First: r.end(), Hashes: r.Hashes[:0]}
}

func (j *journal) put(k kind, first, count int64, hashes []Hash) {
	j.index = append(j.index, record{kind: k, off: j.tail.off + recordHead, first: uint32(first), count: uint32(count)})
	j.buf = j.tail.encode(j.buf, k, first, count, hashes)
}
