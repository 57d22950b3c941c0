package extwrite

const (
	extentMagic  = 0xf30a // first word of each node of an extent tree
	extentHeader = 12     // bytes of a node before its entries
	extentEntry  = 12     // bytes of an entry, in leaves and in inner nodes
	maxDepth     = 5      // levels that the kernel allows (EXT4_MAX_EXTENT_DEPTH)
	maxExtent    = 32768  // blocks of one extent; a larger length marks an unwritten extent of length-32768 blocks
)

// readExtents adds the runs and the tree blocks of an inode with extents to m.
func (ms *mappings) readExtents(n inode, m *mapping) error {
	return ms.readNode(n, m, n.blockArea(), maxDepth)
}

// readNode adds the extents of a node, and of the nodes below it, to m. It fails if the node is
// higher than depth levels, so that a loop ends.
func (ms *mappings) readNode(n inode, m *mapping, node []byte, depth int) error {
	// Node header: magic, entries, maximum, level, generation.
	entries, level := int(le16(node, 2)), int(le16(node, 6))
	if le16(node, 0) != extentMagic || extentHeader+entries*extentEntry > len(node) || level > depth {
		return corrupt("inode %d has an invalid extent tree", n.num)
	}
	for i := range entries {
		entry := node[extentHeader+i*extentEntry:][:extentEntry]
		if level == 0 {
			if err := m.addRun(parseExtent(entry)); err != nil {
				return err
			}
			continue
		}
		// Index entry: 32-bit file block, 48-bit block of the child.
		child := int64(le16(entry, 8))<<32 | int64(le32(entry, 4))
		if err := ms.readChild(n, m, child, level-1); err != nil {
			return err
		}
	}
	return nil
}

// readChild reads a node in a separate block, verifies its checksum, and adds its extents to m.
func (ms *mappings) readChild(n inode, m *mapping, child int64, depth int) error {
	if len(m.tables) >= maxRuns {
		return corrupt("inode %d has an extent tree without end", n.num)
	}
	b, err := ms.stage.readBlock(child)
	if err != nil {
		return err
	}
	if at := extentTail(b); ms.super.metadataCSum() && (at+4 > len(b) || le32(b, at) != crc32c(ms.super.inodeSeed(n), b[:at])) {
		return corrupt("the checksum of extents of inode %d is wrong", n.num)
	}
	m.tables = append(m.tables, child)
	return ms.readNode(n, m, b, depth)
}

// extentTail returns the offset of the checksum in a block of extents. It follows the space for the
// maximum number of entries (eh_max).
func extentTail(b []byte) int { return extentHeader + int(le16(b, 4))*extentEntry }

// parseExtent parses a leaf entry: 32-bit file block, 16-bit length, 48-bit disk block.
func parseExtent(p []byte) run {
	r := run{file: int64(le32(p, 0)), n: int64(le16(p, 4)), disk: int64(le16(p, 6))<<32 | int64(le32(p, 8))}
	if r.n > maxExtent {
		r.n, r.unwritten = r.n-maxExtent, true
	}
	return r
}

// putExtents writes m as an extent tree. It adds levels until the top one has at most four entries,
// which fit the inode. New tree blocks are appended to m.tables.
func (ms *mappings) putExtents(n inode, m *mapping) error {
	entries := extentsOf(m.runs)
	level := uint16(0)
	for ; len(entries) > 4; level++ {
		var err error
		if entries, err = ms.putLevel(n, m, entries, level); err != nil {
			return err
		}
	}
	putNode(n.blockArea(), entries, level)
	return nil
}

// putLevel writes entries into new tree blocks and returns the index entries that point to those
// blocks.
func (ms *mappings) putLevel(n inode, m *mapping, entries [][]byte, level uint16) (above [][]byte, err error) {
	// Four bytes are for the checksum.
	most := (int(ms.super.blockSize) - extentHeader - 4) / extentEntry
	for len(entries) > 0 {
		part := entries[:min(most, len(entries))]
		entries = entries[len(part):]
		at, b, err := ms.newTable(n, m)
		if err != nil {
			return nil, err
		}
		putNode(b, part, level)
		if ms.super.metadataCSum() {
			tail := extentTail(b)
			put32(b, tail, crc32c(ms.super.inodeSeed(n), b[:tail]))
		}
		e := make([]byte, extentEntry)
		// An index entry begins with the first file block of its child.
		copy(e, part[0][:4])
		put32(e, 4, uint32(at))
		put16(e, 8, uint16(at>>32))
		above = append(above, e)
	}
	return above, nil
}

// putNode writes the header and the entries of a tree node. len(node) determines the maximum number
// of entries.
func putNode(node []byte, entries [][]byte, level uint16) {
	put16(node, 0, extentMagic)
	put16(node, 2, uint16(len(entries)))
	put16(node, 4, uint16((len(node)-extentHeader)/extentEntry))
	put16(node, 6, level)
	for i, e := range entries {
		copy(node[extentHeader+i*extentEntry:], e)
	}
}

// extentsOf returns the leaf entries for runs. A run that exceeds the maximum length of an extent is
// split.
func extentsOf(runs []run) (entries [][]byte) {
	for _, r := range runs {
		// A length above maxExtent marks an unwritten extent, which is one block shorter at most.
		most, mark := int64(maxExtent), uint16(0)
		if r.unwritten {
			most, mark = maxExtent-1, maxExtent
		}
		for r.n > 0 {
			n := min(r.n, most)
			e := make([]byte, extentEntry)
			put32(e, 0, uint32(r.file))
			put16(e, 4, uint16(n)+mark)
			put16(e, 6, uint16(r.disk>>32))
			put32(e, 8, uint32(r.disk))
			entries = append(entries, e)
			r.file, r.disk, r.n = r.file+n, r.disk+n, r.n-n
		}
	}
	return entries
}
