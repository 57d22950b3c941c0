package extwrite

// A bitmap is a block of bits, as ext numbers them.
type bitmap []byte

func (b bitmap) has(i int64) bool { return b[i/8]&(1<<(i%8)) != 0 }
func (b bitmap) set(i int64)      { b[i/8] |= 1 << (i % 8) }
func (b bitmap) clear(i int64)    { b[i/8] &^= 1 << (i % 8) }

// fill sets the bits from first to the end: they stand for nothing.
func (b bitmap) fill(first int64) {
	for i := first; i < int64(len(b))*8; i++ {
		b.set(i)
	}
}

// zeros counts the clear bits before end.
func (b bitmap) zeros(end int64) (n int64) {
	for i := range end {
		if !b.has(i) {
			n++
		}
	}
	return n
}

// blockBitmap returns the bitmap of a group's blocks, to be changed. One that was never
// written is made.
func (fs *FS) blockBitmap(group int64) (bitmap, error) {
	d, p, err := fs.parts(group)
	if err != nil {
		return nil, err
	}
	if !fs.isUninit(d, groupBlockUninit) {
		fs.touched[group] = true
		return fs.stage.edit(p.blockBitmap)
	}
	return fs.newBlockBitmap(group, p)
}

// newBlockBitmap makes the bitmap of a group that has nothing in it but its own parts.
func (fs *FS) newBlockBitmap(group int64, p place) (bitmap, error) {
	b, err := fs.stage.blank(p.blockBitmap)
	if err != nil {
		return nil, err
	}
	bits, first := bitmap(b), fs.firstBlock+group*fs.blocksPerGroup
	mark := func(from, n int64) {
		for at := max(from, first); at < min(from+n, first+fs.groupBlocks(group)); at++ {
			bits.set(at - first)
		}
	}
	if fs.hasSuper(group) {
		mark(first, 1+(fs.groups*fs.descSize+fs.blockSize-1)/fs.blockSize+fs.reservedGDT)
	}
	mark(p.blockBitmap, 1)
	mark(p.inodeBitmap, 1)
	mark(p.inodeTable, int64(fs.inodesPerGroup)*fs.inodeSize/fs.blockSize)
	bits.fill(fs.groupBlocks(group))
	d, err := fs.editGroup(group)
	if err != nil {
		return nil, err
	}
	if free := fs.groupCount(d, 0xc, 0x2c); bits.zeros(fs.groupBlocks(group)) != free {
		return nil, corrupt("group %d, which was never used, has %d free blocks", group, free)
	}
	put16(d, 0x12, le16(d, 0x12)&^groupBlockUninit)
	return bits, nil
}

// hasSuper reports whether a group begins with a copy of the superblock.
func (fs *FS) hasSuper(group int64) bool {
	switch {
	case group == 0:
		return true
	case fs.compat&compatSparseSuper2 != 0:
		return group == fs.backups[0] || group == fs.backups[1]
	case fs.roCompat&roSparseSuper == 0 || group == 1:
		return true
	}
	return isPower(group, 3) || isPower(group, 5) || isPower(group, 7)
}

func isPower(n, of int64) bool {
	for n > 1 && n%of == 0 {
		n /= of
	}
	return n == 1
}

// inodeBitmap returns the bitmap of a group's inodes, to be changed.
func (fs *FS) inodeBitmap(group int64) (bitmap, error) {
	d, p, err := fs.parts(group)
	if err != nil {
		return nil, err
	}
	if !fs.isUninit(d, groupInodeUninit) {
		fs.touched[group] = true
		return fs.stage.edit(p.inodeBitmap)
	}
	if _, err := fs.blockBitmap(group); err != nil { // as the kernel does it: no inodes in a group without
		return nil, err
	}
	b, err := fs.stage.blank(p.inodeBitmap)
	if err != nil {
		return nil, err
	}
	bitmap(b).fill(int64(fs.inodesPerGroup))
	if d, err = fs.editGroup(group); err != nil {
		return nil, err
	}
	put16(d, 0x12, le16(d, 0x12)&^groupInodeUninit)
	return b, nil
}
