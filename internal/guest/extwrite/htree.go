package extwrite

// A hash tree is stored in a folder's blocks as entries without inode, so that it is valid as a
// plain list, too. The first block has "." and "..", then the tree's root:
//
//	24  0, 0, 0, 0; hash version; 8; levels below; flags
//	32  limit and count, 16 bits each, and the block of the lowest hashes
//	40  hash and block, 32 bits each, and so on
//
// An inner node is one empty entry of 8 bytes, then the same from limit on.
const (
	rootEntries = 32 // offset of limit and count in the root block
	nodeEntries = 8  // offset of limit and count in inner nodes
	maxLevels   = 2  // levels of inner nodes below the root; three are possible with the feature large_dir only
)

// addNameByHash adds a name to the leaf that its hash belongs to. done is false, and nothing is
// changed, if the leaf is full or the tree's version is not supported.
func (f *folders) addNameByHash(folder inode, name string, num uint32, kind byte) (done bool, err error) {
	m, err := f.readMapping(folder)
	if err != nil {
		return false, err
	}
	// The root is in the first block, after "." and "..".
	root, err := f.stage.readBlock(m.diskBlock(0))
	if err != nil {
		return false, err
	}
	s, err := f.groups.superblock()
	if err != nil {
		return false, err
	}
	hash, known := hashOf(name, root[28], s)
	levels := int(root[30])
	if !known || root[29] != 8 || levels > maxLevels {
		return false, nil
	}
	at, exact, err := f.findLeaf(m, root, levels, hash)
	if err != nil || !exact {
		return false, err
	}
	b, err := f.stage.readBlock(at)
	if err != nil {
		return false, err
	}
	list, err := f.super.parseEntries(b)
	if err != nil {
		return false, err
	}
	return f.insertEntry(folder, at, list, name, num, kind)
}

// findLeaf returns the disk block of the leaf for a hash. node is the root block; levels is the number
// of levels below it.
func (f *folders) findLeaf(m *mapping, node []byte, levels int, hash uint32) (at int64, ok bool, err error) {
	first := rootEntries
	for ; ; levels-- {
		// The first entry has limit and count instead of a hash, and the block of the lowest hashes.
		count := int(le16(node, first+2))
		if count < 1 || first+count*8 > len(node) {
			return 0, false, corrupt("a folder's hash tree with %d entries in a block", count)
		}
		child := le32(node, first+4)
		for i := 1; i < count && le32(node, first+i*8)&^1 <= hash; i++ {
			child = le32(node, first+i*8+4)
		}
		if at = m.diskBlock(int64(child & 0x0fffffff)); at == 0 {
			return 0, false, corrupt("a folder's hash tree refers to a block outside of it")
		}
		if levels == 0 {
			return at, true, nil
		}
		if node, err = f.stage.readBlock(at); err != nil {
			return 0, false, err
		}
		first = nodeEntries
	}
}

// removeHashTree converts a folder with a hash tree to a plain list. This is valid for any number of
// names: the kernel then searches linearly. e2fsck -D builds a tree again.
func (f *folders) removeHashTree(folder inode) error {
	m, err := f.readMapping(folder)
	if err != nil {
		return err
	}
	if err := f.clearTreeRoot(folder, m.diskBlock(0)); err != nil {
		return err
	}
	for i := int64(1); i < folder.size()/f.super.blockSize; i++ {
		if err := f.clearTreeNode(folder, m.diskBlock(i)); err != nil {
			return err
		}
	}
	// i_flags: without the flag the kernel searches linearly.
	put32(folder.raw, 0x20, folder.flags()&^flagIndex)
	return f.inodes.writeInode(folder)
}

// clearTreeRoot removes everything but "." and ".." from the first block.
func (f *folders) clearTreeRoot(folder inode, at int64) error {
	b, err := f.stage.editBlock(at)
	if err != nil {
		return err
	}
	const dot, dotDot = 0, 12
	if le16(b, dot+4) != 12 || b[dotDot+6] != 2 {
		return corrupt("a folder that does not begin with \".\" and \"..\"")
	}
	clear(b[dotDot+12:])
	put16(b, dotDot+4, uint16(f.super.leafLen()-dotDot))
	f.super.writeLeafTail(folder, b)
	return nil
}

// clearTreeNode turns an inner node into an empty block of a plain list. Leaves are not changed.
func (f *folders) clearTreeNode(folder inode, at int64) error {
	b, err := f.stage.readBlock(at)
	if err != nil {
		return err
	}
	// An inner node begins with an unused entry that covers the block. So does an empty leaf, which stays empty.
	if le32(b, 0) != 0 || int64(le16(b, 4)) != f.super.blockSize {
		return nil
	}
	if b, err = f.stage.zeroBlock(at); err != nil {
		return err
	}
	put16(b, 4, uint16(f.super.leafLen()))
	f.super.writeLeafTail(folder, b)
	return nil
}
