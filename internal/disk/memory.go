package disk

import (
	"runtime/debug"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// alignment in bytes of memory for O_DIRECT on any device: the largest logical block size
	MemoryAlign = 4096

	// size of a huge page in bytes. A direct write from such a page is one request to the device; from
	// small pages it is one for each MiB or less. Huge pages make it 1.4 times as fast, for half the
	// processor time.
	hugePage = 2 << 20
)

// AlignedMemory returns n zeroed bytes at a multiple of MemoryAlign, so that a Source or Target need
// not copy them. From 2 MiB on it uses huge pages if the kernel has some. Therefore callers should
// allocate one large piece and divide it.
func AlignedMemory(n int64) []byte {
	if n < hugePage {
		return allocateAligned(n, MemoryAlign)
	}
	b := allocateAligned(n, hugePage)
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE) // advice: without it things are slower, not wrong
	return b
}

// largeMemory is the size in bytes from which ReleaseUnused is worth its few milliseconds.
const largeMemory = 16 << 20

// ReleaseUnused must be called before n bytes are allocated. If that is much, it first returns unused
// memory to the system, above all the windows of the previous step. Otherwise the collector would do
// that only after the allocation, and both would count.
func ReleaseUnused(n int64) {
	if n >= largeMemory {
		debug.FreeOSMemory()
	}
}

// allocateAligned returns n bytes at a multiple of align. The skipped bytes are never touched, and so
// need no memory.
func allocateAligned(n, align int64) []byte {
	b := make([]byte, n+align)
	skip := -int64(addressOf(b)) & (align - 1)
	return b[skip : skip+n : skip+n]
}

// IsAligned reports whether b begins at a multiple of MemoryAlign.
func IsAligned(b []byte) bool { return addressOf(b)&(MemoryAlign-1) == 0 }

// addressOf returns the address of the first byte of b.
func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
