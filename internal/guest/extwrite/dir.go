package extwrite

import (
	"github.com/decamp/decamp/internal/fault"
)

const (
	entryHeader = 8
	tailLen     = 12 // bytes at the end of a folder's block with checksums
	tailType    = 0xde
)

// An entry is a name in a folder's block.
type entry struct {
	off, length int // where in the block, with the room after it
	inode       uint32
	name        string
	kind        byte
}

// need is the room that a name takes.
func need(name string) int { return (entryHeader + len(name) + 3) &^ 3 }

// folders reads and changes the names in folders.
type folders struct {
	super  *super
	stage  *stage
	groups *groupTable
	inodes *inodeTable
	maps   *mappings
}

// entries reads a block of a folder. Its entries follow each other to its end; the tail of
// one with checksums looks like an entry without inode.
func (s *super) entries(b []byte) ([]entry, error) {
	var out []entry
	for at := 0; at < len(b); {
		if len(b)-at < entryHeader {
			return nil, corrupt("a folder's block ends within an entry")
		}
		e := entry{off: at, inode: le32(b, at), length: int(le16(b, at+4)), kind: b[at+7]}
		nameLen := int(b[at+6])
		if s.incompat&incompatFileType == 0 && e.kind != 0 {
			return nil, corrupt("a name of %d bytes", int(e.kind)<<8|nameLen)
		}
		if e.length < entryHeader || e.length%4 != 0 || e.length > len(b)-at || entryHeader+nameLen > e.length {
			return nil, corrupt("a folder's entry of %d bytes with a name of %d", e.length, nameLen)
		}
		e.name = string(b[at+entryHeader:][:nameLen])
		out, at = append(out, e), at+e.length
	}
	return out, nil
}

// folder reads where a folder is, and refuses one that is too large or has holes.
func (f *folders) mapping(n inode) (*mapping, error) {
	if !n.is(modeDir) {
		return nil, fault.New(fault.NotFound, "it is no folder")
	}
	if n.size() > maxDir || n.size()%f.super.blockSize != 0 {
		return nil, fault.New(fault.Unsupported, "a folder of %d bytes", n.size())
	}
	m, err := f.maps.read(n)
	if err != nil {
		return nil, err
	}
	for i := range n.size() / f.super.blockSize {
		if m.find(i) == 0 {
			return nil, corrupt("a folder with a hole")
		}
	}
	return m, nil
}

// each calls visit with each block of a folder, until it returns true.
func (f *folders) each(n inode, visit func(at int64, b []byte, list []entry) (done bool, err error)) error {
	m, err := f.mapping(n)
	if err != nil {
		return err
	}
	for i := range n.size() / f.super.blockSize {
		at := m.find(i)
		b, err := f.stage.read(at)
		if err != nil {
			return err
		}
		list, err := f.super.entries(b)
		if err != nil {
			return err
		}
		if done, err := visit(at, b, list); done || err != nil {
			return err
		}
	}
	return nil
}

// lookUp finds a name. Folders with a hash tree read as plain lists, too.
func (f *folders) lookUp(folder inode, name string) (num uint32, err error) {
	err = f.each(folder, func(_ int64, _ []byte, list []entry) (bool, error) {
		for _, e := range list {
			if e.inode != 0 && e.name == name {
				num = e.inode
				return true, nil
			}
		}
		return false, nil
	})
	if err == nil && num == 0 {
		err = errNotFound
	}
	return num, err
}

// link gives inode num a name in a folder that has none of that name.
func (f *folders) link(folder inode, name string, num uint32, kind byte) error {
	if len(name) > 255 {
		return fault.New(fault.Invalid, "a name of %d bytes", len(name))
	}
	if folder.flags()&flagIndex != 0 {
		if done, err := f.linkByHash(folder, name, num, kind); done || err != nil {
			return err
		}
		if err := f.flatten(folder); err != nil {
			return err
		}
	}
	linked := false
	err := f.each(folder, func(at int64, _ []byte, list []entry) (_ bool, err error) {
		linked, err = f.insert(folder, at, list, name, num, kind)
		return linked, err
	})
	if err != nil || linked {
		return err
	}
	return f.grow(folder, name, num, kind)
}

// insert puts a name into the first gap of a block that takes it.
func (f *folders) insert(folder inode, at int64, list []entry, name string, num uint32, kind byte) (bool, error) {
	for _, e := range list {
		used := need(e.name)
		if e.inode == 0 {
			used = 0
		}
		if isTail(e) || e.length-used < need(name) {
			continue
		}
		b, err := f.stage.edit(at)
		if err != nil {
			return false, err
		}
		if used > 0 {
			put16(b, e.off+4, uint16(used))
		}
		f.super.putEntry(b, e.off+used, e.length-used, name, num, kind)
		f.super.sealLeaf(folder, b)
		return true, f.inodes.write(folder)
	}
	return false, nil
}

func isTail(e entry) bool { return e.inode == 0 && e.length == tailLen && e.kind == tailType }

func (s *super) putEntry(b []byte, at, length int, name string, num uint32, kind byte) {
	put32(b, at, num)
	put16(b, at+4, uint16(length))
	b[at+6] = byte(len(name))
	b[at+7] = 0
	if s.incompat&incompatFileType != 0 {
		b[at+7] = kind
	}
	copy(b[at+entryHeader:], name)
}

// leafLen is how much of a folder's block is for entries.
func (s *super) leafLen() int {
	if s.metadataCSum() {
		return int(s.blockSize) - tailLen
	}
	return int(s.blockSize)
}

// sealLeaf writes the tail of a folder's block.
func (s *super) sealLeaf(folder inode, b []byte) {
	if !s.metadataCSum() {
		return
	}
	at := s.leafLen()
	put32(b, at, 0)
	put16(b, at+4, tailLen)
	b[at+6], b[at+7] = 0, tailType
	put32(b, at+8, crc32c(s.inodeSeed(folder), b[:at]))
}

// grow adds a block to a folder, with one name in it.
func (f *folders) grow(folder inode, name string, num uint32, kind byte) error {
	m, err := f.mapping(folder)
	if err != nil {
		return err
	}
	if err := f.maps.extend(folder.num, m, 1); err != nil {
		return err
	}
	b, err := f.stage.blank(m.find(m.end() - 1))
	if err != nil {
		return err
	}
	f.super.putEntry(b, 0, f.super.leafLen(), name, num, kind)
	f.super.sealLeaf(folder, b)
	if err := f.maps.write(folder, m); err != nil {
		return err
	}
	folder.setSize(folder.size() + f.super.blockSize)
	return f.inodes.write(folder)
}
