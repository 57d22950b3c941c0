package vmdk

import (
	"fmt"

	"github.com/decamp/decamp/internal/disk"
)

// Kind is the kind of a Run's content.
type Kind uint8

const (
	Absent Kind = iota // the layer does not contain the range: its parent does; zeros if there is no parent
	Zero               // reads as zeros, whatever the parent contains
	Data               // bytes of a file
)

// String returns "absent", "zero" or "data".
func (k Kind) String() string {
	switch k {
	case Absent:
		return "absent"
	case Zero:
		return "zero"
	case Data:
		return "data"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// A Run is a range of a disk that is one contiguous piece of a file, or has no file.
type Run struct {
	disk.Range       // range of the disk
	Kind       Kind  // kind of the content; the other fields apply to Data only
	File       int   // index into Disk.Files
	At         int64 // offset in that file of the first byte of Range, or of the compressed grain, in bytes
	// upper limit of the length of the compressed grain at At, with its header, in bytes; 0 if the bytes
	// are not compressed
	Packed int64
	Skip   int64 // number of decompressed bytes of the grain before Range
}

// storedLen returns the number of bytes that a Data run occupies in its file.
func (r Run) storedLen() int64 {
	if r.Packed > 0 {
		return r.Packed
	}
	return r.Len
}

// clip returns the part of r that lies in s. s must begin within r.
func (r Run) clip(s disk.Range) Run {
	skip := s.Off - r.Off
	r.Range = r.Intersect(s)
	switch {
	case r.Kind != Data:
	case r.Packed > 0:
		r.Skip += skip
	default:
		r.At += skip
	}
	return r
}

// isContinuedBy reports whether r and next are one longer run. Compressed runs never continue.
func (r Run) isContinuedBy(next Run) bool {
	if r.Kind != next.Kind || r.End() != next.Off {
		return false
	}
	return r.Kind != Data ||
		r.Packed == 0 && next.Packed == 0 && r.File == next.File && r.At+r.Len == next.At
}
