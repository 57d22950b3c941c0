package rawfile

import (
	"os"
	"path/filepath"
	"sync"

	"github.com/decamp/decamp/internal/atomicfile"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/bitmap"
)

// Align is the block size of direct I/O in bytes. Offset, length and memory are multiples of it. Every
// file system and device accepts 4096; some also accept 512.
const Align = 4096

// writtenGrain is the number of bytes of a new file that one bit of File.written represents.
const writtenGrain = 1 << 20

// Options determine how an image is written. The zero value suits nearly all uses.
type Options struct {
	// Size is the size of the disk in bytes for Open. 0 is the size of the file or device. A device may be
	// larger than the disk, because LVM rounds up; a file may not. An empty file, which a killed Create
	// leaves, is extended to Size.
	Size int64

	// Mode is the first Mode to try. If the file system refuses it, the next ones are tried.
	Mode Mode
}

// A File is a raw image that is written. It is a disk.Target.
type File struct {
	path    string         // path of the image, for errors
	size    int64          // size of the disk in bytes
	device  bool           // the image is a block device
	mode    Mode           // how the image is written
	cached  *os.File       // file for all access that is not direct
	direct  *os.File       // O_DIRECT; nil unless mode is Direct
	buffers *bufferPool    // buffers for writes from memory that is not aligned
	behind  *writeBehind   // write-back of the page cache; nil unless mode is Behind
	written *bitmap.Bitmap // written parts of a new file; nil means that any byte may hold data

	serialize bool       // writes run one at a time, because concurrent ones would only wait by spinning (tmpfs)
	writeMu   sync.Mutex // held during a write if serialize is true

	mu     sync.Mutex // guards the fields below
	broken error      // first error of Sync: data that was written before may be lost
	closed bool       // Close was called
}

// Create makes a new sparse file of size bytes that reads as zeros. It fails with
// fault.Conflict if path exists. The file's name is durable on return.
func Create(path string, size int64, o Options) (*File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, openFault("create", path, err)
	}
	f := &File{path: path, size: size, cached: file, buffers: newBuffers()}
	if err := f.initCreated(o); err != nil {
		_ = f.Close() // the first error has more information
		_ = os.Remove(path)
		return nil, err
	}
	return f, nil
}

// initCreated locks the new file, sets its length, chooses the mode and syncs the folder.
func (f *File) initCreated(o Options) error {
	if err := lockFile(f.cached); err != nil {
		return err
	}
	if err := f.cached.Truncate(f.size); err != nil {
		return f.newFault("create", disk.Range{Len: f.size}, err)
	}
	f.written = bitmap.New(f.size, writtenGrain)
	f.chooseMode(o.Mode)
	return atomicfile.Sync(filepath.Dir(f.path))
}

// Open opens an image or a block device to continue writing. Its content is unknown: Zero writes zeros.
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
	if err := f.initOpened(o); err != nil {
		_ = f.Close() // the first error has more information
		return nil, err
	}
	return f, nil
}

// initOpened locks the file, and determines its size and mode.
func (f *File) initOpened(o Options) error {
	if err := lockFile(f.cached); err != nil {
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

// Size returns the disk's size in bytes.
func (f *File) Size() int64 { return f.size }

// Mode returns how the image is written.
func (f *File) Mode() Mode { return f.mode }

// Hints returns requests of 4 MiB in four streams, which keep a device busy.
func (f *File) Hints() disk.Hints {
	return disk.Hints{Request: 4 << 20, Streams: 4, Align: Align}
}
