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
func (g *groupTable) blockBitmap(group int64) (bitmap, error) {
	d, p, err := g.parts(group)
	if err != nil {
		return nil, err
	}
	if !g.super.isUninit(d, groupBlockUninit) {
		g.touched[group] = true
		return g.stage.edit(p.blockBitmap)
	}
	return g.newBlockBitmap(group, p)
}

// newBlockBitmap makes the bitmap of a group that has nothing in it but its own parts.
func (g *groupTable) newBlockBitmap(group int64, p place) (bitmap, error) {
	b, err := g.stage.blank(p.blockBitmap)
	if err != nil {
		return nil, err
	}
	bits, first := bitmap(b), g.super.firstBlock+group*g.super.blocksPerGroup
	mark := func(from, n int64) {
		for at := max(from, first); at < min(from+n, first+g.super.groupBlocks(group)); at++ {
			bits.set(at - first)
		}
	}
	if g.super.hasSuper(group) {
		mark(first, 1+(g.super.groups*g.super.descSize+g.super.blockSize-1)/g.super.blockSize+g.super.reservedGDT)
	}
	mark(p.blockBitmap, 1)
	mark(p.inodeBitmap, 1)
	mark(p.inodeTable, int64(g.super.inodesPerGroup)*g.super.inodeSize/g.super.blockSize)
	bits.fill(g.super.groupBlocks(group))
	d, err := g.edit(group)
	if err != nil {
		return nil, err
	}
	if free := g.super.groupCount(d, 0xc, 0x2c); bits.zeros(g.super.groupBlocks(group)) != free {
		return nil, corrupt("group %d, which was never used, has %d free blocks", group, free)
	}
	put16(d, 0x12, le16(d, 0x12)&^groupBlockUninit)
	return bits, nil
}

// hasSuper reports whether a group begins with a copy of the superblock.
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

func isPower(n, of int64) bool {
	for n > 1 && n%of == 0 {
		n /= of
	}
	return n == 1
}

// inodeBitmap returns the bitmap of a group's inodes, to be changed.
func (g *groupTable) inodeBitmap(group int64) (bitmap, error) {
	d, p, err := g.parts(group)
	if err != nil {
		return nil, err
	}
	if !g.super.isUninit(d, groupInodeUninit) {
		g.touched[group] = true
		return g.stage.edit(p.inodeBitmap)
	}
	if _, err := g.blockBitmap(group); err != nil { // a group without free blocks gets no inodes, as in the kernel
		return nil, err
	}
	b, err := g.stage.blank(p.inodeBitmap)
	if err != nil {
		return nil, err
	}
	bitmap(b).fill(int64(g.super.inodesPerGroup))
	if d, err = g.edit(group); err != nil {
		return nil, err
	}
	put16(d, 0x12, le16(d, 0x12)&^groupInodeUninit)
	return b, nil
}
