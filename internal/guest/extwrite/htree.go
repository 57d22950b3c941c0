package extwrite

// A hash tree lies in a folder's blocks as entries without inode, so that it reads as a
// plain list, too. The first block has "." and "..", then the tree's root:
//
//	24  0, 0, 0, 0; hash version; 8; levels below; flags
//	32  limit and count, 16 bits each, and the block of the lowest hashes
//	40  hash and block, 32 bits each, and so on
//
// An inner node is one empty entry of 8 bytes, then the same from limit on.
const (
	rootEntries = 32
	nodeEntries = 8
	maxLevels   = 2
)

// linkByHash puts a name into the block that its hash belongs to. It is not done where that
// has no room, or where the tree is of a kind that is not known.
func (f *folders) linkByHash(folder inode, name string, num uint32, kind byte) (done bool, err error) {
	m, err := f.mapping(folder)
	if err != nil {
		return false, err
	}
	root, err := f.stage.read(m.find(0))
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
	at, exact, err := f.descend(m, root, levels, hash)
	if err != nil || !exact {
		return false, err
	}
	b, err := f.stage.read(at)
	if err != nil {
		return false, err
	}
	list, err := f.super.entries(b)
	if err != nil {
		return false, err
	}
	return f.insert(folder, at, list, name, num, kind)
}

// descend returns the disk block of the leaf for a hash.
func (f *folders) descend(m *mapping, node []byte, levels int, hash uint32) (at int64, ok bool, err error) {
	first := rootEntries
	for ; ; levels-- {
		count := int(le16(node, first+2))
		if count < 1 || first+count*8 > len(node) {
			return 0, false, corrupt("a folder's hash tree with %d entries in a block", count)
		}
		child := le32(node, first+4)
		for i := 1; i < count && le32(node, first+i*8)&^1 <= hash; i++ {
			child = le32(node, first+i*8+4)
		}
		if at = m.find(int64(child & 0x0fffffff)); at == 0 {
			return 0, false, corrupt("a folder's hash tree leads out of it")
		}
		if levels == 0 {
			return at, true, nil
		}
		if node, err = f.stage.read(at); err != nil {
			return 0, false, err
		}
		first = nodeEntries
	}
}

// flatten makes a plain list of a folder with a hash tree, which is right for any number of
// names: the kernel searches it from front to back. e2fsck -D makes it a tree again.
func (f *folders) flatten(folder inode) error {
	m, err := f.mapping(folder)
	if err != nil {
		return err
	}
	if err := f.flattenRoot(folder, m.find(0)); err != nil {
		return err
	}
	for i := int64(1); i < folder.size()/f.super.blockSize; i++ {
		if err := f.flattenNode(folder, m.find(i)); err != nil {
			return err
		}
	}
	put32(folder.raw, 0x20, folder.flags()&^flagIndex)
	return f.inodes.write(folder)
}

// flattenRoot leaves "." and ".." of the first block.
func (f *folders) flattenRoot(folder inode, at int64) error {
	b, err := f.stage.edit(at)
	if err != nil {
		return err
	}
	const dot, dotDot = 0, 12
	if le16(b, dot+4) != 12 || b[dotDot+6] != 2 {
		return corrupt("a folder that does not begin with itself and the one above")
	}
	clear(b[dotDot+12:])
	put16(b, dotDot+4, uint16(f.super.leafLen()-dotDot))
	f.super.sealLeaf(folder, b)
	return nil
}

// flattenNode makes an empty block of an inner node; leaves stay.
func (f *folders) flattenNode(folder inode, at int64) error {
	b, err := f.stage.read(at)
	if err != nil {
		return err
	}
	if le32(b, 0) != 0 || int64(le16(b, 4)) != f.super.blockSize {
		return nil
	}
	if b, err = f.stage.blank(at); err != nil {
		return err
	}
	put16(b, 4, uint16(f.super.leafLen()))
	f.super.sealLeaf(folder, b)
	return nil
}
