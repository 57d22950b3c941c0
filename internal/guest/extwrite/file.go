package extwrite

import (
	"github.com/decamp/decamp/internal/fault"
)

// Kinds of names in folders.
const (
	kindFile = 1
	kindDir  = 2
	kindLink = 7
)

// WriteFile replaces the content of the file at path. An existing file keeps its owner, mode and
// attributes; a new one gets the attributes of a, in an existing folder.
func (fs *FS) WriteFile(path string, data []byte, a Attr) error {
	return fs.do("write", path, func() error {
		n, name, err := fs.paths.placeOf(path)
		if err != nil {
			return err
		}
		if name == "" {
			return fs.replace(n, data)
		}
		if !n.is(modeDir) {
			return errNotFound
		}
		file, err := fs.makeInode(n, modeFile, a)
		if err != nil {
			return err
		}
		if err := fs.fill(file, &mapping{}, data); err != nil {
			return err
		}
		return fs.folders.link(n, name, file.num, kindFile)
	})
}

// replace gives a file another content.
func (fs *FS) replace(n inode, data []byte) error {
	if err := writable(n); err != nil {
		return err
	}
	m, err := fs.maps.read(n)
	if err != nil {
		return err
	}
	for _, r := range m.runs {
		if err := fs.alloc.free(r.disk, r.n); err != nil {
			return err
		}
	}
	return fs.fill(n, &mapping{tables: m.tables}, data)
}

// writable refuses files that must not be written, by their kind or their flags.
func writable(n inode) error {
	switch {
	case !n.is(modeFile):
		return fault.New(fault.Unsupported, "it is no file")
	case n.flags()&(flagImmutable|flagAppend) != 0:
		return fault.New(fault.Denied, "the guest protects it from changes").WithHint("in the guest: chattr -ia FILE")
	}
	return nil
}

// fill writes a file that has no blocks.
func (fs *FS) fill(n inode, m *mapping, data []byte) error {
	if err := fs.extendWith(n, m, data); err != nil {
		return err
	}
	if err := fs.maps.write(n, m); err != nil {
		return err
	}
	n.setSize(int64(len(data)))
	return fs.inodes.write(n)
}

// extendWith adds blocks with data to a file's end.
func (fs *FS) extendWith(n inode, m *mapping, data []byte) error {
	first := m.end()
	blocks := (int64(len(data)) + fs.super.blockSize - 1) / fs.super.blockSize
	if blocks == 0 {
		return nil
	}
	if err := fs.maps.extend(n.num, m, blocks); err != nil {
		return err
	}
	for i := range blocks {
		b, err := fs.stage.blank(m.find(first + i))
		if err != nil {
			return err
		}
		copy(b, data[i*fs.super.blockSize:])
	}
	return nil
}

// AppendFile adds data to the end of the file at path.
func (fs *FS) AppendFile(path string, data []byte) error {
	return fs.do("append to", path, func() error {
		n, err := fs.paths.resolve(path)
		if err != nil {
			return err
		}
		if err := writable(n); err != nil {
			return err
		}
		m, err := fs.maps.read(n)
		if err != nil {
			return err
		}
		if !m.endsAt(n.size(), fs.super.blockSize) { // holes or room at its end: seldom, so the simple way
			old, err := fs.maps.content(n)
			if err != nil {
				return err
			}
			return fs.replace(n, append(old, data...))
		}
		return fs.appendTo(n, m, data)
	})
}

// endsAt reports whether the blocks of a file end where it ends, and the last one is written.
func (m *mapping) endsAt(size, blockSize int64) bool {
	if m.end() != (size+blockSize-1)/blockSize {
		return false
	}
	return size == 0 || m.find(m.end()-1) != 0
}

func (fs *FS) appendTo(n inode, m *mapping, data []byte) error {
	size := n.size() + int64(len(data))
	if used := n.size() % fs.super.blockSize; used > 0 {
		b, err := fs.stage.edit(m.find(m.end() - 1))
		if err != nil {
			return err
		}
		clear(b[used:])
		data = data[copy(b[used:], data):]
	}
	if err := fs.extendWith(n, m, data); err != nil {
		return err
	}
	if err := fs.maps.write(n, m); err != nil {
		return err
	}
	n.setSize(size)
	return fs.inodes.write(n)
}
