package rawfile

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/disk"
)

// Mode is a way to write without filling the host's memory. See the package comment.
type Mode int

const (
	Direct Mode = iota
	Uncached
	Behind
)

// String names the mode as reports show it.
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

// chooseMode takes the first mode from m on that the file system lets us have.
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

// isTmpfs reports whether a file is in memory, where O_DIRECT is taken and means nothing: the
// inode's lock is held while bytes are copied, and other writers wait for it by spinning.
func isTmpfs(file *os.File) bool {
	var s unix.Statfs_t
	return unix.Fstatfs(int(file.Fd()), &s) == nil && s.Type == unix.TMPFS_MAGIC
}

// openDirect opens file a second time, for direct I/O; nil if that is refused. Going by
// /proc it is surely the same file, whatever its name refers to by now.
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

// directWorks reads a block: some file systems accept O_DIRECT and refuse the I/O.
func directWorks(link string) bool {
	file, err := os.OpenFile(link, os.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		return false
	}
	defer file.Close()
	_, err = unix.Pread(int(file.Fd()), disk.AlignedMemory(Align), 0)
	return err == nil
}

// dontCacheWorks tests with a read of one byte: both kernel and file system must support RWF_DONTCACHE.
func dontCacheWorks(file *os.File) bool {
	var b [1]byte
	_, err := preadv2(int(file.Fd()), b[:], 0, unix.RWF_DONTCACHE)
	return err == nil
}

// preadv2 and pwritev2 are unix.Preadv2 and Pwritev2 for one buffer, without garbage.
func preadv2(fd int, p []byte, off int64, flags int) (int, error) {
	return rwv2(unix.SYS_PREADV2, fd, p, off, flags)
}

func pwritev2(fd int, p []byte, off int64, flags int) (int, error) {
	return rwv2(unix.SYS_PWRITEV2, fd, p, off, flags)
}

// rwv2 passes the offset as the kernel wants it: low and high 32 bits of a long each on
// 32-bit machines; on 64-bit ones the low word has it all and the high word is ignored.
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
