package rawfile

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/disk"
)

// A Mode is a way to write without filling the host's memory. See the package comment.
type Mode int

const (
	Direct   Mode = iota // O_DIRECT
	Uncached             // RWF_DONTCACHE, Linux 6.14
	Behind               // page cache with early write-back
)

// String returns the mode as reports show it.
func (m Mode) String() string {
	switch m {
	case Direct:
		return "O_DIRECT"
	case Uncached:
		return "RWF_DONTCACHE"
	case Behind:
		return "page cache, written behind"
	}
	return fmt.Sprintf("mode(%d)", int(m))
}

// chooseMode sets the first mode from m on that the file system supports.
func (f *File) chooseMode(m Mode) {
	f.mode, f.serialize = m, isTmpfs(f.cached)
	if f.mode == Direct {
		if f.direct = openDirect(f.cached, os.O_WRONLY); f.direct == nil {
			f.mode = Uncached
		}
	}
	if f.mode == Uncached && !dontCacheWorks(f.cached) {
		f.mode = Behind
	}
	if f.mode == Behind {
		f.behind = newBehind(f.cached)
	}
}

// isTmpfs reports whether a file is on tmpfs. There O_DIRECT is accepted but has no effect, the inode
// is locked while bytes are copied, and other writers wait for it by spinning.
func isTmpfs(file *os.File) bool {
	var s unix.Statfs_t
	return unix.Fstatfs(int(file.Fd()), &s) == nil && s.Type == unix.TMPFS_MAGIC
}

// openDirect opens file a second time for direct I/O. It returns nil if that is refused. The path in
// /proc is always the same file, even if the file's name has changed.
func openDirect(file *os.File, access int) *os.File {
	link := fmt.Sprintf("/proc/self/fd/%d", file.Fd())
	direct, err := os.OpenFile(link, access|unix.O_DIRECT, 0)
	if err != nil {
		return nil
	}
	if !directWorks(link) {
		_ = direct.Close() // nothing was done with it
		return nil
	}
	return direct
}

// directWorks reports whether a block can be read. Some file systems accept O_DIRECT and then refuse
// the I/O.
func directWorks(link string) bool {
	file, err := os.OpenFile(link, os.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		return false
	}
	defer file.Close()
	_, err = unix.Pread(int(file.Fd()), disk.AlignedMemory(Align), 0)
	return err == nil
}

// dontCacheWorks reports whether a read with RWF_DONTCACHE works. Both kernel and file system must
// support the flag.
func dontCacheWorks(file *os.File) bool {
	var b [1]byte
	_, err := preadv2(int(file.Fd()), b[:], 0, unix.RWF_DONTCACHE)
	return err == nil
}

// preadv2 is unix.Preadv2 for one buffer, without allocations.
func preadv2(fd int, p []byte, off int64, flags int) (int, error) {
	return rwv2(unix.SYS_PREADV2, fd, p, off, flags)
}

// pwritev2 is unix.Pwritev2 for one buffer, without allocations.
func pwritev2(fd int, p []byte, off int64, flags int) (int, error) {
	return rwv2(unix.SYS_PWRITEV2, fd, p, off, flags)
}

// rwv2 makes the system call. The kernel expects the offset as low and high word. On 64-bit machines
// the low word has all of it, and the high word is ignored.
func rwv2(call uintptr, fd int, p []byte, off int64, flags int) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	iov := unix.Iovec{Base: &p[0]}
	iov.SetLen(len(p))
	n, _, errno := unix.Syscall6(call, uintptr(fd), uintptr(unsafe.Pointer(&iov)), 1,
		uintptr(off), uintptr(uint64(off)>>32), uintptr(flags))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
