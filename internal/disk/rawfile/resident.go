package rawfile

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// noneResident reports whether none of the pages of mem is in the page cache.
func noneResident(mem []byte, pages int) bool {
	present := make([]byte, pages)
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(unsafe.SliceData(mem))), uintptr(len(mem)), uintptr(unsafe.Pointer(&present[0])))
	if errno != 0 {
		return false
	}
	for _, p := range present {
		if p&1 != 0 {
			return false
		}
	}
	return true
}
