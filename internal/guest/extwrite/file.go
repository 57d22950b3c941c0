package extwrite

import (
	"github.com/decamp/decamp/internal/fault"
)

// Kinds of names in folders.
const (
	kindFile = 1 // regular file (EXT4_FT_REG_FILE)
	kindDir  = 2 // folder (EXT4_FT_DIR)
	kindLink = 7 // symbolic link (EXT4_FT_SYMLINK)
)

// WriteFile replaces the content of the file at path. An existing file keeps its owner, mode and
// extended attributes. A new file gets the attributes of a; its folder must exist. Immutable and
// append-only files are refused with fault.Denied.
func (fs *FS) WriteFile(path string, data []byte, a Attr) error {
	return fs.runChange("write", path, func() error {
		n, name, err := fs.paths.resolveForWrite(path)
		if err != nil {
			return err
		}
		// The path exists: keep its inode, and so its owner and attributes.
		if name == "" {
			return fs.replaceContent(n, data)
		}
		if !n.hasType(modeDir) {
			return errNotFound
		}
		file, err := fs.makeInode(n, modeFile, a)
		if err != nil {
			return err
		}
		if err := fs.writeContent(file, &mapping{}, data); err != nil {
			return err
		}
		return fs.folders.addName(n, name, file.num, kindFile)
	})
}

// replaceContent frees the blocks of a file, allocates blocks for data and writes it. The file keeps
// its inode.
func (fs *FS) replaceContent(n inode, data []byte) error {
	if err := checkWritable(n); err != nil {
		return err
	}
	m, err := fs.maps.readMapping(n)
	if err != nil {
		return err
	}
	for _, r := range m.runs {
		if err := fs.alloc.freeBlocks(r.disk, r.n); err != nil {
			return err
		}
	}
	return fs.writeContent(n, &mapping{tables: m.tables}, data)
}

// checkWritable fails if n is not a regular file, or if its flags (chattr +i, +a) forbid changes.
func checkWritable(n inode) error {
	switch {
	case !n.hasType(modeFile):
		return fault.New(fault.Unsupported, "it is not a regular file")
	case n.flags()&(flagImmutable|flagAppend) != 0:
		return fault.New(fault.Denied, "the guest protects it from changes").WithHint("in the guest: chattr -ia FILE")
	}
	return nil
}

// writeContent writes data to a file whose mapping m has no runs, and stores mapping, size and inode.
func (fs *FS) writeContent(n inode, m *mapping, data []byte) error {
	if err := fs.extendWith(n, m, data); err != nil {
		return err
	}
	if err := fs.maps.writeMapping(n, m); err != nil {
		return err
	}
	n.setSize(int64(len(data)))
	return fs.inodes.writeInode(n)
}

// extendWith allocates blocks at the end of a file and fills them with data. The rest of the last
// block is zero. It changes m but does not store it.
func (fs *FS) extendWith(n inode, m *mapping, data []byte) error {
	first := m.end()
	blocks := (int64(len(data)) + fs.super.blockSize - 1) / fs.super.blockSize
	if blocks == 0 {
		return nil
	}
	if err := fs.maps.extendFile(n.num, m, blocks); err != nil {
		return err
	}
	for i := range blocks {
		b, err := fs.stage.zeroBlock(m.diskBlock(first + i))
		if err != nil {
			return err
		}
		copy(b, data[i*fs.super.blockSize:])
	}
	return nil
}

// AppendFile adds data to the end of the file at path. The file must exist.
func (fs *FS) AppendFile(path string, data []byte) error {
	return fs.runChange("append to", path, func() error {
		n, err := fs.paths.resolvePath(path)
		if err != nil {
			return err
		}
		if err := checkWritable(n); err != nil {
			return err
		}
		m, err := fs.maps.readMapping(n)
		if err != nil {
			return err
		}
		if !m.endsAt(n.size(), fs.super.blockSize) { // holes or unused blocks at the end are rare, so the file is rewritten
			return fs.rewriteWith(n, data)
		}
		return fs.appendTo(n, m, data)
	})
}

// rewriteWith replaces the content of a file by that content and data. The memory is charged to the disk's
// budget: a hole of any size takes no space on the disk.
func (fs *FS) rewriteWith(n inode, data []byte) error {
	if err := checkSize(n); err != nil {
		return err
	}
	all := n.size() + int64(len(data))
	b := fs.stage.disk.Budget()
	if err := b.Hold(all); err != nil {
		return err
	}
	defer b.Release(all)
	old, err := fs.maps.readContent(n, len(data))
	if err != nil {
		return err
	}
	return fs.replaceContent(n, append(old, data...))
}

// endsAt reports whether the mapping ends with the block that holds the file's last byte, and that
// block is written. Only then new data can be placed directly after it.
func (m *mapping) endsAt(size, blockSize int64) bool {
	if m.end() != (size+blockSize-1)/blockSize {
		return false
	}
	return size == 0 || m.diskBlock(m.end()-1) != 0
}

// appendTo fills the rest of the last block with data and adds blocks for the remainder. m must
// satisfy endsAt.
func (fs *FS) appendTo(n inode, m *mapping, data []byte) error {
	size := n.size() + int64(len(data))
	// The last block has free bytes, which may contain old data.
	if used := n.size() % fs.super.blockSize; used > 0 {
		b, err := fs.stage.editBlock(m.diskBlock(m.end() - 1))
		if err != nil {
			return err
		}
		clear(b[used:])
		data = data[copy(b[used:], data):]
	}
	if err := fs.extendWith(n, m, data); err != nil {
		return err
	}
	if err := fs.maps.writeMapping(n, m); err != nil {
		return err
	}
	n.setSize(size)
	return fs.inodes.writeInode(n)
}
