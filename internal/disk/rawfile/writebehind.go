package rawfile

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/disk"
)

// behindWindow is the largest amount of dirty data in the page cache, in bytes: enough to keep the
// device busy, and too little to affect the host.
const behindWindow = 32 << 20

// A writeBehind limits the page cache that writes use. It starts the write-back of each write at once.
// When the window is full, it waits for the oldest write and drops its pages. It is safe for concurrent
// use.
type writeBehind struct {
	file *os.File // file that is written

	mu     sync.Mutex   // guards the fields below
	queue  []disk.Range // ranges that are being written back, oldest first
	queued int64        // bytes in queue
}

// newBehind returns a writeBehind with room for a window of 64 KiB writes.
func newBehind(file *os.File) *writeBehind {
	return &writeBehind{file: file, queue: make([]disk.Range, 0, behindWindow/(64<<10))}
}

// addWrite adds a range that was just written.
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

// popOldest removes the oldest range if the window is full. It returns false otherwise.
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

// startWriteback starts the write-back of r without waiting for it.
func (b *writeBehind) startWriteback(r disk.Range) error {
	return retryInterrupted(func() error {
		return unix.SyncFileRange(int(b.file.Fd()), r.Off, r.Len, unix.SYNC_FILE_RANGE_WRITE)
	})
}

// dropPages waits until r is written, and removes its pages from the cache.
func (b *writeBehind) dropPages(r disk.Range) error {
	const wait = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	err := retryInterrupted(func() error { return unix.SyncFileRange(int(b.file.Fd()), r.Off, r.Len, wait) })
	if err != nil {
		return err
	}
	return unix.Fadvise(int(b.file.Fd()), r.Off, r.Len, unix.FADV_DONTNEED)
}
