package ntfs

import (
	"errors"
	"fmt"
	"io"
	"unicode/utf16"

	"github.com/decamp/decamp/internal/guest/tree"
)

// maxNames limits the names that List returns for one folder.
const maxNames = 1 << 17

// A node is a file or a folder of a volume; it implements tree.Node. Its kind is tree.Other if it has
// a reparse point: links, junctions, and files that CompactOS compressed.
type node struct {
	v    *Volume // volume that contains the file
	r    *record // base record of the file
	data *stream // unnamed data of a file; nil for other kinds
}

// Tree returns the volume's files. It reads the root folder's record.
func (v *Volume) Tree() (*tree.Tree, error) {
	v.reads = 0
	root, err := v.readRecord(recordRoot)
	if err != nil {
		return nil, fmt.Errorf("root folder: %w", err)
	}
	n, err := v.openNode(root)
	return tree.New(n), err
}

// openNode returns the file or folder of a record, and opens the data of a file.
func (v *Volume) openNode(r *record) (*node, error) {
	n := &node{v: v, r: r}
	if n.Kind() != tree.File {
		return n, nil
	}
	var err error
	n.data, err = v.openStream(r, typeData, "")
	return n, err
}

// Kind returns tree.Other for everything with a reparse point.
func (n *node) Kind() tree.Kind {
	if _, points := n.r.findAttribute(typeReparse, ""); points {
		return tree.Other
	}
	if n.r.isFolder() {
		return tree.Folder
	}
	return tree.File
}

// Size returns the bytes of a file's data, and 0 for other kinds.
func (n *node) Size() int64 {
	if n.data == nil {
		return 0
	}
	return n.data.size
}

// ReadAt reads from the data of a file. For a compressed file it decompresses the units that contain
// the range. It returns io.EOF if the range exceeds the file.
func (n *node) ReadAt(p []byte, off int64) (int, error) {
	if n.data == nil {
		return 0, errors.New("not a regular file")
	}
	if off < 0 {
		return 0, io.ErrUnexpectedEOF
	}
	count := max(0, min(int64(len(p)), n.data.size-off))
	if count > 0 {
		if err := n.data.readAt(p[:count], off); err != nil {
			return 0, err
		}
	}
	if count < int64(len(p)) {
		return int(count), io.EOF
	}
	return int(count), nil
}

// List returns the entries of a folder in the order of the index, which is that of Windows. Short
// (8.3) names of files that also have a long name are omitted. A folder of more than maxNames names is
// an error.
func (n *node) List() ([]tree.Entry, error) {
	n.v.reads = 0
	t, entries, err := n.v.openIndex(n.r)
	if err != nil {
		return nil, err
	}
	defer t.release()
	all := tree.NewListing(n.v.r.Budget())
	defer all.Close()
	if err := t.listBlock(all, entries, 0); err != nil {
		return nil, err
	}
	return all.Close(), nil
}

// Find returns the entry of a folder with the name, compared without regard to case; short names match,
// too. The error is ErrNotFound if there is no such entry. Find fails if the record was reused for
// another file.
func (n *node) Find(name string) (tree.Node, error) {
	n.v.reads = 0
	t, entries, err := n.v.openIndex(n.r)
	if err != nil {
		return nil, err
	}
	defer t.release()
	ref, err := t.findName(entries, utf16.Encode([]rune(name)))
	if err != nil {
		return nil, err
	}
	r, err := n.v.readRecord(int64(ref & refNumber))
	// The upper 16 bits of a reference are the sequence number that the record had for this file.
	if err == nil && r.sequence != uint16(ref>>48) {
		err = fmt.Errorf("%w: %s is another file by now", errCorrupt, name)
	}
	if err != nil {
		return nil, err
	}
	return n.v.openNode(r)
}

// Target always fails: this package does not follow links.
func (n *node) Target() (string, error) { return "", errors.New("links are not followed") }
