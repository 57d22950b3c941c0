package xfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"

	"github.com/decamp/decamp/internal/guest/budget"
	"github.com/decamp/decamp/internal/guest/tree"
)

const (
	maxEntries = 1 << 16 // names of one folder that are read
	maxDir     = 1 << 35 // the byte at which a folder's hash tables begin
)

// An entry is a name of a folder, with its inode.
type entry struct {
	tree.Entry
	inode uint64
}

// List returns the names of a folder.
func (n *node) List() ([]tree.Entry, error) {
	var all []tree.Entry
	err := n.each(func(e entry) bool {
		all = append(all, e.Entry)
		return true
	})
	return all, err
}

// Find looks a name up.
func (n *node) Find(name string) (tree.Node, error) {
	var num uint64
	found := false
	err := n.each(func(e entry) bool {
		num, found = e.inode, e.Name == name
		return !found
	})
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, fs.ErrNotExist
	}
	return n.fs.inode(num)
}

// each gives the names of a folder to yield until it returns false.
func (n *node) each(yield func(entry) bool) error {
	n.fs.reads = 0
	if n.Kind() != tree.Folder {
		return errors.New("no folder")
	}
	left := maxEntries
	var spent error
	bounded := func(e entry) bool {
		left--
		if spent = n.fs.r.Budget().Step(1); spent != nil {
			return false
		}
		return left >= 0 && (e.Name == "." || e.Name == ".." || e.Name == "" || yield(e))
	}
	var err error
	if n.format == formatLocal {
		err = n.short(bounded)
	} else {
		err = n.blocks(bounded)
	}
	if err == nil {
		err = spent
	}
	if err == nil && left < 0 {
		err = fmt.Errorf("a folder of more than %d names", maxEntries)
	}
	return err
}

// short reads a folder that is in its inode.
func (n *node) short(yield func(entry) bool) error {
	p := n.fork[:n.size]
	width := 4
	if len(p) > 1 && p[1] != 0 {
		width = 8
	}
	if len(p) < 2+width {
		return fmt.Errorf("a folder of %d bytes", len(p))
	}
	count := int(p[0])
	p = p[2+width:]
	for range count {
		if len(p) < 3 || len(p) < n.shortSize(p, width) {
			return errors.New("a folder that is cut short")
		}
		length := int(p[0])
		rest := p[3+length:]
		e := entry{Entry: tree.Entry{Name: string(p[3:][:length])}}
		if n.fs.ftype {
			e.Kind, rest = kind(rest[0]), rest[1:]
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

// shortSize returns the bytes of the entry that p starts with.
func (n *node) shortSize(p []byte, width int) int {
	size := 3 + int(p[0]) + width
	if n.fs.ftype {
		size++
	}
	return size
}

func kind(ftype byte) tree.Kind {
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

// blocks reads a folder of data blocks, whatever finds names in them.
func (n *node) blocks(yield func(entry) bool) error {
	list, err := n.extents()
	if err != nil {
		return err
	}
	stop := false
	b := make([]byte, n.fs.dirSize)
	for _, e := range list {
		step := n.fs.dirSize / n.fs.blockSize
		for i := int64(0); i < e.count && (e.off+i)*n.fs.blockSize < maxDir && !stop; i += step {
			if err := n.fs.r.Budget().Step(1 + n.fs.dirSize>>9); err != nil {
				return err
			}
			if (e.off+i)%step != 0 {
				i -= step - 1 // the rest of a block that began in the extent before
				continue
			}
			if err := n.dirBlock(b, e.off+i); err != nil {
				return err
			}
			if stop, err = n.dataBlock(b, yield); err != nil {
				return err
			}
		}
	}
	return nil
}

// dirBlock fills b with the folder's block that starts at block off of its file. It may lie in
// several extents.
func (n *node) dirBlock(b []byte, off int64) error {
	if n.fs.reads++; n.fs.reads > MaxReads {
		return budget.Exceeded("more than %d blocks would be read", MaxReads)
	}
	for done := 0; done < len(b); {
		got, err := n.readRun(n.list, b[done:], off*n.fs.blockSize+int64(done))
		if err != nil {
			return err
		}
		done += got
	}
	return nil
}

// dataBlock gives the names of one block to yield; stop means that it wants no more.
func (n *node) dataBlock(b []byte, yield func(entry) bool) (stop bool, err error) {
	head := 16
	if n.fs.version == 5 {
		head = 64
	}
	end := len(b)
	switch magic := string(b[:4]); magic {
	case "XD2D", "XDD3":
	case "XD2B", "XDB3": // the only block: it ends with the hash table
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
		if be16(b, 0) != 0xffff { // not free space
			e, length, ok := n.dataEntry(b)
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

// dataEntry reads the entry that b starts with: inode, name, kind, and a tag at the end of
// a multiple of eight.
func (n *node) dataEntry(b []byte) (_ entry, size int, ok bool) {
	if len(b) < 16 {
		return entry{}, 0, false
	}
	length := int(b[8])
	size = 8 + 1 + length + 2
	if n.fs.ftype {
		size++
	}
	size = (size + 7) &^ 7
	if size > len(b) {
		return entry{}, 0, false
	}
	e := entry{Entry: tree.Entry{Name: string(b[9:][:length])}, inode: be64(b, 0)}
	if n.fs.ftype {
		e.Kind = kind(b[9+length])
	}
	return e, size, true
}
