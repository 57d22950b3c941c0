package rawfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/bitmap"
	"github.com/decamp/decamp/internal/fault"
)

// Align is the block size of direct I/O, in bytes: offset, length and memory are
// multiples of it. Every file system and device takes 4096; some would take 512.
const Align = 4096

// writtenGrain is how much of a fresh file one bit stands for.
const writtenGrain = 1 << 20

// Options say how an image is written. The zero value is right for nearly everybody.
type Options struct {
	// Size is the disk's size in bytes for Open; 0 takes what the file or device has.
	// A device may be larger than the disk (LVM rounds up), a file may not; but one
	// without a byte, which a Create that was killed leaves, becomes that large.
	Size int64

	// Mode is the first Mode to try; those after it follow where it is refused.
	Mode Mode
}

// File is a raw image that is being written. It is a disk.Target.
type File struct {
	path    string
	size    int64
	device  bool
	mode    Mode
	cached  *os.File       // for all that is not direct
	direct  *os.File       // O_DIRECT; nil unless mode is Direct
	buffers *buffers       // for memory that is not aligned
	behind  *behind        // nil unless mode is Behind
	written *bitmap.Bitmap // of a fresh file; nil: any byte may hold something

	mu     sync.Mutex
	broken error // the first Sync that failed: what came before it may be lost
	closed bool
}

// Create makes a new sparse file of size bytes that reads as zeros. It fails with
// fault.Conflict if path exists. The file's name is durable on return.
func Create(path string, size int64, o Options) (*File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, openFault("create", path, err)
	}
	f := &File{path: path, size: size, cached: file, buffers: newBuffers()}
	if err := f.create(o); err != nil {
		_ = f.Close() // the first error says more
		_ = os.Remove(path)
		return nil, err
	}
	return f, nil
}

func (f *File) create(o Options) error {
	if err := lock(f.cached); err != nil {
		return err
	}
	if err := f.cached.Truncate(f.size); err != nil {
		return f.fault("create", disk.Range{Len: f.size}, err)
	}
	f.written = bitmap.New(f.size, writtenGrain)
	f.chooseMode(o.Mode)
	return syncFolder(f.path)
}

// Open opens an image, or a block device, to go on writing it. Nothing is assumed about
// what it holds: Zero makes zeros real.
func Open(path string, o Options) (*File, error) {
	flags := os.O_RDWR
	if isDevice(path) {
		flags |= os.O_EXCL // fails if it is mounted or part of something
	}
	file, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return nil, openFault("open", path, err)
	}
	f := &File{path: path, cached: file, buffers: newBuffers(), device: isDevice(path)}
	if err := f.open(o); err != nil {
		_ = f.Close() // the first error says more
		return nil, err
	}
	return f, nil
}

func (f *File) open(o Options) error {
	if err := lock(f.cached); err != nil {
		return err
	}
	if err := f.completeCreate(o.Size); err != nil {
		return err
	}
	size, err := imageSize(f.cached, o.Size)
	if err != nil {
		return err
	}
	f.size = size
	f.chooseMode(o.Mode)
	return nil
}

// completeCreate gives a file without a byte its size.
func (f *File) completeCreate(size int64) error {
	info, err := f.cached.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > 0 || size == 0 {
		return err
	}
	if err := f.cached.Truncate(size); err != nil {
		return f.fault("create", disk.Range{Len: size}, err)
	}
	return nil
}

// imageSize returns the size of the disk in file: want, or all there is if want is 0.
func imageSize(file *os.File, want int64) (int64, error) {
	info, err := file.Stat()
	if err != nil {
		return 0, fmt.Errorf("open image %s: %w", file.Name(), err)
	}
	device := info.Mode().Type() == os.ModeDevice
	if !device && !info.Mode().IsRegular() {
		return 0, fault.New(fault.Invalid, "open image %s: neither a file nor a block device", file.Name()).
			WithHint("name a file or a block device")
	}
	has, err := file.Seek(0, io.SeekEnd) // a device's Stat has no size
	if err != nil {
		return 0, fmt.Errorf("size of image %s: %w", file.Name(), err)
	}
	if want == 0 {
		want = has
	}
	if want == has || device && want < has {
		return want, nil
	}
	return 0, fault.New(fault.Conflict, "open image %s: it has %d bytes, the disk %d", file.Name(), has, want).
		WithHint("it belongs to another disk, or the disk was resized: move %s away and start again", file.Name())
}

// isDevice reports a block device.
func isDevice(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().Type() == os.ModeDevice // character devices have another bit set
}

// Size returns the disk's size in bytes.
func (f *File) Size() int64 { return f.size }

// Mode says how the image is written.
func (f *File) Mode() Mode { return f.mode }

// Hints: 1 MiB and more is fast; four streams fill what one leaves idle.
func (f *File) Hints() disk.Hints {
	return disk.Hints{Request: 4 << 20, Streams: 4, Align: Align}
}

// Sync returns once all that was written would survive power loss. After one failure it
// fails for good: the kernel reports a lost page once and then forgets it. Opened again,
// the image goes on from its manifest.
func (f *File) Sync(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f.mu.Lock()
	broken := f.broken
	f.mu.Unlock()
	if broken != nil {
		return broken
	}
	err := retry(func() error { return unix.Fdatasync(int(f.cached.Fd())) })
	if err == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken = f.fault("sync", disk.Range{Len: f.size}, err)
	return f.broken
}

// Finish syncs the image and its folder and releases it.
func (f *File) Finish(ctx context.Context) error {
	if err := f.Sync(ctx); err != nil {
		return err
	}
	if !f.device {
		if err := f.cached.Sync(); err != nil { // what fdatasync leaves out: times, owner
			return f.fault("sync", disk.Range{Len: f.size}, err)
		}
		if err := syncFolder(f.path); err != nil {
			return err
		}
	}
	return f.Close()
}

// Close releases the image. Without Finish what was written since the last Sync may be
// lost in a power cut.
func (f *File) Close() error {
	f.mu.Lock()
	closed := f.closed
	f.closed = true
	f.mu.Unlock()
	if closed {
		return nil
	}
	var err error
	if f.direct != nil {
		err = f.direct.Close()
	}
	return errors.Join(err, f.cached.Close())
}

// syncFolder makes the name of a file in its folder durable.
func syncFolder(path string) error {
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("sync folder of %s: %w", path, err)
	}
	defer folder.Close()
	if err := folder.Sync(); err != nil {
		return fmt.Errorf("sync folder of %s: %w", path, err)
	}
	return nil
}
