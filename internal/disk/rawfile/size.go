package rawfile

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

// completeCreate sets the length of an empty file to size. A killed Create leaves such a file.
func (f *File) completeCreate(size int64) error {
	info, err := f.cached.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > 0 || size == 0 {
		return err
	}
	if err := f.cached.Truncate(size); err != nil {
		return f.newFault("create", disk.Range{Len: size}, err)
	}
	return nil
}

// Grow durably enlarges the image to size bytes. The added part reads as zeros. It must be called
// directly after Open, before the size is used. After an error the File must not be used.
func (f *File) Grow(ctx context.Context, size int64) error {
	was := f.size
	if size < was {
		return fault.New(fault.Internal, "grow image %s from %d bytes to %d", f.path, was, size)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	f.size = size // size for the remedy
	if err := f.cached.Truncate(size); err != nil {
		return f.newFault("grow", disk.Range{Off: was, Len: size - was}, err)
	}
	return f.Sync(ctx)
}

// imageSize returns the size of the disk in file: want, or the size of the file if want is 0. It fails
// with fault.Conflict if the file has another size.
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

// isDevice reports whether path is a block device.
func isDevice(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().Type() == os.ModeDevice // character devices have another bit set
}
