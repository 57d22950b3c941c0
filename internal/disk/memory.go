package disk

import (
	"runtime/debug"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// MemoryAlign is the alignment, in bytes, of memory that O_DIRECT takes on every
	// device: the largest logical block there is.
	MemoryAlign = 4096

	// hugePage is the size of a page that the kernel handles as one. A direct write from
	// such pages is one request to the device, from small ones it is one for each MiB or
	// less: 1.4 times the speed for half the processor time.
	hugePage = 2 << 20
)

// AlignedMemory returns n zeroed bytes at a multiple of MemoryAlign, so that a Source or
// Target need not copy them. From 2 MiB on they lie in huge pages where the kernel has
// some to give; so allocate much at once and cut it up.
func AlignedMemory(n int64) []byte {
	if n < hugePage {
		return allocateAligned(n, MemoryAlign)
	}
	b := allocateAligned(n, hugePage)
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE) // advice: without it things are slower, not wrong
	return b
}

// largeMemory is from where on ReleaseUnused is worth its time, a few milliseconds.
const largeMemory = 16 << 20

// ReleaseUnused is called before n bytes are allocated. If that is much, memory that nothing uses any more
// goes back to the system first: the windows of the step before, above all. The collector would get to it
// only after the new ones were there, and both would count.
func ReleaseUnused(n int64) {
	if n >= largeMemory {
		debug.FreeOSMemory()
	}
}

// allocateAligned returns n bytes at a multiple of align. What it does not return is never
// touched, and so takes no memory.
func allocateAligned(n, align int64) []byte {
	b := make([]byte, n+align)
	skip := -int64(addressOf(b)) & (align - 1)
	return b[skip : skip+n : skip+n]
}

// IsAligned reports whether b begins at a multiple of MemoryAlign.
func IsAligned(b []byte) bool { return addressOf(b)&(MemoryAlign-1) == 0 }

func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
