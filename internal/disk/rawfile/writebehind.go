package rawfile

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/disk"
)

// behindWindow is how many bytes may be dirty in the page cache: enough for the device
// to have work, too little to notice in a host's memory.
const behindWindow = 32 << 20

// behind keeps what goes through the page cache from staying there. It starts the
// write-back of each write at once and, when the window is full, waits for the oldest
// and drops it.
type writeBehind struct {
	file *os.File

	mu     sync.Mutex
	queue  []disk.Range // being written back, oldest first
	queued int64        // bytes in queue
}

// newBehind makes room for a window of 64 KiB writes.
func newBehind(file *os.File) *writeBehind {
	return &writeBehind{file: file, queue: make([]disk.Range, 0, behindWindow/(64<<10))}
}

// addWrite takes a range that was just written.
func (b *writeBehind) addWrite(r disk.Range) error {
	if err := b.startWriteback(r); err != nil {
		return err
	}
	b.mu.Lock()
	b.queue = append(b.queue, r)
	b.queued += r.Len
	b.mu.Unlock()
	for {
		old, ok := b.popOldest()
		if !ok {
			return nil
		}
		if err := b.dropPages(old); err != nil {
			return err
		}
	}
}

// popOldest takes the oldest range out of a full window.
func (b *writeBehind) popOldest() (disk.Range, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.queued <= behindWindow && len(b.queue) < cap(b.queue) {
		return disk.Range{}, false
	}
	old := b.queue[0]
	b.queue = append(b.queue[:0], b.queue[1:]...)
	b.queued -= old.Len
	return old, true
}

// startWriteback begins the write-back of r without waiting for it.
func (b *writeBehind) startWriteback(r disk.Range) error {
	return retryInterrupted(func() error {
		return unix.SyncFileRange(int(b.file.Fd()), r.Off, r.Len, unix.SYNC_FILE_RANGE_WRITE)
	})
}

// dropPages waits until r is written and takes its pages out of the cache.
func (b *writeBehind) dropPages(r disk.Range) error {
	const wait = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	err := retryInterrupted(func() error { return unix.SyncFileRange(int(b.file.Fd()), r.Off, r.Len, wait) })
	if err != nil {
		return err
	}
	return unix.Fadvise(int(b.file.Fd()), r.Off, r.Len, unix.FADV_DONTNEED)
}
