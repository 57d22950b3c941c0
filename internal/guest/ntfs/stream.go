package ntfs

import (
	"errors"
	"fmt"
	"io"
	"sort"
)

const (
	flagCompressed = 0x00ff
	flagEncrypted  = 0x4000
)

// A stream is the value of an attribute as bytes.
type stream struct {
	v        *Volume
	size     int64
	valid    int64 // bytes written so far; the rest reads as zeros
	resident []byte
	runs     []run
	unit     int64 // clusters that are compressed together; 0 where nothing is
}

// stream opens the attribute of a type and name of a file. The error is ErrNotFound if the file does
// not have it.
func (v *Volume) stream(r *record, kind uint32, name string) (*stream, error) {
	defer func(before int64) {
		v.r.Budget().Release(v.parked - before)
		v.parked = before
	}(v.parked)
	parts, err := v.parts(r, kind, name)
	if err != nil {
		return nil, err
	}
	if len(parts) == 0 {
		return nil, ErrNotFound
	}
	return v.streamOf(parts)
}

func (v *Volume) streamOf(parts []attribute) (*stream, error) {
	head := parts[0]
	if head.flags&flagEncrypted != 0 {
		return nil, errors.New("the file is encrypted")
	}
	if head.away == nil {
		size := int64(len(head.value))
		return &stream{v: v, size: size, valid: size, resident: head.value}, nil
	}
	s := &stream{v: v, size: int64(le64(head.away, 0x30)), valid: int64(le64(head.away, 0x38))}
	if s.size < 0 || s.valid < 0 {
		return nil, fmt.Errorf("%w: a value of %d bytes, %d of them written", errCorrupt, s.size, s.valid)
	}
	if head.flags&flagCompressed != 0 {
		s.unit = 1 << (le16(head.away, 0x22) & 31)
		if s.unit == 1 || s.unit*v.clusterSize > maxUnit {
			return nil, fmt.Errorf("%w: %d clusters are compressed together", errCorrupt, s.unit)
		}
	}
	return s, s.join(parts)
}

// join puts the run lists of all pieces together; they follow each other without gaps.
func (s *stream) join(parts []attribute) error {
	next := int64(0)
	for _, part := range parts {
		if part.away == nil || part.first != next {
			return fmt.Errorf("%w: a piece from cluster %d on, where %d is next", errCorrupt, part.first, next)
		}
		at := int(le16(part.away, 0x20))
		if at > len(part.away) {
			return fmt.Errorf("%w: runs at %d of %d bytes", errCorrupt, at, len(part.away))
		}
		var err error
		if s.runs, err = s.v.parseRuns(s.runs, part.away[at:], next); err != nil {
			return err
		}
		if len(s.runs) > 0 {
			next = s.runs[len(s.runs)-1].end()
		}
	}
	return nil
}

// readAt fills p from off, which has to be within the value.
func (s *stream) readAt(p []byte, off int64) error {
	if off < 0 || off > s.size || int64(len(p)) > s.size-off {
		return io.ErrUnexpectedEOF
	}
	if s.resident != nil {
		copy(p, s.resident[off:])
		return nil
	}
	written := max(0, min(int64(len(p)), s.valid-off))
	clear(p[written:])
	if s.unit != 0 {
		return s.readUnits(p[:written], off)
	}
	return s.readRuns(p[:written], off)
}

// readRuns fills p from what the clusters hold.
func (s *stream) readRuns(p []byte, off int64) error {
	for len(p) > 0 {
		if err := s.v.step(1); err != nil {
			return err
		}
		r, ok := s.find(off / s.v.clusterSize)
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

// find returns the run that has cluster vcn of the value.
func (s *stream) find(vcn int64) (run, bool) {
	i := sort.Search(len(s.runs), func(i int) bool { return s.runs[i].end() > vcn })
	if i == len(s.runs) || s.runs[i].vcn > vcn {
		return run{}, false
	}
	return s.runs[i], true
}
