// Package extwrite changes single files of ext2, ext3 and ext4 file systems: it replaces
// them, appends to them and makes new files, folders and symbolic links. It never removes
// a name.
//
// # What is promised
//
//   - What is not understood is not touched: features stand on a list, and whatever is not
//     on it is refused by name. So is a file system that was not unmounted cleanly; its
//     journal is not replayed.
//   - A call that fails changed nothing. One that succeeds is staged in memory until Flush.
//   - After Flush, e2fsck -f finds nothing to mend: bitmaps, counts, extent trees, indexed
//     folders and checksums are those that the kernel would have left.
//
// # What is not
//
// Flush writes block by block and past the journal: who is killed within it leaves a file
// system to be mended. So it is for a layer that is thrown away then, never for a disk that
// cannot be had again. New files get no access control lists.
//
// # Bounds
//
// Whatever the bytes say: a file that is changed has at most maxRuns runs of blocks, a folder
// at most maxDir bytes, a path at most maxLinks links, and staged changes take at most
// maxStaged of memory.
//
// The layout is the kernel's, Documentation/filesystems/ext4.
package extwrite

import (
	"fmt"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest/budget"
)

// A Disk holds the file system, from the disk's first byte on.
type Disk = budget.ReadWriter

// Bounds, see the package comment.
const (
	maxRuns   = 1 << 16
	maxDir    = 16 << 20
	maxLinks  = 16
	maxPath   = 4096
	maxStaged = 512 << 20
)

// FS is a file system that is being changed: its operations on paths, each staged as a whole
// or not at all. It owns the types below, which share its superblock and its stage. None of
// them has a lock: FS is for one goroutine.
//
//	resolver    paths
//	folders     names, hash trees
//	mappings    which blocks a file has
//	inodeTable  inodes, their times, checksums and labels
//	allocator   which blocks and inodes are free
//	groupTable  descriptors, bitmaps, counts
//	stage       blocks, changed and as they were read
type FS struct {
	super   *super
	stage   *stage
	now     func() time.Time
	groups  *groupTable
	alloc   *allocator
	inodes  *inodeTable
	maps    *mappings
	folders *folders
	paths   *resolver
}

// Open reads the file system on disk. The error is fault.Unsupported with the obstacle if it cannot be
// changed safely, and fault.Conflict if it was not unmounted cleanly. New and changed files get the
// time of now.
func Open(disk Disk, now func() time.Time) (*FS, error) {
	raw := make([]byte, superSize)
	if _, err := disk.ReadAt(raw, superOffset); err != nil {
		return nil, fmt.Errorf("read the superblock: %w", err)
	}
	s, err := parseSuper(raw)
	if err != nil {
		return nil, err
	}
	return newFS(s, newStage(disk, s.blockSize, s.blocks), now), nil
}

func newFS(s *super, st *stage, now func() time.Time) *FS {
	fs := &FS{super: s, stage: st, now: now}
	fs.groups = &groupTable{super: s, stage: st, touched: map[int64]bool{}}
	fs.alloc = &allocator{super: s, groups: fs.groups}
	fs.inodes = &inodeTable{super: s, stage: st, now: now, groups: fs.groups}
	fs.maps = &mappings{super: s, stage: st, alloc: fs.alloc}
	fs.folders = &folders{super: s, stage: st, groups: fs.groups, inodes: fs.inodes, maps: fs.maps}
	fs.paths = &resolver{inodes: fs.inodes, maps: fs.maps, folders: fs.folders}
	return fs
}

// Free returns the bytes that are free, those kept for root included.
func (fs *FS) Free() (int64, error) {
	s, err := fs.groups.superblock()
	if err != nil {
		return 0, err
	}
	return fs.super.freeBlocks(s) * fs.super.blockSize, nil
}

// Flush writes the staged blocks. After an error the state of the file system is unknown.
func (fs *FS) Flush() error { return fs.stage.flush() }

// do runs one change: all of it is staged, or nothing.
func (fs *FS) do(what, path string, change func() error) error {
	fs.groups.begin()
	err := change()
	if err == nil {
		err = fs.groups.seal(fs.now())
	}
	if err != nil {
		fs.stage.drop()
		return fmt.Errorf("%s %s: %w", what, path, err)
	}
	fs.stage.keep()
	return nil
}

// corrupt is the error of bytes that cannot be.
func corrupt(format string, args ...any) error {
	return fault.New(fault.Corrupt, format, args...).WithHint("have the guest check its file system (touch /forcefsck or fsck.mode=force), and try again")
}
