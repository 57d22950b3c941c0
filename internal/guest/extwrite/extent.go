package extwrite

const (
	extentMagic  = 0xf30a
	extentHeader = 12
	extentEntry  = 12
	maxDepth     = 5
	maxExtent    = 32768 // blocks; entries with more stand for unwritten ones
)

// readExtents reads an extent tree.
func (ms *mappings) readExtents(n inode, m *mapping) error {
	return ms.readNode(n, m, n.where(), maxDepth)
}

// readNode reads a node that may be depth levels high.
func (ms *mappings) readNode(n inode, m *mapping, node []byte, depth int) error {
	entries, level := int(le16(node, 2)), int(le16(node, 6))
	if le16(node, 0) != extentMagic || extentHeader+entries*extentEntry > len(node) || level > depth {
		return corrupt("inode %d has an invalid extent tree", n.num)
	}
	for i := range entries {
		entry := node[extentHeader+i*extentEntry:][:extentEntry]
		if level == 0 {
			if err := m.add(parseExtent(entry)); err != nil {
				return err
			}
			continue
		}
		child := int64(le16(entry, 8))<<32 | int64(le32(entry, 4))
		if err := ms.readChild(n, m, child, level-1); err != nil {
			return err
		}
	}
	return nil
}

func (ms *mappings) readChild(n inode, m *mapping, child int64, depth int) error {
	if len(m.tables) >= maxRuns {
		return corrupt("inode %d has an extent tree without end", n.num)
	}
	b, err := ms.stage.read(child)
	if err != nil {
		return err
	}
	if at := extentTail(b); ms.super.metadataCSum() && (at+4 > len(b) || le32(b, at) != crc32c(ms.super.inodeSeed(n), b[:at])) {
		return corrupt("the checksum of extents of inode %d is wrong", n.num)
	}
	m.tables = append(m.tables, child)
	return ms.readNode(n, m, b, depth)
}

// extentTail returns the offset of the checksum in a block of extents: after the space for all entries.
func extentTail(b []byte) int { return extentHeader + int(le16(b, 4))*extentEntry }

func parseExtent(p []byte) run {
	r := run{file: int64(le32(p, 0)), n: int64(le16(p, 4)), disk: int64(le16(p, 6))<<32 | int64(le32(p, 8))}
	if r.n > maxExtent {
		r.n, r.unwritten = r.n-maxExtent, true
	}
	return r
}

// putExtents writes an extent tree: leaves, and levels above them until one fits the inode.
func (ms *mappings) putExtents(n inode, m *mapping) error {
	entries := extentsOf(m.runs)
	level := uint16(0)
	for ; len(entries) > 4; level++ {
		var err error
		if entries, err = ms.putLevel(n, m, entries, level); err != nil {
			return err
		}
	}
	putNode(n.where(), entries, level)
	return nil
}

// putLevel writes entries into blocks and returns the entries that point to those.
func (ms *mappings) putLevel(n inode, m *mapping, entries [][]byte, level uint16) (above [][]byte, err error) {
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
		copy(e, part[0][:4])
		put32(e, 4, uint32(at))
		put16(e, 8, uint16(at>>32))
		above = append(above, e)
	}
	return above, nil
}

func putNode(node []byte, entries [][]byte, level uint16) {
	put16(node, 0, extentMagic)
	put16(node, 2, uint16(len(entries)))
	put16(node, 4, uint16((len(node)-extentHeader)/extentEntry))
	put16(node, 6, level)
	for i, e := range entries {
		copy(node[extentHeader+i*extentEntry:], e)
	}
}

// extentsOf returns the entries of a tree's leaves; a long run takes several.
func extentsOf(runs []run) (entries [][]byte) {
	for _, r := range runs {
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
