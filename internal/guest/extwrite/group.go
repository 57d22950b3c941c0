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

// descriptor says where a group's descriptor is.
func (fs *FS) descriptor(group int64) (block, off int64) {
	at := group * fs.descSize
	return fs.firstBlock + 1 + at/fs.blockSize, at % fs.blockSize
}

// group returns a group's descriptor, to be read.
func (fs *FS) group(group int64) ([]byte, error) {
	block, off := fs.descriptor(group)
	b, err := fs.stage.read(block)
	if err != nil {
		return nil, err
	}
	return b[off:][:fs.descSize], nil
}

// editGroup returns a group's descriptor, to be changed; seal mends its checksum.
func (fs *FS) editGroup(group int64) ([]byte, error) {
	block, off := fs.descriptor(group)
	b, err := fs.stage.edit(block)
	if err != nil {
		return nil, err
	}
	fs.touched[group] = true
	return b[off:][:fs.descSize], nil
}

// parts returns a group's descriptor, and where its bitmaps and its inodes are, checked.
func (fs *FS) parts(group int64) ([]byte, place, error) {
	d, err := fs.group(group)
	if err != nil {
		return nil, place{}, err
	}
	p := fs.place(d)
	return d, p, p.check(fs)
}

func (fs *FS) place(d []byte) place {
	p := place{int64(le32(d, 0)), int64(le32(d, 4)), int64(le32(d, 8))}
	if fs.descSize >= 64 {
		p.blockBitmap |= int64(le32(d, 0x20)) << 32
		p.inodeBitmap |= int64(le32(d, 0x24)) << 32
		p.inodeTable |= int64(le32(d, 0x28)) << 32
	}
	return p
}

// check refuses parts that are not within the file system.
func (p place) check(fs *FS) error {
	for _, at := range []int64{p.blockBitmap, p.inodeBitmap, p.inodeTable} {
		if at <= fs.firstBlock || at >= fs.blocks {
			return corrupt("a group has a part at block %d of %d", at, fs.blocks)
		}
	}
	return nil
}

// groupCount returns a count whose low half is at lo and whose high one, with 64bit, at hi.
func (fs *FS) groupCount(d []byte, lo, hi int) int64 {
	n := int64(le16(d, lo))
	if fs.descSize >= 64 {
		n |= int64(le16(d, hi)) << 16
	}
	return n
}

func (fs *FS) putGroupCount(d []byte, lo, hi int, n int64) {
	put16(d, lo, uint16(n))
	if fs.descSize >= 64 {
		put16(d, hi, uint16(n>>16))
	}
}

func (fs *FS) isUninit(d []byte, flag uint16) bool {
	return fs.uninitGroups() && le16(d, 0x12)&flag != 0
}

// groupBlocks returns how many blocks a group has; the last one may have fewer.
func (fs *FS) groupBlocks(group int64) int64 {
	return min(fs.blocksPerGroup, fs.blocks-fs.firstBlock-group*fs.blocksPerGroup)
}

// sealGroup brings a group's checksums up to date.
func (fs *FS) sealGroup(group int64) error {
	d, err := fs.editGroup(group)
	if err != nil {
		return err
	}
	if fs.metadataCSum() {
		if err := fs.sealBitmaps(d); err != nil {
			return err
		}
	}
	if fs.uninitGroups() {
		put16(d, 0x1e, fs.groupCSum(group, d))
	}
	return nil
}

func (fs *FS) sealBitmaps(d []byte) error {
	p := fs.place(d)
	blocks, err := fs.stage.read(p.blockBitmap)
	if err != nil {
		return err
	}
	inodes, err := fs.stage.read(p.inodeBitmap)
	if err != nil {
		return err
	}
	if !fs.isUninit(d, groupBlockUninit) {
		fs.putBitmapCSum(d, 0x18, 0x38, crc32c(fs.seed, blocks[:fs.blocksPerGroup/8]))
	}
	if !fs.isUninit(d, groupInodeUninit) {
		fs.putBitmapCSum(d, 0x1a, 0x3a, crc32c(fs.seed, inodes[:fs.inodesPerGroup/8]))
	}
	return nil
}

func (fs *FS) putBitmapCSum(d []byte, lo, hi int, sum uint32) {
	put16(d, lo, uint16(sum))
	if fs.descSize >= 64 {
		put16(d, hi, uint16(sum>>16))
	}
}

// groupCSum is over the descriptor without the field that it goes to.
func (fs *FS) groupCSum(group int64, d []byte) uint16 {
	number := []byte{byte(group), byte(group >> 8), byte(group >> 16), byte(group >> 24)}
	if fs.metadataCSum() {
		sum := crc32c(crc32c(fs.seed, number), d[:0x1e])
		return uint16(crc32c(crc32c(sum, []byte{0, 0}), d[0x20:]))
	}
	sum := crc16(crc16(crc16(0xffff, fs.uuid), number), d[:0x1e])
	return crc16(sum, d[0x20:])
}
