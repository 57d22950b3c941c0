package extwrite

// Flags of a group descriptor, with gdt_csum and metadata_csum.
const (
	groupInodeUninit = 0x1 // its inode bitmap and table were never written
	groupBlockUninit = 0x2 // nor its block bitmap
)

// A place is where the parts of a group are.
type place struct {
	blockBitmap, inodeBitmap, inodeTable int64
}

// A groupTable holds what the file system records of its groups: their descriptors, their
// bitmaps, and the counts of free blocks and inodes, of a group and of all together. It
// recomputes their checksums at the end of each call.
type groupTable struct {
	super   *super
	stage   *stage
	touched map[int64]bool // groups whose bitmaps or descriptors changed in this call
}

// begin forgets which groups the call before changed.
func (g *groupTable) begin() { clear(g.touched) }

// descriptor returns the location of a group's descriptor.
func (s *super) descriptor(group int64) (block, off int64) {
	at := group * s.descSize
	return s.firstBlock + 1 + at/s.blockSize, at % s.blockSize
}

// group returns a group's descriptor, to be read.
func (g *groupTable) read(group int64) ([]byte, error) {
	block, off := g.super.descriptor(group)
	b, err := g.stage.read(block)
	if err != nil {
		return nil, err
	}
	return b[off:][:g.super.descSize], nil
}

// editGroup returns a group's descriptor, to be changed; seal mends its checksum.
func (g *groupTable) edit(group int64) ([]byte, error) {
	block, off := g.super.descriptor(group)
	b, err := g.stage.edit(block)
	if err != nil {
		return nil, err
	}
	g.touched[group] = true
	return b[off:][:g.super.descSize], nil
}

// parts returns a group's descriptor, and where its bitmaps and its inodes are, checked.
func (g *groupTable) parts(group int64) ([]byte, place, error) {
	d, err := g.read(group)
	if err != nil {
		return nil, place{}, err
	}
	p := g.super.place(d)
	return d, p, p.check(g.super)
}

func (s *super) place(d []byte) place {
	p := place{int64(le32(d, 0)), int64(le32(d, 4)), int64(le32(d, 8))}
	if s.descSize >= 64 {
		p.blockBitmap |= int64(le32(d, 0x20)) << 32
		p.inodeBitmap |= int64(le32(d, 0x24)) << 32
		p.inodeTable |= int64(le32(d, 0x28)) << 32
	}
	return p
}

// check refuses parts that are not within the file system.
func (p place) check(s *super) error {
	for _, at := range []int64{p.blockBitmap, p.inodeBitmap, p.inodeTable} {
		if at <= s.firstBlock || at >= s.blocks {
			return corrupt("a group has a part at block %d of %d", at, s.blocks)
		}
	}
	return nil
}

// groupCount returns a count whose low half is at lo and whose high one, with 64bit, at hi.
func (s *super) groupCount(d []byte, lo, hi int) int64 {
	n := int64(le16(d, lo))
	if s.descSize >= 64 {
		n |= int64(le16(d, hi)) << 16
	}
	return n
}

func (s *super) putGroupCount(d []byte, lo, hi int, n int64) {
	put16(d, lo, uint16(n))
	if s.descSize >= 64 {
		put16(d, hi, uint16(n>>16))
	}
}

func (s *super) isUninit(d []byte, flag uint16) bool {
	return s.uninitGroups() && le16(d, 0x12)&flag != 0
}

// groupBlocks returns how many blocks a group has; the last one may have fewer.
func (s *super) groupBlocks(group int64) int64 {
	return min(s.blocksPerGroup, s.blocks-s.firstBlock-group*s.blocksPerGroup)
}

// sealGroup brings a group's checksums up to date.
func (g *groupTable) sealGroup(group int64) error {
	d, err := g.edit(group)
	if err != nil {
		return err
	}
	if g.super.metadataCSum() {
		if err := g.sealBitmaps(d); err != nil {
			return err
		}
	}
	if g.super.uninitGroups() {
		put16(d, 0x1e, g.super.groupCSum(group, d))
	}
	return nil
}

func (g *groupTable) sealBitmaps(d []byte) error {
	p := g.super.place(d)
	blocks, err := g.stage.read(p.blockBitmap)
	if err != nil {
		return err
	}
	inodes, err := g.stage.read(p.inodeBitmap)
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

func (s *super) putBitmapCSum(d []byte, lo, hi int, sum uint32) {
	put16(d, lo, uint16(sum))
	if s.descSize >= 64 {
		put16(d, hi, uint16(sum>>16))
	}
}

// groupCSum is over the descriptor without the field that it goes to.
func (s *super) groupCSum(group int64, d []byte) uint16 {
	number := []byte{byte(group), byte(group >> 8), byte(group >> 16), byte(group >> 24)}
	if s.metadataCSum() {
		sum := crc32c(crc32c(s.seed, number), d[:0x1e])
		return uint16(crc32c(crc32c(sum, []byte{0, 0}), d[0x20:]))
	}
	sum := crc16(crc16(crc16(0xffff, s.uuid), number), d[:0x1e])
	return crc16(sum, d[0x20:])
}
