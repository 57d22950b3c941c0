package extwrite

import (
	"strings"

	"github.com/decamp/decamp/internal/fault"
)

const (
	superOffset = 1024 // bytes before the superblock
	superSize   = 1024 // bytes of the superblock
	rootInode   = 2    // inode of the root folder
)

// Bits of features that require special treatment.
const (
	compatJournal      = 0x4   // has_journal
	compatSparseSuper2 = 0x200 // sparse_super2: at most two copies of the superblock

	incompatFileType = 0x2    // filetype: entries of folders contain the kind of the file
	incompatRecover  = 0x4    // needs_recovery: the journal has changes to replay
	incompatExtents  = 0x40   // extents
	incompat64Bit    = 0x80   // 64bit: block numbers of 64 bits
	incompatCSumSeed = 0x2000 // metadata_csum_seed: the superblock stores the checksum seed

	roSparseSuper  = 0x1   // sparse_super: copies of the superblock only in some groups
	roHugeFile     = 0x8   // huge_file: files larger than 2 TiB
	roGroupCSum    = 0x10  // uninit_bg (gdt_csum): descriptors have a 16-bit checksum
	roMetadataCSum = 0x400 // metadata_csum: all metadata has a CRC-32C
)

// A super contains the fields of a superblock that do not change.
type super struct {
	blockSize      int64    // bytes of a block, 1 KiB to 32 KiB
	blocks         int64    // number of blocks of the file system
	firstBlock     int64    // block that contains the superblock: 1 for blocks of 1 KiB, otherwise 0
	blocksPerGroup int64    // blocks of each group but the last
	groups         int64    // number of groups
	inodes         uint32   // number of inodes
	firstInode     uint32   // first inode that is not reserved
	inodesPerGroup uint32   // inodes of each group
	inodeSize      int64    // bytes of an inode, 128 or more
	descSize       int64    // bytes of a group descriptor: 32, or at least 64 for 64-bit block numbers
	reservedGDT    int64    // blocks after the descriptors that are reserved for growth (resize_inode)
	wantExtra      uint16   // s_want_extra_isize: extra bytes of new inodes
	compat         uint32   // compatible features
	incompat       uint32   // incompatible features
	roCompat       uint32   // read-only compatible features
	backups        [2]int64 // groups with a copy of the superblock, for sparse_super2
	uuid           []byte   // UUID of the file system, part of checksums
	seed           uint32   // seed of CRC-32C checksums
}

// metadataCSum reports whether all metadata has checksums.
func (s *super) metadataCSum() bool { return s.roCompat&roMetadataCSum != 0 }

// uninitGroups reports whether group descriptors have valid "uninitialized" flags and a checksum.
func (s *super) uninitGroups() bool { return s.roCompat&(roGroupCSum|roMetadataCSum) != 0 }

// parseSuper parses a superblock of superSize bytes and checks it with checkSuper.
func parseSuper(p []byte) (*super, error) {
	if le16(p, 0x38) != 0xef53 {
		return nil, fault.New(fault.Unsupported, "no ext superblock")
	}
	if le32(p, 0x18) > 5 {
		return nil, fault.New(fault.Unsupported, "block size of 2^%d KiB", le32(p, 0x18))
	}
	s := &super{
		blockSize: 1024 << le32(p, 0x18), blocks: int64(le32(p, 0x4)), firstBlock: int64(le32(p, 0x14)),
		blocksPerGroup: int64(le32(p, 0x20)), inodes: le32(p, 0x0), inodesPerGroup: le32(p, 0x28),
		firstInode: 11, inodeSize: 128, descSize: 32, reservedGDT: int64(le16(p, 0xce)), wantExtra: le16(p, 0x15e),
		uuid: append([]byte(nil), p[0x68:0x78]...), backups: [2]int64{int64(le32(p, 0x24c)), int64(le32(p, 0x250))},
	}
	if le32(p, 0x4c) > 0 { // revision 0 has neither features nor inode sizes
		s.firstInode, s.inodeSize = le32(p, 0x54), int64(le16(p, 0x58))
		s.compat, s.incompat, s.roCompat = le32(p, 0x5c), le32(p, 0x60), le32(p, 0x64)
	}
	if s.incompat&incompat64Bit != 0 {
		s.blocks |= int64(le32(p, 0x150)) << 32
		s.descSize = int64(le16(p, 0xfe))
	}
	// The seed is derived from the UUID unless the superblock stores it.
	s.seed = crc32c(^uint32(0), s.uuid)
	if s.incompat&incompatCSumSeed != 0 {
		s.seed = le32(p, 0x270)
	}
	return s, s.checkSuper(p)
}

// checkSuper fails if the file system is unsupported, damaged or in use. It sets s.groups.
func (s *super) checkSuper(p []byte) error {
	if s.metadataCSum() && le32(p, 0x3fc) != crc32c(^uint32(0), p[:0x3fc]) {
		return corrupt("the superblock's checksum is wrong")
	}
	if err := s.checkClean(p); err != nil {
		return err
	}
	if foreign := s.foreignFeatures(); len(foreign) > 0 {
		return fault.New(fault.Unsupported, "the file system has features that decamp does not write: %s", strings.Join(foreign, ", ")).
			WithHint("migrate the VM with the compat profile, which changes nothing in the guest: --hardware compat")
	}
	if err := s.checkGeometry(); err != nil {
		return err
	}
	// The last group may be shorter.
	s.groups = (s.blocks - s.firstBlock + s.blocksPerGroup - 1) / s.blocksPerGroup
	if s.groups > 1<<22 || s.groups*int64(s.inodesPerGroup) != int64(s.inodes) {
		return corrupt("%d inodes in %d groups of %d", s.inodes, s.groups, s.inodesPerGroup)
	}
	return nil
}

// checkGeometry fails if a size or count is outside the range that the other functions rely on.
func (s *super) checkGeometry() error {
	perBlock := s.blockSize * 8 // bits of a bitmap
	switch {
	case s.blocksPerGroup <= 0 || s.blocksPerGroup > perBlock || s.blocksPerGroup%8 != 0:
		return corrupt("%d blocks in a group", s.blocksPerGroup)
	case s.inodesPerGroup == 0 || int64(s.inodesPerGroup) > perBlock || s.inodesPerGroup%8 != 0:
		return corrupt("%d inodes in a group", s.inodesPerGroup)
	case s.inodeSize < 128 || s.inodeSize > s.blockSize || s.inodeSize&(s.inodeSize-1) != 0:
		return corrupt("inodes of %d bytes", s.inodeSize)
	case s.descSize < 32 || s.descSize > 1024 || s.descSize&(s.descSize-1) != 0:
		return corrupt("group descriptors of %d bytes", s.descSize)
	case s.firstBlock != superOffset/s.blockSize || s.blocks <= s.firstBlock || s.blocks > 1<<46:
		return corrupt("%d blocks from block %d", s.blocks, s.firstBlock)
	case s.firstInode < 11 || s.firstInode > s.inodes:
		return corrupt("the first of %d inodes is %d", s.inodes, s.firstInode)
	}
	return nil
}

// checkClean fails if the journal has changes to replay, if the file system was not unmounted, or
// if the kernel recorded errors.
func (s *super) checkClean(p []byte) error {
	// s_state: EXT4_VALID_FS and EXT4_ERROR_FS; s_last_orphan is a list of inodes to delete.
	const valid, errors = 1, 2
	state, orphan := le16(p, 0x3a), le32(p, 0xe8)
	orphans := orphan != 0 || s.roCompat&roOrphanPresent != 0
	switch {
	case state&errors != 0:
		return corrupt("the guest's kernel found errors in this file system")
	case s.incompat&incompatRecover != 0 || state&valid == 0 || orphans:
		return fault.New(fault.Conflict, "the guest was not shut down cleanly: the journal of its file system must be replayed").
			WithHint("start the VM at the source, shut its guest down, and copy it again")
	}
	return nil
}
