package extwrite

import "time"

// superblock returns the bytes of the superblock. The caller must not change them.
func (g *groupTable) superblock() ([]byte, error) {
	b, err := g.stage.readBlock(g.super.firstBlock)
	if err != nil {
		return nil, err
	}
	return b[superOffset%g.super.blockSize:][:superSize], nil
}

// editSuper returns the staged bytes of the superblock; the caller may change them in place.
func (g *groupTable) editSuper() ([]byte, error) {
	b, err := g.stage.editBlock(g.super.firstBlock)
	if err != nil {
		return nil, err
	}
	return b[superOffset%g.super.blockSize:][:superSize], nil
}

// freeBlocks returns the count of free blocks in superblock p, those reserved for root included.
func (s *super) freeBlocks(p []byte) int64 {
	// s_free_blocks_count_lo and, with 64bit, s_free_blocks_count_hi.
	n := int64(le32(p, 0xc))
	if s.incompat&incompat64Bit != 0 {
		n |= int64(le32(p, 0x158)) << 32
	}
	return n
}

// addFreeBlocks adds n to the counts of free blocks of the group and of the superblock. A
// negative n counts blocks as used. It fails if a count leaves its valid range.
func (g *groupTable) addFreeBlocks(group, n int64) error {
	d, err := g.editDescriptor(group)
	if err != nil {
		return err
	}
	s, err := g.editSuper()
	if err != nil {
		return err
	}
	// bg_free_blocks_count
	inGroup, all := g.super.groupCount(d, 0xc, 0x2c)+n, g.super.freeBlocks(s)+n
	if inGroup < 0 || inGroup > g.super.blocksPerGroup || all < 0 || all > g.super.blocks {
		return corrupt("%d free blocks in group %d, %d in all", inGroup, group, all)
	}
	g.super.putGroupCount(d, 0xc, 0x2c, inGroup)
	put32(s, 0xc, uint32(all))
	if g.super.incompat&incompat64Bit != 0 {
		put32(s, 0x158, uint32(all>>32))
	}
	return nil
}

// countUsedInode lowers the counts of free inodes of the group and of the superblock. For a
// folder it also raises the group's count of folders.
func (g *groupTable) countUsedInode(group int64, folder bool) error {
	d, err := g.editDescriptor(group)
	if err != nil {
		return err
	}
	s, err := g.editSuper()
	if err != nil {
		return err
	}
	// bg_free_inodes_count and s_free_inodes_count
	inGroup, all := g.super.groupCount(d, 0xe, 0x2e)-1, int64(le32(s, 0x10))-1
	if inGroup < 0 || all < 0 {
		return corrupt("free inode in group %d, but the count is zero", group)
	}
	g.super.putGroupCount(d, 0xe, 0x2e, inGroup)
	put32(s, 0x10, uint32(all))
	if folder {
		// bg_used_dirs_count
		g.super.putGroupCount(d, 0x10, 0x30, g.super.groupCount(d, 0x10, 0x30)+1)
	}
	return nil
}

// updateSuperChecksum sets the superblock's write time to now and recomputes its checksum.
func (g *groupTable) updateSuperChecksum(now time.Time) error {
	s, err := g.editSuper()
	if err != nil {
		return err
	}
	// s_wtime and s_checksum
	put32(s, 0x30, uint32(now.Unix()))
	if g.super.metadataCSum() {
		put32(s, 0x3fc, crc32c(^uint32(0), s[:0x3fc]))
	}
	return nil
}

// updateChecksums recomputes the checksums of all groups that this call changed, and of the
// superblock. It runs once, at the end of a call.
func (g *groupTable) updateChecksums(now time.Time) error {
	for group := range g.touched {
		if err := g.updateGroupChecksums(group); err != nil {
			return err
		}
	}
	return g.updateSuperChecksum(now)
}
