package vmdk

import (
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/fault"
)

const (
	// smallest grain size, in bytes, for which reading by system calls is efficient. Copying a grain of
	// 512 bytes from a mapping takes a fifth of the time of a system call.
	mapBelow = 4096

	// number of positions of a file that are tested for being in the page cache
	mapProbes = 256
)

// A mappable is a file that can be mapped into memory. Only local files implement it.
type mappable interface {
	// mapFile returns the mapping of the whole file, or nil. If the file becomes shorter, reading the
	// mapping raises SIGBUS: see withFaultGuard.
	mapFile() []byte
}

// mapIfSmall maps the file if its grains are smaller than mapBelow and it is in the page cache. For a
// cold file, a page fault would block a whole processor until the device answers; a read does not.
func (f *file) mapIfSmall(grain int64) {
	if m, ok := f.src.(mappable); ok && grain < mapBelow {
		f.memory = m.mapFile()
	}
}

// mapFile maps the file in the first call. It returns nil if the file is empty or not in the page
// cache. It is not safe for concurrent use.
func (f *localFile) mapFile() []byte {
	if f.memory == nil && f.size > 0 && f.inPageCache() {
		if m, err := unix.Mmap(int(f.Fd()), 0, int(f.size), unix.PROT_READ, unix.MAP_SHARED); err == nil {
			f.memory = m
		}
	}
	return f.memory
}

// inPageCache reports whether at most 5 % of mapProbes evenly spaced positions of the file are missing
// from the page cache.
func (f *localFile) inPageCache() bool {
	step := max(f.size/mapProbes, 1)
	iov := [][]byte{make([]byte, 1)}
	asked, missed := 0, 0
	for off := int64(0); off < f.size; off += step {
		asked++
		if _, err := unix.Preadv2(int(f.Fd()), iov, off, unix.RWF_NOWAIT); err != nil {
			missed++
		}
	}
	return missed*20 <= asked
}

// unmapFile removes the mapping, if there is one. No reader may use it any more.
func (f *localFile) unmapFile() error {
	if f.memory == nil {
		return nil
	}
	m := f.memory
	f.memory = nil
	return unix.Munmap(m)
}

// inMemory reports whether run is short, not compressed and in a mapped file.
func (f *file) inMemory(run Run) bool {
	return f.memory != nil && run.Len < mapBelow && run.Packed == 0
}

// copyMapped fills p from off of the mapping, and with zeros after its end. It must run below
// withFaultGuard.
func (f *file) copyMapped(p []byte, off int64) {
	clear(p[copy(p, f.memory[min(off, int64(len(f.memory))):]):])
}

// withFaultGuard calls do, which may read mapped memory. A fault of such a read becomes a
// fault.Conflict error: the file became shorter, or its device failed.
func withFaultGuard(do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if _, ok := p.(interface{ Addr() uintptr }); !ok {
			panic(p)
		}
		err = fault.New(fault.Conflict, "a file of the disk became shorter, or cannot be read any more: %v", p).
			WithHint("read disks without writers: a closed snapshot, or a VM that is powered off")
	}()
	return do()
}
