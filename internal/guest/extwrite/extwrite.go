// Package extwrite changes single files of ext2, ext3 and ext4 file systems: it replaces
// them, appends to them and makes new files, folders and symbolic links. It never removes
// a name.
//
// # Guarantees
//
//   - Only supported features are changed: there is a list of them, and a file system with any
//     other feature is refused with an error that names it. A file system that was not unmounted
//     cleanly is refused, too; its journal is not replayed.
//   - A call that fails changes nothing. A call that succeeds is staged in memory until Flush.
//   - After Flush, e2fsck -f finds no errors: bitmaps, counts, extent trees, indexed folders and
//     checksums are those that the kernel would have written.
//
// # Limitations
//
// Flush writes block by block and does not use the journal: a crash during Flush leaves a damaged
// file system. Use it only on an overlay that can be discarded, never on the only copy of a disk.
// New files do not get access control lists.
//
// # Bounds
//
// For any content of the disk: a file that is changed has at most maxRuns runs of blocks, a folder
// at most maxDir bytes, a path at most maxLinks links, staged changes use at most maxStaged bytes of
// memory, and unchanged blocks maxClean bytes. Reads and blocks in memory are charged to the disk's budget.
//
// The layout is the kernel's, Documentation/filesystems/ext4.
package extwrite

import (
	"fmt"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest/budget"
)

// A Disk contains the file system, from the disk's first byte on.
type Disk = budget.ReadWriter

// Limits; see the package comment.
const (
	maxRuns   = 1 << 16   // runs of one file, and tables of one file
	maxDir    = 16 << 20  // bytes of one folder
	maxLinks  = 16        // symbolic links followed in one path
	maxPath   = 4096      // bytes of a path, also after a link was replaced by its target
	maxStaged = 512 << 20 // bytes of changed blocks in memory
)

// FS is a file system with staged changes. Its methods operate on paths; each is staged as a whole
// or not at all. FS owns the types below, which share its superblock and its stage. It is not safe
// for concurrent use.
//
//	resolver    paths
//	folders     names, hash trees
//	mappings    blocks of files
//	inodeTable  inodes, their times, checksums and labels
//	allocator   free blocks and inodes
//	groupTable  descriptors, bitmaps, counts
//	stage       changed and unchanged blocks
type FS struct {
	super   *super           // fields of the superblock that do not change
	stage   *stage           // changed blocks, in memory until Flush
	now     func() time.Time // clock for the times of files and of the superblock
	groups  *groupTable      // descriptors, bitmaps and counts
	alloc   *allocator       // allocation of blocks and inodes
	inodes  *inodeTable      // access to inodes
	maps    *mappings        // access to the blocks of a file
	folders *folders         // access to names
	paths   *resolver        // resolution of paths
}

// Open reads the superblock of the file system on disk; it does not write. The error is
// fault.Unsupported if the file system has a feature that this package cannot change safely, and
// fault.Conflict if it was not unmounted cleanly. New and changed files get the time that now returns.
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

// newFS connects the parts of an FS, which share s and st.
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

// Free returns the free bytes, including those reserved for root. Staged changes are counted.
func (fs *FS) Free() (int64, error) {
	s, err := fs.groups.superblock()
	if err != nil {
		return 0, err
	}
	return fs.super.freeBlocks(s) * fs.super.blockSize, nil
}

// Flush writes the staged blocks to the disk. If it fails, some blocks may be written and others
// not; the caller must discard the disk's content.
func (fs *FS) Flush() error { return fs.stage.flush() }

// runChange runs one change and stages it as a whole. If change fails, all its blocks are dropped and
// the error gets what and path as a prefix.
func (fs *FS) runChange(what, path string, change func() error) error {
	fs.groups.resetTouched()
	err := change()
	if err == nil {
		err = fs.groups.updateChecksums(fs.now())
	}
	if err != nil {
		fs.stage.dropPending()
		return fmt.Errorf("%s %s: %w", what, path, err)
	}
	fs.stage.stagePending()
	return nil
}

// corrupt returns a fault.Corrupt error for data that violates the file system's format. Its hint
// recommends a file system check in the guest.
func corrupt(format string, args ...any) error {
	return fault.New(fault.Corrupt, format, args...).WithHint("check the file system in the guest (touch /forcefsck, or boot with fsck.mode=force), and copy it again")
}
