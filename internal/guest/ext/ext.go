// Package ext reads single files of untrusted ext2, ext3 and ext4 file systems.
//
// It supports paths, symbolic links and file contents; no times, attributes or journal (a change just
// before a crash is not visible). Its reads are bounded: opening takes two reads, and reading a file at
// most MaxReads reads of one block each, for any content. A general library was not used because it
// allocates as much as the superblock declares.
//
// The layout is that of the kernel's Documentation/filesystems/ext4.
package ext

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"

	"github.com/decamp/decamp/internal/guest/budget"
)

// MaxReads limits the blocks that one ReadFile reads.
const MaxReads = 8192

// ErrNotFound means that the file does not exist; it wraps fs.ErrNotExist.
var ErrNotFound = fmt.Errorf("no such file (%w)", fs.ErrNotExist)

const (
	superOffset = 1024 // bytes before the superblock
	superSize   = 1024 // bytes of the superblock
	rootInode   = 2    // inode of the root folder

	incompatMetaBG = 0x10 // feature meta_bg: descriptors are spread over the disk
	incompat64Bit  = 0x80 // feature 64bit: block numbers of 64 bits
)

// FS is an ext2, ext3 or ext4 file system. It is not safe for concurrent use.
type FS struct {
	r              budget.Reader // file system from its first byte
	blockSize      int64         // bytes of a block, 1 KiB to 64 KiB
	blocks         int64         // number of blocks
	free           int64         // blocks that are not in use
	firstBlock     int64         // block that contains the superblock: 0 or 1
	inodes         uint32        // number of inodes
	inodesPerGroup uint32        // inodes of each group
	inodeSize      int64         // bytes of an inode, 128 or more
	descSize       int64         // bytes of a group descriptor, 32 or more
	reads          int           // blocks read in the current call, at most MaxReads

	tableBlock int64  // block of a block map that table contains; 0 if none
	table      []byte // last block of a block map that was read
}

// Open reads the superblock of the file system that begins at r's first byte.
func Open(r budget.Reader) (*FS, error) {
	s := make([]byte, superSize)
	if _, err := r.ReadAt(s, superOffset); err != nil {
		return nil, err
	}
	if le16(s, 0x38) != 0xef53 {
		return nil, errors.New("no ext superblock")
	}
	// Offset 0x18 is the block size as a power of two in KiB, 0x60 the incompatible features.
	shift, incompat := le32(s, 0x18), le32(s, 0x60)
	if shift > 6 {
		return nil, fmt.Errorf("block size of 2^%d KiB", shift)
	}
	// Offsets: 0 inodes, 4 blocks, 0xc free blocks, 0x14 first block, 0x28 inodes of a group, 0x58 inode size.
	fs := &FS{
		r: r, blockSize: 1024 << shift, blocks: int64(le32(s, 0x4)), firstBlock: int64(le32(s, 0x14)),
		inodes: le32(s, 0x0), inodesPerGroup: le32(s, 0x28), inodeSize: int64(le16(s, 0x58)), descSize: 32,
		free: int64(le32(s, 0xc)),
	}
	if le32(s, 0x4c) == 0 { // revision 0 has no inode size
		fs.inodeSize = 128
	}
	if incompat&incompat64Bit != 0 {
		// High halves of the counts, and the size of descriptors.
		fs.blocks |= int64(le32(s, 0x150)) << 32
		fs.free |= int64(le32(s, 0x158)) << 32
		fs.descSize = int64(le16(s, 0xfe))
	}
	return fs, fs.checkGeometry(incompat)
}

// checkGeometry fails if a feature is not supported or a size is invalid.
func (fs *FS) checkGeometry(incompat uint32) error {
	switch {
	case incompat&incompatMetaBG != 0:
		return errors.New("feature meta_bg is not supported")
	case fs.inodesPerGroup == 0:
		return errors.New("no inodes in a group")
	case fs.inodeSize < 128 || fs.inodeSize > fs.blockSize || fs.inodeSize&(fs.inodeSize-1) != 0:
		return fmt.Errorf("inodes of %d bytes", fs.inodeSize)
	case fs.descSize < 32 || fs.descSize > 1024 || fs.descSize&(fs.descSize-1) != 0:
		return fmt.Errorf("group descriptors of %d bytes", fs.descSize)
	case fs.firstBlock > 1 || fs.blocks <= 0 || fs.blocks > 1<<46:
		return fmt.Errorf("%d blocks from block %d", fs.blocks, fs.firstBlock)
	}
	return nil
}

// readBlock returns block n in new memory.
func (fs *FS) readBlock(n int64) ([]byte, error) {
	p := make([]byte, fs.blockSize)
	return p, fs.readAt(p, n, 0)
}

// readAt fills p from byte off of block n. It counts the read and fails after MaxReads.
func (fs *FS) readAt(p []byte, n, off int64) error {
	if fs.reads++; fs.reads > MaxReads {
		return budget.Exceeded("more than %d blocks would be read", MaxReads)
	}
	if n <= 0 || n >= fs.blocks {
		return fmt.Errorf("block %d of %d", n, fs.blocks)
	}
	_, err := fs.r.ReadAt(p, n*fs.blockSize+off)
	return err
}

// le16 reads the little-endian 16-bit number at offset at of p.
func le16(p []byte, at int) uint16 { return binary.LittleEndian.Uint16(p[at:]) }

// le32 reads the little-endian 32-bit number at offset at of p.
func le32(p []byte, at int) uint32 { return binary.LittleEndian.Uint32(p[at:]) }
