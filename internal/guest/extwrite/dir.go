package extwrite

import (
	"github.com/decamp/decamp/internal/fault"
)

const (
	entryHeader = 8    // bytes of an entry before its name
	tailLen     = 12   // bytes at the end of a folder's block that hold its checksum; only with metadata_csum
	tailType    = 0xde // file type of the tail, which looks like an unused entry to old kernels
)

// An entry is one name in a block of a folder (struct ext4_dir_entry_2).
type entry struct {
	off, length int    // offset within the block, and bytes up to the next entry, unused ones included
	inode       uint32 // number of the file's inode; 0 means that the entry is unused
	name        string // name without a terminating zero, at most 255 bytes
	kind        byte   // kindFile, kindDir or kindLink; 0 without the feature filetype
}

// entryLen returns the bytes that an entry with the name needs: its header and the name, rounded up
// to a multiple of four.
func entryLen(name string) int { return (entryHeader + len(name) + 3) &^ 3 }

// folders reads and changes the names in folders, both plain ones and ones with a hash tree.
type folders struct {
	super  *super      // geometry and features
	stage  *stage      // blocks of the folders
	groups *groupTable // source of the superblock, which holds the hash seed
	inodes *inodeTable // inodes of the folders
	maps   *mappings   // blocks that belong to a folder
}

// parseEntries parses a block of a folder. The entries fill the block without gaps; the tail of a
// block with checksums is returned as an unused entry. An entry that is too short, unaligned or
// exceeds the block is an error.
func (s *super) parseEntries(b []byte) ([]entry, error) {
	var out []entry
	for at := 0; at < len(b); {
		if len(b)-at < entryHeader {
			return nil, corrupt("a folder's block ends within an entry")
		}
		e := entry{off: at, inode: le32(b, at), length: int(le16(b, at+4)), kind: b[at+7]}
		nameLen := int(b[at+6])
		// Without filetype the length of a name has 16 bits, but names have at most 255 bytes.
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

// readMapping returns the mapping of a folder. It fails if n is not a folder, if the folder exceeds
// maxDir, or if it has holes.
func (f *folders) readMapping(n inode) (*mapping, error) {
	if !n.hasType(modeDir) {
		return nil, fault.New(fault.NotFound, "it is not a folder")
	}
	if n.size() > maxDir || n.size()%f.super.blockSize != 0 {
		return nil, fault.New(fault.Unsupported, "a folder of %d bytes", n.size())
	}
	m, err := f.maps.readMapping(n)
	if err != nil {
		return nil, err
	}
	for i := range n.size() / f.super.blockSize {
		if m.diskBlock(i) == 0 {
			return nil, corrupt("a folder with a hole")
		}
	}
	return m, nil
}

// eachBlock calls visit for each block of a folder, with the disk block number, its bytes and its
// entries. It stops when visit returns true or an error. visit must not change b.
func (f *folders) eachBlock(n inode, visit func(at int64, b []byte, list []entry) (done bool, err error)) error {
	m, err := f.readMapping(n)
	if err != nil {
		return err
	}
	for i := range n.size() / f.super.blockSize {
		at := m.diskBlock(i)
		b, err := f.stage.readBlock(at)
		if err != nil {
			return err
		}
		list, err := f.super.parseEntries(b)
		if err != nil {
			return err
		}
		if done, err := visit(at, b, list); done || err != nil {
			return err
		}
	}
	return nil
}

// lookUp returns the inode number of a name, or errNotFound. It searches linearly, because the
// blocks of a folder with a hash tree are valid as a plain list.
func (f *folders) lookUp(folder inode, name string) (num uint32, err error) {
	err = f.eachBlock(folder, func(_ int64, _ []byte, list []entry) (bool, error) {
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

// addName adds a name for inode num to a folder. The caller must have checked that the name does not
// exist. If a hash tree has no room for the name, addName converts the folder to a plain list.
func (f *folders) addName(folder inode, name string, num uint32, kind byte) error {
	if len(name) > 255 {
		return fault.New(fault.Invalid, "a name of %d bytes", len(name))
	}
	// A name outside its leaf would be invisible to the kernel, so a full leaf ends the hash tree.
	if folder.flags()&flagIndex != 0 {
		if done, err := f.addNameByHash(folder, name, num, kind); done || err != nil {
			return err
		}
		if err := f.removeHashTree(folder); err != nil {
			return err
		}
	}
	linked := false
	err := f.eachBlock(folder, func(at int64, _ []byte, list []entry) (_ bool, err error) {
		linked, err = f.insertEntry(folder, at, list, name, num, kind)
		return linked, err
	})
	if err != nil || linked {
		return err
	}
	return f.appendBlock(folder, name, num, kind)
}

// insertEntry adds the name to a block if an entry has enough unused bytes after it, and reports
// whether it did. list must be the entries of block at.
func (f *folders) insertEntry(folder inode, at int64, list []entry, name string, num uint32, kind byte) (bool, error) {
	for _, e := range list {
		// used is the part of the entry that its own name needs; the rest is free.
		used := entryLen(e.name)
		if e.inode == 0 {
			used = 0
		}
		if isTail(e) || e.length-used < entryLen(name) {
			continue
		}
		b, err := f.stage.editBlock(at)
		if err != nil {
			return false, err
		}
		if used > 0 {
			// The old entry shrinks to its size; the new one gets the rest.
			put16(b, e.off+4, uint16(used))
		}
		f.super.putEntry(b, e.off+used, e.length-used, name, num, kind)
		f.super.writeLeafTail(folder, b)
		return true, f.inodes.writeInode(folder)
	}
	return false, nil
}

// isTail reports whether an entry is the checksum tail of a block.
func isTail(e entry) bool { return e.inode == 0 && e.length == tailLen && e.kind == tailType }

// putEntry writes an entry at offset at of b. length is the distance to the next entry.
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

// leafLen returns the bytes of a folder's block that entries may use: all but the checksum tail.
func (s *super) leafLen() int {
	if s.metadataCSum() {
		return int(s.blockSize) - tailLen
	}
	return int(s.blockSize)
}

// writeLeafTail writes the checksum tail of a folder's block. It does nothing without metadata_csum.
func (s *super) writeLeafTail(folder inode, b []byte) {
	if !s.metadataCSum() {
		return
	}
	at := s.leafLen()
	put32(b, at, 0)
	put16(b, at+4, tailLen)
	b[at+6], b[at+7] = 0, tailType
	// The checksum covers the entries, with inode number and generation as seed.
	put32(b, at+8, crc32c(s.inodeSeed(folder), b[:at]))
}

// appendBlock adds a block to the end of a folder, with the name as its only entry.
func (f *folders) appendBlock(folder inode, name string, num uint32, kind byte) error {
	m, err := f.readMapping(folder)
	if err != nil {
		return err
	}
	if err := f.maps.extendFile(folder.num, m, 1); err != nil {
		return err
	}
	b, err := f.stage.zeroBlock(m.diskBlock(m.end() - 1))
	if err != nil {
		return err
	}
	f.super.putEntry(b, 0, f.super.leafLen(), name, num, kind)
	f.super.writeLeafTail(folder, b)
	if err := f.maps.writeMapping(folder, m); err != nil {
		return err
	}
	folder.setSize(folder.size() + f.super.blockSize)
	return f.inodes.writeInode(folder)
}
