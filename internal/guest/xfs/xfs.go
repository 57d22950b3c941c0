// Package xfs reads files and folders of XFS, versions 4 and 5, on untrusted media.
//
// It supports names, links and contents, but no attributes, quotas, realtime device or log: changes just before
// a crash are not visible. Folders are searched linearly; their hash tables are not used.
//
// Each call takes at most MaxReads reads of one block, and one of at most a MiB for each run of blocks of a
// file's content. The layout is that of the kernel's Documentation/filesystems/xfs, and of "XFS Algorithms &
// Data Structures".
package xfs

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/decamp/decamp/internal/guest/budget"
	"github.com/decamp/decamp/internal/guest/tree"
)

// MaxReads limits the blocks of metadata and folders that one call reads.
const MaxReads = 8192

const (
	superSize = 512 // bytes of the superblock that are read

	incompatFtype  = 0x1   // ftype: entries contain the kind of the file
	incompatNrext  = 0x20  // nrext64: counts of extents have 64 bits
	incompatKnown  = 0x1ff // incompatible features that do not affect reading
	features2Ftype = 0x200 // the same feature as incompatFtype in version 4
)

// FS is an XFS file system. It is not safe for concurrent use.
type FS struct {
	*tree.Tree
	r         budget.Reader // file system from its first byte
	version   int           // 4 or 5
	blockSize int64         // bytes of a block
	blocks    int64         // number of blocks
	free      int64         // blocks that are not in use
	agBlocks  int64         // blocks of an allocation group
	agLog     uint          // bits of a block's number within its group
	inodeLog  uint          // bits of an inode's number within its block
	inodeSize int64         // bytes of an inode
	dirSize   int64         // bytes of a folder block
	ftype     bool          // entries of folders contain the kind of the file
	reads     int           // blocks read in the current call, at most MaxReads
}

// Open reads the superblock and the root inode of the file system that begins at r's first byte.
func Open(r budget.Reader) (*FS, error) {
	s := make([]byte, superSize)
	if _, err := r.ReadAt(s, 0); err != nil {
		return nil, err
	}
	if string(s[:4]) != "XFSB" {
		return nil, errors.New("no XFS superblock")
	}
	// Offsets: 4 block size, 8 blocks, 56 root inode, 84 blocks of a group, 100 version, 104 inode size, 123 and
	// 124 logarithms of inodes per block and of group blocks, 144 free blocks, 192 folder block size, 216 features.
	fs := &FS{
		r: r, version: int(be16(s, 100) & 0xf), blockSize: int64(be32(s, 4)), blocks: int64(be64(s, 8)), free: int64(be64(s, 144)),
		agBlocks: int64(be32(s, 84)), agLog: uint(s[124]), inodeLog: uint(s[123]), inodeSize: int64(be16(s, 104)),
	}
	// Version 4 has the feature ftype in another field.
	incompat := be32(s, 216)
	if fs.version == 5 {
		fs.ftype = incompat&incompatFtype != 0
	} else {
		incompat = 0
		fs.ftype = be32(s, 200)&features2Ftype != 0
	}
	if err := fs.checkGeometry(incompat, s[192]); err != nil {
		return nil, err
	}
	fs.dirSize = fs.blockSize << s[192]
	root, err := fs.readInode(be64(s, 56))
	if err != nil {
		return nil, fmt.Errorf("root: %w", err)
	}
	fs.Tree = tree.New(root)
	return fs, nil
}

// checkGeometry fails if version, a feature or a size is not supported. dirLog is the binary logarithm
// of the blocks in a folder block.
func (fs *FS) checkGeometry(incompat uint32, dirLog byte) error {
	size := fs.blockSize
	switch {
	case fs.version != 4 && fs.version != 5:
		return fmt.Errorf("version %d is not supported", fs.version)
	case incompat&^incompatKnown != 0:
		return fmt.Errorf("features %#x are not supported", incompat&^incompatKnown)
	case size < 512 || size > 64<<10 || size&(size-1) != 0:
		return fmt.Errorf("blocks of %d bytes", size)
	case dirLog > 7 || size<<dirLog > 64<<10:
		return fmt.Errorf("folder blocks of 2^%d blocks", dirLog)
	case fs.blocks <= 0 || fs.blocks > 1<<46 || fs.agBlocks <= 0 || fs.agLog > 31 || fs.agBlocks > 1<<fs.agLog:
		return fmt.Errorf("%d blocks in groups of %d", fs.blocks, fs.agBlocks)
	case fs.inodeSize < 256 || fs.inodeSize > 2048 || fs.inodeLog > 8 || fs.inodeSize<<fs.inodeLog != size:
		return fmt.Errorf("inodes of %d bytes, 2^%d in a block", fs.inodeSize, fs.inodeLog)
	}
	return nil
}

// Usage returns size and free space according to the superblock, which is exact after a clean shutdown.
func (fs *FS) Usage() tree.Usage {
	return tree.Usage{Size: fs.blocks * fs.blockSize, Free: max(0, min(fs.free, fs.blocks)) * fs.blockSize}
}

// byteOffset returns the offset of block n, which consists of group and block within it. It fails if
// the count blocks from n are not within the file system.
func (fs *FS) byteOffset(n uint64, count int64) (int64, error) {
	// The upper bits of a block number are the allocation group.
	group, block := n>>fs.agLog, int64(n&(1<<fs.agLog-1))
	if group > uint64(fs.blocks/fs.agBlocks) || block >= fs.agBlocks {
		return 0, fmt.Errorf("block %d of group %d", block, group)
	}
	first := int64(group)*fs.agBlocks + block
	if first+count > fs.blocks {
		return 0, fmt.Errorf("blocks %d to %d of %d", first, first+count, fs.blocks)
	}
	return first * fs.blockSize, nil
}

// readBlock returns block n in new memory.
func (fs *FS) readBlock(n uint64) ([]byte, error) {
	at, err := fs.byteOffset(n, 1)
	if err != nil {
		return nil, err
	}
	p := make([]byte, fs.blockSize)
	return p, fs.readCounted(p, at)
}

// readCounted fills p, at most a folder block, from a byte offset. It counts the read and fails after
// MaxReads.
func (fs *FS) readCounted(p []byte, at int64) error {
	if fs.reads++; fs.reads > MaxReads {
		return budget.Exceeded("more than %d blocks would be read", MaxReads)
	}
	_, err := fs.r.ReadAt(p, at)
	return err
}

// be16 reads the big-endian 16-bit number at offset at of p.
func be16(p []byte, at int) uint16 { return binary.BigEndian.Uint16(p[at:]) }

// be32 reads the big-endian 32-bit number at offset at of p.
func be32(p []byte, at int) uint32 { return binary.BigEndian.Uint32(p[at:]) }

// be64 reads the big-endian 64-bit number at offset at of p.
func be64(p []byte, at int) uint64 { return binary.BigEndian.Uint64(p[at:]) }
