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
type behind struct {
	file *os.File

	mu     sync.Mutex
	queue  []disk.Range // being written back, oldest first
	queued int64        // bytes in queue
}

// newBehind makes room for a window of 64 KiB writes.
func newBehind(file *os.File) *behind {
	return &behind{file: file, queue: make([]disk.Range, 0, behindWindow/(64<<10))}
}

// wrote takes a range that was just written.
func (b *behind) wrote(r disk.Range) error {
	if err := b.start(r); err != nil {
		return err
	}
	b.mu.Lock()
	b.queue = append(b.queue, r)
	b.queued += r.Len
	b.mu.Unlock()
	for {
		old, ok := b.pop()
		if !ok {
			return nil
		}
		if err := b.drop(old); err != nil {
			return err
		}
	}
}

// pop takes the oldest range out of a full window.
func (b *behind) pop() (disk.Range, bool) {
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

// start begins the write-back of r without waiting for it.
func (b *behind) start(r disk.Range) error {
	return retry(func() error {
		return unix.SyncFileRange(int(b.file.Fd()), r.Off, r.Len, unix.SYNC_FILE_RANGE_WRITE)
	})
}

// drop waits until r is written and takes its pages out of the cache.
func (b *behind) drop(r disk.Range) error {
	const wait = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	err := retry(func() error { return unix.SyncFileRange(int(b.file.Fd()), r.Off, r.Len, wait) })
	if err != nil {
		return err
	}
	return unix.Fadvise(int(b.file.Fd()), r.Off, r.Len, unix.FADV_DONTNEED)
}
