package disk

import "unsafe"

// MemoryAlign is the alignment, in bytes, of memory that O_DIRECT takes on every device:
// the largest logical block there is.
const MemoryAlign = 4096

// AlignedMemory returns n zeroed bytes at a multiple of MemoryAlign, so that a Source or
// Target need not copy them.
func AlignedMemory(n int64) []byte {
	b := make([]byte, n+MemoryAlign)
	skip := int64(-address(b) & (MemoryAlign - 1))
	return b[skip : skip+n : skip+n]
}

// IsAligned reports whether b begins at a multiple of MemoryAlign.
func IsAligned(b []byte) bool { return address(b)&(MemoryAlign-1) == 0 }

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
