package rawfile

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/disk"
)

// Origins of a Source's bytes, as reports print them.
const (
	MediumDirect  = "O_DIRECT"
	MediumDropped = "medium, cache dropped and proven empty before each read"
	MediumCache   = "page cache"
	MediumMemory  = "memory: the file system has no other medium"
)

// Medium returns the origin of all bytes read so far. Call it after reading: if the cache must be
// dropped for each read, a single failure determines the result.
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

// bypassCache finds a way past the page cache: O_DIRECT, else dropping pages.
func (s *Source) bypassCache() {
	if s.direct = openDirect(s.cached, os.O_RDONLY); s.direct != nil {
		return
	}
	s.startDropping()
}

// startDropping prepares for reads that drop the cache first: dirty pages are written, so that they can
// be dropped, and read-ahead is switched off.
func (s *Source) startDropping() {
	fd := int(s.cached.Fd())
	s.drop = true
	if unix.Fdatasync(fd) != nil || unix.Fadvise(fd, 0, 0, unix.FADV_RANDOM) != nil {
		s.unproven.Store(true)
	}
}

// dropCached removes r from the page cache and reports whether that is verified: the kernel reports for
// each page that it is not cached.
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

// inMemory reports a file on tmpfs or ramfs. A device node lies on one too, its bytes
// do not.
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
