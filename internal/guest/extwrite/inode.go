package extwrite

import (
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// File types in the mode, as in stat(2).
const (
	modeMask = 0xf000 // bits of the mode that contain the type
	modeDir  = 0x4000 // folder
	modeFile = 0x8000 // regular file
	modeLink = 0xa000 // symbolic link
)

// Flags of an inode.
const (
	flagImmutable = 0x10    // chattr +i: the file must not change
	flagAppend    = 0x20    // chattr +a: the file may only grow
	flagIndex     = 0x1000  // folder with a hash tree
	flagHugeFile  = 0x40000 // the block count is in units of blocks instead of 512 bytes
	flagExtents   = 0x80000 // the block area contains an extent tree, not a block map
)

// foreignFlags are inode flags of files that this package neither reads nor changes.
var foreignFlags = []feature{{0x4, "compressed"}, {0x200, "compressed"}, {0x800, "encrypted"}, {flagHugeFile, "larger than 2 TiB"},
	{0x100000, "sealed by fs-verity"}, {0x200000, "an attribute's value"}, {0x10000000, "kept in its inode"}, {0x40000000, "casefolded"}}

// An inode is a private copy of an inode's bytes. Changes take effect with inodeTable.writeInode.
type inode struct {
	num uint32 // number of the inode; the first is 1
	raw []byte // inodeSize bytes as on the disk, little-endian
}

// hasType reports whether the type bits of the mode are mode: modeDir, modeFile or modeLink.
func (n inode) hasType(mode uint16) bool { return n.mode()&modeMask == mode }

// mode returns type and permissions (i_mode).
func (n inode) mode() uint16 { return le16(n.raw, 0) }

// flags returns i_flags.
func (n inode) flags() uint32 { return le32(n.raw, 0x20) }

// links returns the number of names of the inode (i_links_count).
func (n inode) links() uint16 { return le16(n.raw, 0x1a) }

// generation returns i_generation, which is part of the checksum seed.
func (n inode) generation() uint32 { return le32(n.raw, 0x64) }

// blockArea returns the 60 bytes of i_block: a block map, an extent tree or the target of a short link.
func (n inode) blockArea() []byte { return n.raw[0x28:0x64] }

// hasAttributes reports whether the inode has a separate block of extended attributes (i_file_acl).
func (n inode) hasAttributes() bool { return le32(n.raw, 0x68) != 0 || le16(n.raw, 0x76) != 0 }

// size returns the size in bytes. Only files and folders have the high 32 bits.
func (n inode) size() int64 {
	size := int64(le32(n.raw, 0x4))
	if n.hasType(modeFile) || n.hasType(modeDir) {
		size |= int64(le32(n.raw, 0x6c)) << 32
	}
	return size
}

// setSize sets the size in bytes.
func (n inode) setSize(size int64) {
	put32(n.raw, 0x4, uint32(size))
	put32(n.raw, 0x6c, uint32(size>>32))
}

// setBlocks sets the space of the inode, which is stored in units of 512 bytes. blocks does not include
// the block of extended attributes; setBlocks adds it.
func (n inode) setBlocks(blocks, blockSize int64) {
	if n.hasAttributes() {
		blocks++
	}
	sectors := blocks * (blockSize / 512)
	// i_blocks_lo and l_i_blocks_high
	put32(n.raw, 0x1c, uint32(sectors))
	put16(n.raw, 0x74, uint16(sectors>>32))
}

// extraSize returns the number of bytes after the first 128 that have defined fields (i_extra_isize).
// It is 0 for inodes of 128 bytes.
func (n inode) extraSize() int64 {
	if len(n.raw) < 0x82 {
		return 0
	}
	return int64(le16(n.raw, 0x80))
}

// An inodeTable reads and writes inodes with their times, checksums and SELinux labels.
type inodeTable struct {
	super  *super           // size of inodes and checksum seed
	stage  *stage           // blocks of the tables
	now    func() time.Time // clock for the times of changed inodes
	groups *groupTable      // location of the tables
}

// locateInode returns the block of an inode and the offset within the block. It fails if the number is
// invalid.
func (t *inodeTable) locateInode(num uint32) (block, off int64, err error) {
	if num == 0 || num > t.super.inodes {
		return 0, 0, corrupt("inode %d of %d is referred to", num, t.super.inodes)
	}
	_, p, err := t.groups.readLayout(int64((num - 1) / t.super.inodesPerGroup))
	if err != nil {
		return 0, 0, err
	}
	// Inode numbers start at 1.
	at := int64((num-1)%t.super.inodesPerGroup) * t.super.inodeSize
	return p.inodeTable + at/t.super.blockSize, at % t.super.blockSize, nil
}

// readInode returns a copy of inode num. It fails if the checksum is wrong, if the inode is unused, or
// if a flag marks a file that is not supported.
func (t *inodeTable) readInode(num uint32) (inode, error) {
	block, off, err := t.locateInode(num)
	if err != nil {
		return inode{}, err
	}
	b, err := t.stage.readBlock(block)
	if err != nil {
		return inode{}, err
	}
	n := inode{num, append([]byte(nil), b[off:][:t.super.inodeSize]...)}
	if t.super.metadataCSum() && !t.super.hasValidCSum(n) {
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

// writeInode stages n. It sets the change and modification times and the checksum, also in n.raw.
func (t *inodeTable) writeInode(n inode) error {
	// i_ctime and i_mtime with their extra words
	t.setTime(n, 0xc, 0x84)
	t.setTime(n, 0x10, 0x88)
	if t.super.metadataCSum() {
		// i_checksum_lo, and i_checksum_hi if the inode has extra fields
		lo, hi := t.super.inodeCSum(n)
		put16(n.raw, 0x7c, lo)
		if n.extraSize() >= 4 {
			put16(n.raw, 0x82, hi)
		}
	}
	block, off, err := t.locateInode(n.num)
	if err != nil {
		return err
	}
	b, err := t.stage.editBlock(block)
	if err != nil {
		return err
	}
	copy(b[off:], n.raw)
	return nil
}

// setTime sets the time field at offset at to now. The field at extraAt, if the inode has it,
// stores two more bits of the seconds, for years after 2038; its nanoseconds become 0.
func (t *inodeTable) setTime(n inode, at, extraAt int) {
	now := t.now().Unix()
	put32(n.raw, at, uint32(now))
	if 0x80+n.extraSize() >= int64(extraAt)+4 {
		put32(n.raw, extraAt, uint32((now-int64(int32(now)))>>32)&3)
	}
}

// inodeSeed returns the checksum seed for metadata that belongs to n: number and generation.
func (s *super) inodeSeed(n inode) uint32 {
	return crc32cNumber(crc32cNumber(s.seed, n.num), n.generation())
}

// inodeCSum returns both halves of the checksum of n, computed with zero in the checksum fields.
func (s *super) inodeCSum(n inode) (lo, hi uint16) {
	raw := append([]byte(nil), n.raw...)
	put16(raw, 0x7c, 0)
	if n.extraSize() >= 4 {
		put16(raw, 0x82, 0)
	}
	sum := crc32c(s.inodeSeed(n), raw)
	return uint16(sum), uint16(sum >> 16)
}

// hasValidCSum reports whether the stored checksum of n is correct. Inodes of 128 bytes have only the
// low half.
func (s *super) hasValidCSum(n inode) bool {
	lo, hi := s.inodeCSum(n)
	return le16(n.raw, 0x7c) == lo && (n.extraSize() < 4 || le16(n.raw, 0x82) == hi)
}
