package extwrite

// A bitmap is a block of bits; bit i is bit i%8 of byte i/8, as in ext file systems.
type bitmap []byte

// has reports whether bit i is set, which means that the block or inode is in use.
func (b bitmap) has(i int64) bool { return b[i/8]&(1<<(i%8)) != 0 }

// set marks block or inode i as used.
func (b bitmap) set(i int64) { b[i/8] |= 1 << (i % 8) }

// clear marks block or inode i as free.
func (b bitmap) clear(i int64) { b[i/8] &^= 1 << (i % 8) }

// setFrom sets all bits from first to the end of the bitmap. These bits do not represent blocks
// or inodes, and e2fsck expects them to be set.
func (b bitmap) setFrom(first int64) {
	for i := first; i < int64(len(b))*8; i++ {
		b.set(i)
	}
}

// countClear returns the number of clear bits before bit end.
func (b bitmap) countClear(end int64) (n int64) {
	for i := range end {
		if !b.has(i) {
			n++
		}
	}
	return n
}

// blockBitmap returns the staged bitmap of a group's blocks; the caller may change it in place.
// If the group was never initialized, blockBitmap creates the bitmap first.
func (g *groupTable) blockBitmap(group int64) (bitmap, error) {
	d, p, err := g.readLayout(group)
	if err != nil {
		return nil, err
	}
	if !g.super.isUninit(d, groupBlockUninit) {
		g.touched[group] = true
		return g.stage.editBlock(p.blockBitmap)
	}
	return g.newBlockBitmap(group, p)
}

// newBlockBitmap creates the block bitmap of an uninitialized group. The used blocks are the
// copy of the superblock and descriptors, both bitmaps and the inode table, as far as they are in
// this group. It fails if the descriptor's count of free blocks differs.
func (g *groupTable) newBlockBitmap(group int64, p groupLayout) (bitmap, error) {
	b, err := g.stage.zeroBlock(p.blockBitmap)
	if err != nil {
		return nil, err
	}
	bits, first := bitmap(b), g.super.firstBlock+group*g.super.blocksPerGroup
	// mark marks blocks as used, as far as they are in this group.
	mark := func(from, n int64) {
		for at := max(from, first); at < min(from+n, first+g.super.groupBlocks(group)); at++ {
			bits.set(at - first)
		}
	}
	// A copy of the superblock is followed by all descriptors and the blocks reserved for growth.
	if g.super.hasSuper(group) {
		mark(first, 1+(g.super.groups*g.super.descSize+g.super.blockSize-1)/g.super.blockSize+g.super.reservedGDT)
	}
	mark(p.blockBitmap, 1)
	mark(p.inodeBitmap, 1)
	mark(p.inodeTable, int64(g.super.inodesPerGroup)*g.super.inodeSize/g.super.blockSize)
	bits.setFrom(g.super.groupBlocks(group))
	d, err := g.editDescriptor(group)
	if err != nil {
		return nil, err
	}
	// The kernel counted the free blocks when it created the group; a difference means corruption.
	if free := g.super.groupCount(d, 0xc, 0x2c); bits.countClear(g.super.groupBlocks(group)) != free {
		return nil, corrupt("unused group %d has %d free blocks", group, free)
	}
	// bg_flags: the bitmap is valid from now on.
	put16(d, 0x12, le16(d, 0x12)&^groupBlockUninit)
	return bits, nil
}

// hasSuper reports whether a group begins with a copy of the superblock. With sparse_super these
// are groups 0 and 1 and the powers of 3, 5 and 7; with sparse_super2 at most two groups besides
// group 0; without either, all groups.
func (s *super) hasSuper(group int64) bool {
	switch {
	case group == 0:
		return true
	case s.compat&compatSparseSuper2 != 0:
		return group == s.backups[0] || group == s.backups[1]
	case s.roCompat&roSparseSuper == 0 || group == 1:
		return true
	}
	return isPower(group, 3) || isPower(group, 5) || isPower(group, 7)
}

// isPower reports whether n is a power of base of; 1 counts as one.
func isPower(n, of int64) bool {
	for n > 1 && n%of == 0 {
		n /= of
	}
	return n == 1
}

// inodeBitmap returns the staged bitmap of a group's inodes; the caller may change it in place.
// If the group was never initialized, inodeBitmap creates an empty bitmap first.
func (g *groupTable) inodeBitmap(group int64) (bitmap, error) {
	d, p, err := g.readLayout(group)
	if err != nil {
		return nil, err
	}
	if !g.super.isUninit(d, groupInodeUninit) {
		g.touched[group] = true
		return g.stage.editBlock(p.inodeBitmap)
	}
	if _, err := g.blockBitmap(group); err != nil { // a group without free blocks gets no inodes, as in the kernel
		return nil, err
	}
	b, err := g.stage.zeroBlock(p.inodeBitmap)
	if err != nil {
		return nil, err
	}
	bitmap(b).setFrom(int64(g.super.inodesPerGroup))
	if d, err = g.editDescriptor(group); err != nil {
		return nil, err
	}
	put16(d, 0x12, le16(d, 0x12)&^groupInodeUninit)
	return b, nil
}
