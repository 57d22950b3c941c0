package extwrite

import (
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// Modes of files, as stat has them.
const (
	modeMask = 0xf000
	modeDir  = 0x4000
	modeFile = 0x8000
	modeLink = 0xa000
)

// Flags of an inode.
const (
	flagImmutable = 0x10
	flagAppend    = 0x20
	flagIndex     = 0x1000 // a folder with hash tree
	flagHugeFile  = 0x40000
	flagExtents   = 0x80000
)

// foreignFlags are what keeps a file from being read or changed.
var foreignFlags = []feature{{0x4, "compressed"}, {0x200, "compressed"}, {0x800, "encrypted"}, {flagHugeFile, "larger than 2 TiB"},
	{0x100000, "sealed by fs-verity"}, {0x200000, "an attribute's value"}, {0x10000000, "kept in its inode"}, {0x40000000, "casefolded"}}

// An inode is its bytes on the disk, which it is changed in.
type inode struct {
	num uint32
	raw []byte
}

func (n inode) is(mode uint16) bool { return n.mode()&modeMask == mode }
func (n inode) mode() uint16        { return le16(n.raw, 0) }
func (n inode) flags() uint32       { return le32(n.raw, 0x20) }
func (n inode) links() uint16       { return le16(n.raw, 0x1a) }
func (n inode) generation() uint32  { return le32(n.raw, 0x64) }
func (n inode) where() []byte       { return n.raw[0x28:0x64] }

// hasAttributes reports whether a block of extended attributes belongs to the inode.
func (n inode) hasAttributes() bool { return le32(n.raw, 0x68) != 0 || le16(n.raw, 0x76) != 0 }

func (n inode) size() int64 {
	size := int64(le32(n.raw, 0x4))
	if n.is(modeFile) || n.is(modeDir) {
		size |= int64(le32(n.raw, 0x6c)) << 32
	}
	return size
}

func (n inode) setSize(size int64) {
	put32(n.raw, 0x4, uint32(size))
	put32(n.raw, 0x6c, uint32(size>>32))
}

// setBlocks counts the blocks that belong to the inode, in sectors.
func (n inode) setBlocks(blocks, blockSize int64) {
	if n.hasAttributes() {
		blocks++
	}
	sectors := blocks * (blockSize / 512)
	put32(n.raw, 0x1c, uint32(sectors))
	put16(n.raw, 0x74, uint16(sectors>>32))
}

// extra returns the number of bytes of the inode after the first 128 that have defined fields.
func (n inode) extra() int64 {
	if len(n.raw) < 0x82 {
		return 0
	}
	return int64(le16(n.raw, 0x80))
}

// An inodeTable reads and writes inodes, with their times, checksums and labels.
type inodeTable struct {
	super  *super
	stage  *stage
	now    func() time.Time
	groups *groupTable
}

// locate returns the location of an inode.
func (t *inodeTable) locate(num uint32) (block, off int64, err error) {
	if num == 0 || num > t.super.inodes {
		return 0, 0, corrupt("inode %d of %d is referred to", num, t.super.inodes)
	}
	_, p, err := t.groups.parts(int64((num - 1) / t.super.inodesPerGroup))
	if err != nil {
		return 0, 0, err
	}
	at := int64((num-1)%t.super.inodesPerGroup) * t.super.inodeSize
	return p.inodeTable + at/t.super.blockSize, at % t.super.blockSize, nil
}

// inode reads inode num.
func (t *inodeTable) read(num uint32) (inode, error) {
	block, off, err := t.locate(num)
	if err != nil {
		return inode{}, err
	}
	b, err := t.stage.read(block)
	if err != nil {
		return inode{}, err
	}
	n := inode{num, append([]byte(nil), b[off:][:t.super.inodeSize]...)}
	if t.super.metadataCSum() && !t.super.rightCSum(n) {
		return inode{}, corrupt("the checksum of inode %d is wrong", num)
	}
	for _, f := range foreignFlags {
		if n.flags()&f.bit != 0 {
			return inode{}, fault.New(fault.Unsupported, "it is %s", f.name)
		}
	}
	if n.size() < 0 || n.links() == 0 {
		return inode{}, corrupt("inode %d has %d bytes and %d names", num, n.size(), n.links())
	}
	return n, nil
}

// putInode writes n, with its checksum and the time.
func (t *inodeTable) write(n inode) error {
	t.touch(n, 0xc, 0x84)
	t.touch(n, 0x10, 0x88)
	if t.super.metadataCSum() {
		lo, hi := t.super.inodeCSum(n)
		put16(n.raw, 0x7c, lo)
		if n.extra() >= 4 {
			put16(n.raw, 0x82, hi)
		}
	}
	block, off, err := t.locate(n.num)
	if err != nil {
		return err
	}
	b, err := t.stage.edit(block)
	if err != nil {
		return err
	}
	copy(b[off:], n.raw)
	return nil
}

// touch sets a time. Its extra word has two more bits for the years after 2038.
func (t *inodeTable) touch(n inode, at, extraAt int) {
	now := t.now().Unix()
	put32(n.raw, at, uint32(now))
	if 0x80+n.extra() >= int64(extraAt)+4 {
		put32(n.raw, extraAt, uint32((now-int64(int32(now)))>>32)&3)
	}
}

func (s *super) inodeSeed(n inode) uint32 {
	return crc32cNumber(crc32cNumber(s.seed, n.num), n.generation())
}

func (s *super) inodeCSum(n inode) (lo, hi uint16) {
	raw := append([]byte(nil), n.raw...)
	put16(raw, 0x7c, 0)
	if n.extra() >= 4 {
		put16(raw, 0x82, 0)
	}
	sum := crc32c(s.inodeSeed(n), raw)
	return uint16(sum), uint16(sum >> 16)
}

func (s *super) rightCSum(n inode) bool {
	lo, hi := s.inodeCSum(n)
	return le16(n.raw, 0x7c) == lo && (n.extra() < 4 || le16(n.raw, 0x82) == hi)
}
