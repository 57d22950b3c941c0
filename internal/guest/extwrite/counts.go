package extwrite

import "time"

// superblock returns the superblock's bytes, to be read.
func (g *groupTable) superblock() ([]byte, error) {
	b, err := g.stage.read(g.super.firstBlock)
	if err != nil {
		return nil, err
	}
	return b[superOffset%g.super.blockSize:][:superSize], nil
}

// editSuper returns the superblock's bytes, to be changed.
func (g *groupTable) editSuper() ([]byte, error) {
	b, err := g.stage.edit(g.super.firstBlock)
	if err != nil {
		return nil, err
	}
	return b[superOffset%g.super.blockSize:][:superSize], nil
}

func (s *super) freeBlocks(p []byte) int64 {
	n := int64(le32(p, 0xc))
	if s.incompat&incompat64Bit != 0 {
		n |= int64(le32(p, 0x158)) << 32
	}
	return n
}

// addFreeBlocks changes the counts of a group and of all groups together by n.
func (g *groupTable) addFreeBlocks(group, n int64) error {
	d, err := g.edit(group)
	if err != nil {
		return err
	}
	s, err := g.editSuper()
	if err != nil {
		return err
	}
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

// takeInode counts an inode as used, and where it is a folder's as that.
func (g *groupTable) takeInode(group int64, folder bool) error {
	d, err := g.edit(group)
	if err != nil {
		return err
	}
	s, err := g.editSuper()
	if err != nil {
		return err
	}
	inGroup, all := g.super.groupCount(d, 0xe, 0x2e)-1, int64(le32(s, 0x10))-1
	if inGroup < 0 || all < 0 {
		return corrupt("a free inode in group %d, and none counted", group)
	}
	g.super.putGroupCount(d, 0xe, 0x2e, inGroup)
	put32(s, 0x10, uint32(all))
	if folder {
		g.super.putGroupCount(d, 0x10, 0x30, g.super.groupCount(d, 0x10, 0x30)+1)
	}
	return nil
}

// sealSuper sets the superblock's time to now and recomputes its checksum.
func (g *groupTable) sealSuper(now time.Time) error {
	s, err := g.editSuper()
	if err != nil {
		return err
	}
	put32(s, 0x30, uint32(now.Unix()))
	if g.super.metadataCSum() {
		put32(s, 0x3fc, crc32c(^uint32(0), s[:0x3fc]))
	}
	return nil
}

// seal recomputes the checksums of the groups that this call changed, and of the superblock.
func (g *groupTable) seal(now time.Time) error {
	for group := range g.touched {
		if err := g.sealGroup(group); err != nil {
			return err
		}
	}
	return g.sealSuper(now)
}
