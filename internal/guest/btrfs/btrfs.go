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

// MaxReads limits the tree blocks that one call reads.
const MaxReads = 8192

const (
	superOffset = 64 << 10 // bytes before the first superblock
	superSize   = 4096     // bytes of the superblock
	knownFlags  = 0x10fff  // incompatible features except zones, stripe trees and extent trees of version 2

	treeFS   = 5   // ID of the top-level subvolume
	rootDir  = 256 // inode of each subvolume's root folder
	maxLevel = 8   // levels of a tree
)

// FS is a btrfs file system on one device. It is not safe for concurrent use.
type FS struct {
	*tree.Tree
	r        budget.Reader     // device from its first byte
	device   uint64            // ID of the device
	nodeSize int64             // bytes of a tree block
	size     int64             // bytes of all devices
	used     int64             // bytes in use
	chunks   []chunk           // chunks sorted by logical address, without duplicates
	roots    blockRef          // root of the tree of trees
	reads    int               // tree blocks read in the current call, at most MaxReads
	cached   map[uint64][]byte // tree blocks by logical address, at most maxCached
}

// A blockRef refers to a tree block.
type blockRef struct {
	at    uint64 // logical address
	level byte   // level above the leaves, which have 0
}

// Open reads the superblock, the chunk tree, and the default subvolume of the file system on r.
func Open(r budget.Reader) (*FS, error) {
	s := make([]byte, superSize)
	if _, err := r.ReadAt(s, superOffset); err != nil {
		return nil, err
	}
	if string(s[64:72]) != "_BHRfS_M" {
		return nil, errors.New("no btrfs superblock")
	}
	// Offsets: 80 root tree, 88 chunk tree, 112 size, 120 bytes in use, 128 object of the default subvolume, 148
	// node size, 160 and 811 system chunks, 188 features, 198 and 199 levels of the trees, 201 device ID.
	fs := &FS{
		r: r, device: le64(s, 201), nodeSize: int64(le32(s, 148)), size: int64(le64(s, 112)), used: int64(le64(s, 120)),
		roots: blockRef{le64(s, 80), s[198]}, cached: map[uint64][]byte{},
	}
	switch flags := le64(s, 188); {
	case flags&^knownFlags != 0:
		return nil, fmt.Errorf("features %#x are not supported", flags&^knownFlags)
	case fs.nodeSize < 4096 || fs.nodeSize > 64<<10 || fs.nodeSize&(fs.nodeSize-1) != 0:
		return nil, fmt.Errorf("blocks of %d bytes", fs.nodeSize)
	case fs.size <= 0 || fs.used < 0 || fs.used > fs.size:
		return nil, fmt.Errorf("%d bytes used of %d", fs.used, fs.size)
	}
	length := le32(s, 160)
	if length > 2048 {
		return nil, fmt.Errorf("%d bytes of system chunks", length)
	}
	if err := fs.readChunks(s[811:811+length], blockRef{le64(s, 88), s[199]}); err != nil {
		return nil, fmt.Errorf("chunks: %w", err)
	}
	return fs, fs.openDefault(le64(s, 128))
}

// openDefault opens the default subvolume as fs.Tree. dir is the object with the entry "default";
// without it the top-level subvolume is used.
func (fs *FS) openDefault(dir uint64) error {
	id := uint64(treeFS)
	// The entry "default" refers to the subvolume that "btrfs subvolume set-default" has set.
	if e, err := fs.findName(fs.roots, dir, "default"); err == nil && e.kind == keyRoot {
		id = e.object
	}
	top, err := fs.openSubvolume(id)
	if err != nil {
		return err
	}
	fs.Tree = tree.New(top)
	return nil
}

// Usage returns the size and the unused space of all devices.
func (fs *FS) Usage() tree.Usage { return tree.Usage{Size: fs.size, Free: fs.size - fs.used} }

// le16 reads the little-endian 16-bit number at offset at of p.
func le16(p []byte, at int) uint16 { return binary.LittleEndian.Uint16(p[at:]) }

// le32 reads the little-endian 32-bit number at offset at of p.
func le32(p []byte, at int) uint32 { return binary.LittleEndian.Uint32(p[at:]) }

// le64 reads the little-endian 64-bit number at offset at of p.
func le64(p []byte, at int) uint64 { return binary.LittleEndian.Uint64(p[at:]) }
