package xfs

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"

	"github.com/decamp/decamp/internal/guest/budget"
	"github.com/decamp/decamp/internal/guest/tree"
)

const (
	maxEntries = 1 << 16 // names that are read of one folder
	maxDir     = 1 << 35 // offset in a folder at which its hash tables begin, in bytes
)

// A dirEntry is one name of a folder.
type dirEntry struct {
	tree.Entry
	inode uint64 // number of the file's inode
}

// List implements tree.Node.
func (n *node) List() ([]tree.Entry, error) {
	all := tree.NewListing(n.fs.r.Budget())
	defer all.Close()
	var spent error
	err := n.eachEntry(func(e dirEntry) bool {
		spent = all.Add(e.Entry)
		return spent == nil
	})
	if err = cmp.Or(err, spent); err != nil {
		return nil, err
	}
	return all.Close(), nil
}

// Find implements tree.Node; names are compared with case. It searches linearly.
func (n *node) Find(name string) (tree.Node, error) {
	var num uint64
	found := false
	err := n.eachEntry(func(e dirEntry) bool {
		num, found = e.inode, e.Name == name
		return !found
	})
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, fs.ErrNotExist
	}
	return n.fs.readInode(num)
}

// eachEntry calls yield for each name of a folder, except "." and "..", until yield returns false. It
// fails after maxEntries names.
func (n *node) eachEntry(yield func(dirEntry) bool) error {
	n.fs.reads = 0
	if n.Kind() != tree.Folder {
		return errors.New("not a folder")
	}
	// The limit counts all names, also those that yield does not want.
	left := maxEntries
	var spent error
	bounded := func(e dirEntry) bool {
		left--
		if spent = n.fs.r.Budget().Step(1); spent != nil {
			return false
		}
		return left >= 0 && (e.Name == "." || e.Name == ".." || e.Name == "" || yield(e))
	}
	var err error
	if n.format == formatLocal {
		err = n.eachInlineEntry(bounded)
	} else {
		err = n.eachBlockEntry(bounded)
	}
	if err == nil {
		err = spent
	}
	if err == nil && left < 0 {
		err = fmt.Errorf("a folder of more than %d names", maxEntries)
	}
	return err
}

// eachInlineEntry calls yield for the names of a folder that is stored in its inode: a header with the
// number of names, whether inode numbers have 8 bytes, and the parent; then the entries.
func (n *node) eachInlineEntry(yield func(dirEntry) bool) error {
	p := n.fork[:n.size]
	width := 4
	// Byte 1 is the number of 8-byte inode numbers; if it is not zero, all have 8 bytes.
	if len(p) > 1 && p[1] != 0 {
		width = 8
	}
	if len(p) < 2+width {
		return fmt.Errorf("a folder of %d bytes", len(p))
	}
	count := int(p[0])
	p = p[2+width:]
	for range count {
		if len(p) < 3 || len(p) < n.inlineEntrySize(p, width) {
			return errors.New("truncated folder")
		}
		// Entry: length of the name, offset, name, type (with ftype), inode.
		length := int(p[0])
		rest := p[3+length:]
		e := dirEntry{Entry: tree.Entry{Name: string(p[3:][:length])}}
		if n.fs.ftype {
			e.Kind, rest = entryKind(rest[0]), rest[1:]
		}
		if e.inode = uint64(binary.BigEndian.Uint32(rest)); width == 8 {
			e.inode = binary.BigEndian.Uint64(rest)
		}
		p = rest[width:]
		if !yield(e) {
			return nil
		}
	}
	return nil
}

// inlineEntrySize returns the bytes of the entry that p begins with. width is the size of inode
// numbers.
func (n *node) inlineEntrySize(p []byte, width int) int {
	size := 3 + int(p[0]) + width
	if n.fs.ftype {
		size++
	}
	return size
}

// entryKind converts the file type of an entry.
func entryKind(ftype byte) tree.Kind {
	switch ftype {
	case 1:
		return tree.File
	case 2:
		return tree.Folder
	case 7:
		return tree.Link
	}
	return tree.Other
}

// eachBlockEntry calls yield for the names in the data blocks of a folder. It ignores the hash tables.
func (n *node) eachBlockEntry(yield func(dirEntry) bool) error {
	list, err := n.readExtents()
	if err != nil {
		return err
	}
	stop := false
	b := make([]byte, n.fs.dirSize)
	for _, e := range list {
		// A folder block consists of step blocks and begins at a multiple of step.
		step := n.fs.dirSize / n.fs.blockSize
		for i := int64(0); i < e.count && (e.off+i)*n.fs.blockSize < maxDir && !stop; i += step {
			if err := n.fs.r.Budget().Step(1 + n.fs.dirSize>>9); err != nil {
				return err
			}
			if (e.off+i)%step != 0 {
				i -= step - 1 // skip the rest of a block that began in the previous extent
				continue
			}
			if err := n.readDirBlock(b, e.off+i); err != nil {
				return err
			}
			if stop, err = n.eachDataEntry(b, yield); err != nil {
				return err
			}
		}
	}
	return nil
}

// readDirBlock reads the folder block at block off of the folder to b. It may be spread over several
// extents.
func (n *node) readDirBlock(b []byte, off int64) error {
	if n.fs.reads++; n.fs.reads > MaxReads {
		return budget.Exceeded("more than %d blocks would be read", MaxReads)
	}
	// readRun returns at the end of each extent.
	for done := 0; done < len(b); {
		got, err := n.readRun(n.list, b[done:], off*n.fs.blockSize+int64(done))
		if err != nil {
			return err
		}
		done += got
	}
	return nil
}

// eachDataEntry calls yield for the names of one folder block. stop is true if yield returned false.
func (n *node) eachDataEntry(b []byte, yield func(dirEntry) bool) (stop bool, err error) {
	// The header of version 5 has a checksum, a UUID and its own location.
	head := 16
	if n.fs.version == 5 {
		head = 64
	}
	end := len(b)
	switch magic := string(b[:4]); magic {
	case "XD2D", "XDD3":
	case "XD2B", "XDB3": // a single block, which ends with its hash table
		// The tail has the number of hash entries of 8 bytes each.
		table := 8 + 8*int64(be32(b, len(b)-8))
		if table > int64(len(b)-head) {
			return true, fmt.Errorf("a folder with a table of %d bytes", table)
		}
		end -= int(table)
	default:
		return true, fmt.Errorf("a block of a folder with magic number %q", magic)
	}
	for b = b[head:end]; len(b) >= 8; {
		size := int(be16(b, 2))
		// 0xffff marks unused space; its length follows.
		if be16(b, 0) != 0xffff { // used entry
			e, length, ok := n.parseDataEntry(b)
			if !ok {
				return true, errors.New("a folder's entry beyond its block")
			}
			if !yield(e) {
				return true, nil
			}
			size = length
		}
		if size < 8 || size > len(b) {
			return true, fmt.Errorf("a folder's entry of %d bytes", size)
		}
		b = b[size:]
	}
	return false, nil
}

// parseDataEntry parses the entry that b begins with: inode, name, kind, and a tag at the end of a
// multiple of eight bytes. ok is false if the entry exceeds b.
func (n *node) parseDataEntry(b []byte) (_ dirEntry, size int, ok bool) {
	if len(b) < 16 {
		return dirEntry{}, 0, false
	}
	length := int(b[8])
	size = 8 + 1 + length + 2
	if n.fs.ftype {
		size++
	}
	size = (size + 7) &^ 7
	if size > len(b) {
		return dirEntry{}, 0, false
	}
	e := dirEntry{Entry: tree.Entry{Name: string(b[9:][:length])}, inode: be64(b, 0)}
	if n.fs.ftype {
		e.Kind = entryKind(b[9+length])
	}
	return e, size, true
}
