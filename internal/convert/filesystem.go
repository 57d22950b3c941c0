package convert

import (
	"context"
	"io"

	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/guest/extwrite"
)

// A FileSystem is the interface of a file system for conversions: files are read, replaced, extended
// and created, but not removed. Implementations are extwrite.FS and a file system that an Appliance has
// mounted. Paths have no leading slash. Links are followed within the file system, except for the last
// name of a path in Readlink. The error for a missing file is fs.ErrNotExist, and for missing space
// fault.Full.
type FileSystem interface {
	// ReadFile returns the content of a file. It fails if the file exceeds limit bytes.
	ReadFile(path string, limit int64) ([]byte, error)

	// Size returns the size of the file or folder at path in bytes.
	Size(path string) (int64, error)

	// Names returns the names in a folder, in any order, without "." and "..".
	Names(path string) ([]string, error)

	Readlink(path string) (string, error) // Readlink returns the target of a symbolic link.

	// WriteFile replaces the content of a file, or creates a file with the attributes of a. Its folder
	// must exist.
	WriteFile(path string, data []byte, a extwrite.Attr) error

	AppendFile(path string, data []byte) error // AppendFile adds data to the end of an existing file.
	Mkdir(path string, a extwrite.Attr) error  // Mkdir creates a folder; its parent must exist.
	Symlink(path, target string) error         // Symlink creates a symbolic link.

	// Flush writes all changes to the disk.
	Flush() error
}

// A Device contains one file system, from its first byte on.
type Device interface {
	io.ReaderAt
	io.WriterAt
	Size() int64 // bytes
}

// An Appliance mounts file systems that this process cannot write.
type Appliance interface {
	// Mount mounts one or two volumes in their order. Both may be on one Device, with different
	// subvolumes. Until Close, other goroutines read and write the devices, one at a time. Mounting
	// replays a journal that is not empty.
	Mount(ctx context.Context, volumes []Volume) (Mounted, error)
}

// A Volume is a file system that an Appliance mounts.
type Volume struct {
	Name      string           // name for messages: "sda2"
	Kind      guest.FileSystem // type of the file system
	Device    Device           // content of the volume
	Subvolume string           // folder of btrfs that is the root; empty means the default subvolume
}

// Mounted is a set of file systems that an Appliance has mounted.
type Mounted interface {
	FileSystem(i int) FileSystem // FileSystem returns the file system of volume i, in the order of Mount.

	// Replayed returns the names of the volumes whose journals were replayed.
	Replayed() []string

	// Unmount writes all changes and ends the appliance. The devices are consistent and contain the
	// changes only if it succeeds.
	Unmount() error

	// Close ends the appliance. Without a successful Unmount the devices may be inconsistent.
	Close() error
}
