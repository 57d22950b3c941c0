// Package xfs reads files and folders of XFS, versions 4 and 5, on untrusted media.
//
// It supports names, links and contents; no attributes, quotas, realtime device or log: changes just before
// a crash are not visible. Folders are read from front to back; their hash tables are not used.
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

// MaxReads bounds the blocks of metadata and folders read for one call.
const MaxReads = 8192

const (
	superSize = 512

	incompatFtype  = 0x1
	incompatNrext  = 0x20
	incompatKnown  = 0x1ff
	features2Ftype = 0x200
)

// FS is an XFS file system.
type FS struct {
	*tree.Tree
	r         budget.Reader
	version   int   // 4 or 5
	blockSize int64 // bytes
	blocks    int64
	free      int64 // blocks
	agBlocks  int64 // blocks of an allocation group
	agLog     uint  // bits of a block's number within its group
	perLog    uint  // bits of an inode's number within its block
	inodeSize int64 // bytes
	dirSize   int64 // bytes of one block of a folder
	ftype     bool  // folders have the kind of each name
	reads     int   // blocks read for the current call
}

// Open reads the superblock of the file system that starts at r's first byte.
func Open(r budget.Reader) (*FS, error) {
	s := make([]byte, superSize)
	if _, err := r.ReadAt(s, 0); err != nil {
		return nil, err
	}
	if string(s[:4]) != "XFSB" {
		return nil, errors.New("no XFS superblock")
	}
	fs := &FS{
		r: r, version: int(be16(s, 100) & 0xf), blockSize: int64(be32(s, 4)), blocks: int64(be64(s, 8)), free: int64(be64(s, 144)),
		agBlocks: int64(be32(s, 84)), agLog: uint(s[124]), perLog: uint(s[123]), inodeSize: int64(be16(s, 104)),
	}
	incompat := be32(s, 216)
	if fs.version == 5 {
		fs.ftype = incompat&incompatFtype != 0
	} else {
		incompat = 0
		fs.ftype = be32(s, 200)&features2Ftype != 0
	}
	if err := fs.check(incompat, s[192]); err != nil {
		return nil, err
	}
	fs.dirSize = fs.blockSize << s[192]
	root, err := fs.inode(be64(s, 56))
	if err != nil {
		return nil, fmt.Errorf("root: %w", err)
	}
	fs.Tree = tree.New(root)
	return fs, nil
}

func (fs *FS) check(incompat uint32, dirLog byte) error {
	size := fs.blockSize
	switch {
	case fs.version != 4 && fs.version != 5:
		return fmt.Errorf("version %d is not understood", fs.version)
	case incompat&^incompatKnown != 0:
		return fmt.Errorf("features %#x are not understood", incompat&^incompatKnown)
	case size < 512 || size > 64<<10 || size&(size-1) != 0:
		return fmt.Errorf("blocks of %d bytes", size)
	case dirLog > 7 || size<<dirLog > 64<<10:
		return fmt.Errorf("folder blocks of 2^%d blocks", dirLog)
	case fs.blocks <= 0 || fs.blocks > 1<<46 || fs.agBlocks <= 0 || fs.agLog > 31 || fs.agBlocks > 1<<fs.agLog:
		return fmt.Errorf("%d blocks in groups of %d", fs.blocks, fs.agBlocks)
	case fs.inodeSize < 256 || fs.inodeSize > 2048 || fs.perLog > 8 || fs.inodeSize<<fs.perLog != size:
		return fmt.Errorf("inodes of %d bytes, 2^%d in a block", fs.inodeSize, fs.perLog)
	}
	return nil
}

// Usage returns how full the file system is, as its superblock has it: right after a
// clean shutdown.
func (fs *FS) Usage() tree.Usage {
	return tree.Usage{Size: fs.blocks * fs.blockSize, Free: max(0, min(fs.free, fs.blocks)) * fs.blockSize}
}

// at returns the byte at which block n is: its group and its place there. A block that is
// not within the file system is at none.
func (fs *FS) at(n uint64, count int64) (int64, error) {
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

// block reads block n.
func (fs *FS) block(n uint64) ([]byte, error) {
	at, err := fs.at(n, 1)
	if err != nil {
		return nil, err
	}
	p := make([]byte, fs.blockSize)
	return p, fs.read(p, at)
}

// read fills p, which is no longer than a folder's block, from a byte of the medium.
func (fs *FS) read(p []byte, at int64) error {
	if fs.reads++; fs.reads > MaxReads {
		return budget.Exceeded("more than %d blocks would be read", MaxReads)
	}
	_, err := fs.r.ReadAt(p, at)
	return err
}

func be16(p []byte, at int) uint16 { return binary.BigEndian.Uint16(p[at:]) }
func be32(p []byte, at int) uint32 { return binary.BigEndian.Uint32(p[at:]) }
func be64(p []byte, at int) uint64 { return binary.BigEndian.Uint64(p[at:]) }
