package rawfile

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/disk"
)

// Origins of a Source's bytes, as reports print them.
const (
	MediumDirect = "O_DIRECT" // read with O_DIRECT
	// pages were dropped before each read, and the kernel confirmed that
	MediumDropped = "medium, cache dropped and proven empty before each read"
	MediumCache   = "page cache"                                  // at least one read may have come from the page cache
	MediumMemory  = "memory: the file system has no other medium" // tmpfs or ramfs
)

// Medium returns the origin of all bytes read so far, one of the constants. Call it after reading: if
// pages are dropped for each read, a single failure determines the result.
func (s *Source) Medium() string {
	switch {
	case s.memory:
		return MediumMemory
	case s.direct != nil:
		return MediumDirect
	case s.drop && !s.unproven.Load():
		return MediumDropped
	}
	return MediumCache
}

// bypassCache enables O_DIRECT or, if that is refused, dropping pages before each read.
func (s *Source) bypassCache() {
	if s.direct = openDirect(s.cached, os.O_RDONLY); s.direct != nil {
		return
	}
	s.startDropping()
}

// startDropping prepares reads that drop pages first. It writes dirty pages, which cannot be dropped,
// and switches read-ahead off.
func (s *Source) startDropping() {
	fd := int(s.cached.Fd())
	s.drop = true
	if unix.Fdatasync(fd) != nil || unix.Fadvise(fd, 0, 0, unix.FADV_RANDOM) != nil {
		s.unproven.Store(true)
	}
}

// dropCached removes r from the page cache. It reports whether the kernel confirmed for each page that
// it is not cached.
func dropCached(file *os.File, r disk.Range) bool {
	if r.Empty() {
		return true
	}
	page := int64(os.Getpagesize())
	start := r.Off &^ (page - 1)
	n := (r.End() - start + page - 1) &^ (page - 1)
	if unix.Fadvise(int(file.Fd()), start, n, unix.FADV_DONTNEED) != nil {
		return false
	}
	mem, err := unix.Mmap(int(file.Fd()), start, int(n), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return false
	}
	defer unix.Munmap(mem)
	return noneResident(mem, int(n/page))
}

// inMemory reports whether a file is on tmpfs or ramfs. A device node may be there as well, but not its
// bytes.
func inMemory(file *os.File) bool {
	if isDevice(file.Name()) {
		return false
	}
	var st unix.Statfs_t
	err := unix.Fstatfs(int(file.Fd()), &st)
	return err == nil && (st.Type == unix.TMPFS_MAGIC || st.Type == unix.RAMFS_MAGIC)
}

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
