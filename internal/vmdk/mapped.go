package vmdk

import (
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/fault"
)

const (
	// mapBelow is the grain size, in bytes, from which a system call for each grain costs
	// less than the rest. Taking a grain of 512 bytes out of mapped memory needs a fifth
	// of the time.
	mapBelow = 4096

	// mapProbes is how many places of a file are asked whether they are in the page cache.
	mapProbes = 256
)

// mapper is a file that can be had as memory: a local one.
type mappable interface {
	// mapping returns the file as memory that ends with it, or nil. Reading memory that
	// the file lost since raises SIGBUS: see guard.
	mapFile() []byte
}

// mapIfSmall maps a file whose grains are small, if it is in the page cache. From a cold
// one a page fault would stop a whole processor until the device answers, which a read
// does not.
func (f *file) mapIfSmall(grain int64) {
	if m, ok := f.src.(mappable); ok && grain < mapBelow {
		f.memory = m.mapFile()
	}
}

// mapFile maps the file on the first call.
func (f *localFile) mapFile() []byte {
	if f.memory == nil && f.size > 0 && f.inPageCache() {
		if m, err := unix.Mmap(int(f.Fd()), 0, int(f.size), unix.PROT_READ, unix.MAP_SHARED); err == nil {
			f.memory = m
		}
	}
	return f.memory
}

// inPageCache samples positions, evenly spread, to estimate whether reads would wait for the disk.
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

func (f *localFile) unmapFile() error {
	if f.memory == nil {
		return nil
	}
	m := f.memory
	f.memory = nil
	return unix.Munmap(m)
}

// inMemory reports whether run can be read from mapped memory.
func (f *file) inMemory(run Run) bool {
	return f.memory != nil && run.Len < mapBelow && run.Packed == 0
}

// copyMapped fills p from off of the mapped file.
func (f *file) copyMapped(p []byte, off int64) {
	clear(p[copy(p, f.memory[min(off, int64(len(f.memory))):]):])
}

// withFaultGuard calls do, in which mapped memory may be read, and turns the fault that reading it
// raises into an error: the file became shorter, or its device failed.
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
