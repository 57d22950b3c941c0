package convert

import (
	"context"
	"io"

	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/guest/extwrite"
)

// A FileSystem is the interface of a file system for conversions: files are read, replaced, appended to
// and created; nothing is removed. extwrite.FS implements it, and a file system mounted by an
// Appliance. Paths have no leading slash, and links are followed within the file system, except for the
// last name of a path in Readlink. A missing file is fs.ErrNotExist; no space is fault.Full.
type FileSystem interface {
	// ReadFile returns a file, which has limit bytes at most.
	ReadFile(path string, limit int64) ([]byte, error)

	// Size returns the bytes of the file or folder at path.
	Size(path string) (int64, error)

	// Names returns the names in a folder, in any order, without "." and "..".
	Names(path string) ([]string, error)

	Readlink(path string) (string, error)

	// WriteFile replaces a file's content, or makes a file in a folder that is there.
	WriteFile(path string, data []byte, a extwrite.Attr) error

	AppendFile(path string, data []byte) error
	Mkdir(path string, a extwrite.Attr) error
	Symlink(path, target string) error

	// Flush has everything written to the disk.
	Flush() error
}

// A Device holds one file system, from its first byte on.
type Device interface {
	io.ReaderAt
	io.WriterAt
	Size() int64 // bytes
}

// An Appliance mounts file systems that this process cannot write.
type Appliance interface {
	// Mount returns what mounts the volumes, one or two, in their order. Two may be on one
	// Device, with different subvolumes. The devices are read and written by other goroutines,
	// never two at a time, until Close. Mounting replays a journal that holds something.
	Mount(ctx context.Context, volumes []Volume) (Mounted, error)
}

// A Volume is what an Appliance mounts.
type Volume struct {
	Name      string // name for messages: "sda2"
	Kind      guest.FileSystem
	Device    Device
	Subvolume string // btrfs: the folder that is the root; empty is the default subvolume
}

// Mounted are file systems that are mounted elsewhere.
type Mounted interface {
	FileSystem(i int) FileSystem

	// Replayed names the volumes whose journals held something.
	Replayed() []string

	// Unmount writes all changes, and ends. Only after its success the devices contain the changes and
	// consistent file systems.
	// written, and whole file systems.
	Unmount() error

	// Close ends. Without Unmount before it, devices are left as they happen to be.
	Close() error
}
