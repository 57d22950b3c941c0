package extwrite

// superblock returns the superblock's bytes, to be read.
func (fs *FS) superblock() ([]byte, error) {
	b, err := fs.stage.read(fs.firstBlock)
	if err != nil {
		return nil, err
	}
	return b[superOffset%fs.blockSize:][:superSize], nil
}

// editSuper returns the superblock's bytes, to be changed.
func (fs *FS) editSuper() ([]byte, error) {
	b, err := fs.stage.edit(fs.firstBlock)
	if err != nil {
		return nil, err
	}
	return b[superOffset%fs.blockSize:][:superSize], nil
}

func (fs *FS) freeBlocks(s []byte) int64 {
	n := int64(le32(s, 0xc))
	if fs.incompat&incompat64Bit != 0 {
		n |= int64(le32(s, 0x158)) << 32
	}
	return n
}

// addFreeBlocks changes the counts of a group and of all groups together by n.
func (fs *FS) addFreeBlocks(group, n int64) error {
	d, err := fs.editGroup(group)
	if err != nil {
		return err
	}
	s, err := fs.editSuper()
	if err != nil {
		return err
	}
	inGroup, all := fs.groupCount(d, 0xc, 0x2c)+n, fs.freeBlocks(s)+n
	if inGroup < 0 || inGroup > fs.blocksPerGroup || all < 0 || all > fs.blocks {
		return corrupt("%d free blocks in group %d, %d in all", inGroup, group, all)
	}
	fs.putGroupCount(d, 0xc, 0x2c, inGroup)
	put32(s, 0xc, uint32(all))
	if fs.incompat&incompat64Bit != 0 {
		put32(s, 0x158, uint32(all>>32))
	}
	return nil
}

// takeInode counts an inode as used, and where it is a folder's as that.
func (fs *FS) takeInode(group int64, folder bool) error {
	d, err := fs.editGroup(group)
	if err != nil {
		return err
	}
	s, err := fs.editSuper()
	if err != nil {
		return err
	}
	inGroup, all := fs.groupCount(d, 0xe, 0x2e)-1, int64(le32(s, 0x10))-1
	if inGroup < 0 || all < 0 {
		return corrupt("a free inode in group %d, and none counted", group)
	}
	fs.putGroupCount(d, 0xe, 0x2e, inGroup)
	put32(s, 0x10, uint32(all))
	if folder {
		fs.putGroupCount(d, 0x10, 0x30, fs.groupCount(d, 0x10, 0x30)+1)
	}
	return nil
}

// sealSuper brings the superblock's time and checksum up to date.
func (fs *FS) sealSuper() error {
	s, err := fs.editSuper()
	if err != nil {
		return err
	}
	put32(s, 0x30, uint32(fs.now().Unix()))
	if fs.metadataCSum() {
		put32(s, 0x3fc, crc32c(^uint32(0), s[:0x3fc]))
	}
	return nil
}
