// Package btrfs reads files and folders of btrfs on untrusted media.
//
// It supports the profiles single, DUP and RAID1, each from this one device, and files that are plain
// or compressed with zlib or zstd. LZO, striped profiles and newer tree formats are named in the error.
// The log is not replayed: changes synced just before a crash are not visible.
//
// A folder's entry may refer to another subvolume; it is entered like any folder. Each call reads at
// most MaxReads tree blocks. The layout is that of the section "On-disk Format" of the btrfs
// documentation.
package btrfs

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/decamp/decamp/internal/guest/budget"
	"github.com/decamp/decamp/internal/guest/tree"
)

// MaxReads bounds the blocks of trees read for one call.
const MaxReads = 8192

const (
	superOffset = 64 << 10
	superSize   = 4096
	knownFlags  = 0x10fff // all but zones, stripe trees and extent trees of version 2

	treeFS   = 5
	rootDir  = 256 // inode of each subvolume's top
	maxLevel = 8
)

// FS is a btrfs file system.
type FS struct {
	*tree.Tree
	r        budget.Reader
	device   uint64
	nodeSize int64 // bytes
	size     int64 // bytes
	used     int64 // bytes
	chunks   []chunk
	roots    block // the tree of trees
	reads    int
	held     map[uint64][]byte // blocks of trees that were read, maxHeld at most
}

// A block identifies a block of a tree: its address, and its level above the leaves.
type block struct {
	at    uint64
	level byte
}

// Open reads the superblock, the map of chunks, and the default subvolume.
func Open(r budget.Reader) (*FS, error) {
	s := make([]byte, superSize)
	if _, err := r.ReadAt(s, superOffset); err != nil {
		return nil, err
	}
	if string(s[64:72]) != "_BHRfS_M" {
		return nil, errors.New("no btrfs superblock")
	}
	fs := &FS{
		r: r, device: le64(s, 201), nodeSize: int64(le32(s, 148)), size: int64(le64(s, 112)), used: int64(le64(s, 120)),
		roots: block{le64(s, 80), s[198]}, held: map[uint64][]byte{},
	}
	switch flags := le64(s, 188); {
	case flags&^knownFlags != 0:
		return nil, fmt.Errorf("features %#x are not understood", flags&^knownFlags)
	case fs.nodeSize < 4096 || fs.nodeSize > 64<<10 || fs.nodeSize&(fs.nodeSize-1) != 0:
		return nil, fmt.Errorf("blocks of %d bytes", fs.nodeSize)
	case fs.size <= 0 || fs.used < 0 || fs.used > fs.size:
		return nil, fmt.Errorf("%d bytes used of %d", fs.used, fs.size)
	}
	length := le32(s, 160)
	if length > 2048 {
		return nil, fmt.Errorf("%d bytes of system chunks", length)
	}
	if err := fs.readChunks(s[811:811+length], block{le64(s, 88), s[199]}); err != nil {
		return nil, fmt.Errorf("chunks: %w", err)
	}
	return fs, fs.mount(le64(s, 128))
}

// mount makes the tree of the default subvolume.
func (fs *FS) mount(dir uint64) error {
	id := uint64(treeFS)
	if e, err := fs.find(fs.roots, dir, "default"); err == nil && e.kind == keyRoot {
		id = e.object
	}
	top, err := fs.subvolume(id)
	if err != nil {
		return err
	}
	fs.Tree = tree.New(top)
	return nil
}

// Usage returns how full the file system is.
func (fs *FS) Usage() tree.Usage { return tree.Usage{Size: fs.size, Free: fs.size - fs.used} }

func le16(p []byte, at int) uint16 { return binary.LittleEndian.Uint16(p[at:]) }
func le32(p []byte, at int) uint32 { return binary.LittleEndian.Uint32(p[at:]) }
func le64(p []byte, at int) uint64 { return binary.LittleEndian.Uint64(p[at:]) }
