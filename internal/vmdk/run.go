package vmdk

import (
	"fmt"

	"github.com/decamp/decamp/internal/disk"
)

// Kind is the kind of a Run's content.
type Kind uint8

const (
	Absent Kind = iota // this layer has nothing here: ask its parent; below the base, zeros
	Zero               // reads as zeros, whatever the parent has
	Data               // lies in a file
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

// A Run is a range of a disk that is one piece of one file, or of none.
type Run struct {
	disk.Range       // range of the disk
	Kind       Kind  // kind of the content; the other fields apply to Data only
	File       int   // index into Disk.Files
	At         int64 // byte offset in that file: of the Range's first byte, or of the packed grain
	Packed     int64 // length of the packed grain at At, in bytes; 0: the bytes stand there as they are
	Skip       int64 // number of unpacked bytes before the Range in a packed grain
}

// storedLen returns how many bytes of its file a Data run takes.
func (r Run) storedLen() int64 {
	if r.Packed > 0 {
		return r.Packed
	}
	return r.Len
}

// clip returns the part of r that lies in s, which begins in r.
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

// isContinuedBy reports whether next is a further piece of what r is a piece of.
func (r Run) isContinuedBy(next Run) bool {
	if r.Kind != next.Kind || r.End() != next.Off {
		return false
	}
	return r.Kind != Data ||
		r.Packed == 0 && next.Packed == 0 && r.File == next.File && r.At+r.Len == next.At
}
