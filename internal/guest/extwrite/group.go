package extwrite

// Flags of a group descriptor, with gdt_csum and metadata_csum.
const (
	groupInodeUninit = 0x1 // inode bitmap and inode table were never written
	groupBlockUninit = 0x2 // block bitmap was never written
)

// A groupLayout is the location of a group's metadata, in block numbers of the file system.
type groupLayout struct {
	blockBitmap, inodeBitmap, inodeTable int64 // first block of each part; with flex_bg possibly in another group
}

// A groupTable contains the metadata of the groups: their descriptors, their bitmaps, and the
// counts of free blocks and inodes, of a group and of all together. It recomputes their checksums
// at the end of each call.
type groupTable struct {
	super   *super         // geometry and features
	stage   *stage         // blocks of descriptors and bitmaps
	touched map[int64]bool // groups whose bitmaps or descriptors changed in this call
}

// resetTouched starts a new call: no group is changed.
func (g *groupTable) resetTouched() { clear(g.touched) }

// descriptorAt returns the block of a group's descriptor and the offset within the block. The
// descriptors follow the superblock.
func (s *super) descriptorAt(group int64) (block, off int64) {
	at := group * s.descSize
	return s.firstBlock + 1 + at/s.blockSize, at % s.blockSize
}

// readDescriptor returns a group's descriptor. The caller must not change it.
func (g *groupTable) readDescriptor(group int64) ([]byte, error) {
	block, off := g.super.descriptorAt(group)
	b, err := g.stage.readBlock(block)
	if err != nil {
		return nil, err
	}
	return b[off:][:g.super.descSize], nil
}

// editDescriptor returns the staged descriptor of a group; the caller may change it in place.
// updateChecksums corrects its checksum.
func (g *groupTable) editDescriptor(group int64) ([]byte, error) {
	block, off := g.super.descriptorAt(group)
	b, err := g.stage.editBlock(block)
	if err != nil {
		return nil, err
	}
	g.touched[group] = true
	return b[off:][:g.super.descSize], nil
}

// readLayout returns a group's descriptor and the layout that it contains. It fails if a part is
// outside the file system.
func (g *groupTable) readLayout(group int64) ([]byte, groupLayout, error) {
	d, err := g.readDescriptor(group)
	if err != nil {
		return nil, groupLayout{}, err
	}
	p := g.super.parseLayout(d)
	return d, p, p.checkBounds(g.super)
}

// parseLayout parses the block numbers in descriptor d; descriptors of 64 bytes have 64-bit numbers.
func (s *super) parseLayout(d []byte) groupLayout {
	// bg_block_bitmap, bg_inode_bitmap and bg_inode_table; the high halves begin at 0x20.
	p := groupLayout{int64(le32(d, 0)), int64(le32(d, 4)), int64(le32(d, 8))}
	if s.descSize >= 64 {
		p.blockBitmap |= int64(le32(d, 0x20)) << 32
		p.inodeBitmap |= int64(le32(d, 0x24)) << 32
		p.inodeTable |= int64(le32(d, 0x28)) << 32
	}
	return p
}

// checkBounds fails if a part is not between the superblock and the end of the file system.
func (p groupLayout) checkBounds(s *super) error {
	for _, at := range []int64{p.blockBitmap, p.inodeBitmap, p.inodeTable} {
		if at <= s.firstBlock || at >= s.blocks {
			return corrupt("a group has a part at block %d of %d", at, s.blocks)
		}
	}
	return nil
}

// groupCount reads a count of descriptor d. Its low 16 bits are at offset lo. The high 16 bits are at
// offset hi if descriptors have 64 bytes.
func (s *super) groupCount(d []byte, lo, hi int) int64 {
	n := int64(le16(d, lo))
	if s.descSize >= 64 {
		n |= int64(le16(d, hi)) << 16
	}
	return n
}

// putGroupCount writes a count that groupCount reads.
func (s *super) putGroupCount(d []byte, lo, hi int, n int64) {
	put16(d, lo, uint16(n))
	if s.descSize >= 64 {
		put16(d, hi, uint16(n>>16))
	}
}

// isUninit reports whether descriptor d has the flag. The flags are valid only with gdt_csum or
// metadata_csum.
func (s *super) isUninit(d []byte, flag uint16) bool {
	return s.uninitGroups() && le16(d, 0x12)&flag != 0
}

// groupBlocks returns the number of blocks of a group. The last group may be shorter.
func (s *super) groupBlocks(group int64) int64 {
	return min(s.blocksPerGroup, s.blocks-s.firstBlock-group*s.blocksPerGroup)
}

// updateGroupChecksums recomputes the checksums of a group's bitmaps and of its descriptor, as far as
// the features require them.
func (g *groupTable) updateGroupChecksums(group int64) error {
	d, err := g.editDescriptor(group)
	if err != nil {
		return err
	}
	if g.super.metadataCSum() {
		if err := g.updateBitmapChecksums(d); err != nil {
			return err
		}
	}
	if g.super.uninitGroups() {
		put16(d, 0x1e, g.super.groupCSum(group, d))
	}
	return nil
}

// updateBitmapChecksums writes the checksums of both bitmaps to descriptor d. Bitmaps that were never
// written have no checksum.
func (g *groupTable) updateBitmapChecksums(d []byte) error {
	p := g.super.parseLayout(d)
	blocks, err := g.stage.readBlock(p.blockBitmap)
	if err != nil {
		return err
	}
	inodes, err := g.stage.readBlock(p.inodeBitmap)
	if err != nil {
		return err
	}
	if !g.super.isUninit(d, groupBlockUninit) {
		g.super.putBitmapCSum(d, 0x18, 0x38, crc32c(g.super.seed, blocks[:g.super.blocksPerGroup/8]))
	}
	if !g.super.isUninit(d, groupInodeUninit) {
		g.super.putBitmapCSum(d, 0x1a, 0x3a, crc32c(g.super.seed, inodes[:g.super.inodesPerGroup/8]))
	}
	return nil
}

// putBitmapCSum writes the checksum of a bitmap to descriptor d: 16 bits, or 32 bits if descriptors
// have 64 bytes.
func (s *super) putBitmapCSum(d []byte, lo, hi int, sum uint32) {
	put16(d, lo, uint16(sum))
	if s.descSize >= 64 {
		put16(d, hi, uint16(sum>>16))
	}
}

// groupCSum returns the checksum of descriptor d, without the field at 0x1e that stores it. It is the
// low half of crc32c with metadata_csum (which counts the field as zero), and crc16 with gdt_csum.
func (s *super) groupCSum(group int64, d []byte) uint16 {
	// The checksum covers the group's number, so that a descriptor cannot move.
	number := []byte{byte(group), byte(group >> 8), byte(group >> 16), byte(group >> 24)}
	if s.metadataCSum() {
		sum := crc32c(crc32c(s.seed, number), d[:0x1e])
		return uint16(crc32c(crc32c(sum, []byte{0, 0}), d[0x20:]))
	}
	sum := crc16(crc16(crc16(0xffff, s.uuid), number), d[:0x1e])
	return crc16(sum, d[0x20:])
}
