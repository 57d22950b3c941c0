package ntfs

import (
	"errors"
	"fmt"
	"io"
	"sort"

	"github.com/decamp/decamp/internal/guest/budget"
)

const (
	flagCompressed = 0x00ff // mask of the compression method
	flagEncrypted  = 0x4000 // encrypted by EFS
)

// A stream is the value of an attribute as a sequence of bytes.
type stream struct {
	v        *Volume // volume that contains the value
	size     int64   // bytes of the value
	valid    int64   // bytes written so far (initialized size); the rest reads as zeros
	resident []byte  // value, if it is in the record; otherwise nil
	runs     []run   // clusters of the value in order, without gaps
	unit     int64   // clusters that are compressed as one unit; 0 if the value is not compressed
}

// openStream opens an attribute of a file by type and name. The error is ErrNotFound if the file does
// not have it. openStream releases the memory budget of the attribute's other records.
func (v *Volume) openStream(r *record, kind uint32, name string) (*stream, error) {
	defer func(before int64) {
		v.r.Budget().Release(v.partBytes - before)
		v.partBytes = before
	}(v.partBytes)
	parts, err := v.findParts(r, kind, name)
	if err != nil {
		return nil, err
	}
	if len(parts) == 0 {
		return nil, ErrNotFound
	}
	return v.newStream(parts)
}

// newStream returns the value of an attribute with the parts, which must be in order. It refuses
// encrypted values and units of more than maxUnit bytes.
func (v *Volume) newStream(parts []attribute) (*stream, error) {
	head := parts[0]
	if head.flags&flagEncrypted != 0 {
		return nil, errors.New("the file is encrypted")
	}
	if head.header == nil {
		// A resident value is written completely.
		size := int64(len(head.value))
		return &stream{v: v, size: size, valid: size, resident: head.value}, nil
	}
	// Offset 0x30 is the size of the value, 0x38 the initialized size.
	s := &stream{v: v, size: int64(le64(head.header, 0x30)), valid: int64(le64(head.header, 0x38))}
	if s.size < 0 || s.valid < 0 {
		return nil, fmt.Errorf("%w: a value of %d bytes, %d of them written", errCorrupt, s.size, s.valid)
	}
	if head.flags&flagCompressed != 0 {
		// Offset 0x22 is the binary logarithm of the unit in clusters; 4 is usual.
		s.unit = 1 << (le16(head.header, 0x22) & 31)
		if s.unit == 1 || s.unit*v.clusterSize > maxUnit {
			return nil, fmt.Errorf("%w: %d clusters are compressed together", errCorrupt, s.unit)
		}
	}
	return s, s.joinRuns(parts)
}

// joinRuns sets the runs from the run lists of all parts, and charges their memory to the budget until
// release. It fails if the parts have gaps or more than maxRuns runs.
func (s *stream) joinRuns(parts []attribute) (err error) {
	total := 0
	for _, part := range parts {
		if total, err = s.v.countRuns(total, part); err != nil {
			return err
		}
	}
	// A list that grows would leave several times its size to the garbage collector.
	runs, err := budget.Grow(s.v.r.Budget(), s.runs, total)
	if err != nil {
		return err
	}
	if s.runs, err = s.v.parseParts(runs, parts); err != nil {
		budget.ReleaseSlice(s.v.r.Budget(), runs)
	}
	return err
}

// parseParts appends the runs of all parts to runs, which must have room for them. It fails if the parts
// have gaps.
func (v *Volume) parseParts(runs []run, parts []attribute) ([]run, error) {
	next := int64(0)
	for _, part := range parts {
		if part.header == nil || part.firstVCN != next {
			return nil, fmt.Errorf("%w: a piece from cluster %d on, where %d is next", errCorrupt, part.firstVCN, next)
		}
		pairs, err := part.mappingPairs()
		if err != nil {
			return nil, err
		}
		if runs, err = v.parseRuns(runs, pairs, next); err != nil {
			return nil, err
		}
		if len(runs) > 0 {
			next = runs[len(runs)-1].end()
		}
	}
	return runs, nil
}

// release returns the memory of the runs to the budget. The stream must not be used afterwards. Streams of
// files are in use until the examination ends.
func (s *stream) release() {
	budget.ReleaseSlice(s.v.r.Budget(), s.runs)
	s.runs = nil
}

// readAt fills p from offset off. The range must be within the value.
func (s *stream) readAt(p []byte, off int64) error {
	if off < 0 || off > s.size || int64(len(p)) > s.size-off {
		return io.ErrUnexpectedEOF
	}
	if s.resident != nil {
		copy(p, s.resident[off:])
		return nil
	}
	// Bytes beyond the initialized size are undefined on the disk and read as zeros.
	written := max(0, min(int64(len(p)), s.valid-off))
	clear(p[written:])
	if s.unit != 0 {
		return s.readUnits(p[:written], off)
	}
	return s.readRuns(p[:written], off)
}

// readRuns fills p with stored bytes, without decompression. Holes are zeros.
func (s *stream) readRuns(p []byte, off int64) error {
	for len(p) > 0 {
		if err := s.v.step(1); err != nil {
			return err
		}
		r, ok := s.findRun(off / s.v.clusterSize)
		if !ok {
			return fmt.Errorf("%w: no run has byte %d of %d", errCorrupt, off, s.size)
		}
		within := off - r.vcn*s.v.clusterSize
		n := min(int64(len(p)), r.count*s.v.clusterSize-within)
		if r.lcn == hole {
			if err := s.v.step(int(n >> 12)); err != nil {
				return err
			}
			clear(p[:n])
		} else if _, err := s.v.r.ReadAt(p[:n], r.lcn*s.v.clusterSize+within); err != nil {
			return err
		}
		p, off = p[n:], off+n
	}
	return nil
}

// findRun returns the run that contains cluster vcn of the value.
func (s *stream) findRun(vcn int64) (run, bool) {
	i := sort.Search(len(s.runs), func(i int) bool { return s.runs[i].end() > vcn })
	if i == len(s.runs) || s.runs[i].vcn > vcn {
		return run{}, false
	}
	return s.runs[i], true
}
