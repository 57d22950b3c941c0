package ntfs

import (
	"errors"
	"fmt"
	"io"
	"unicode/utf16"

	"github.com/decamp/decamp/internal/guest/tree"
)

// maxNames bounds the names of one folder that are listed.
const maxNames = 1 << 17

// A node is a file or a folder of a volume. What has a reparse point (links, junctions,
// files that CompactOS compressed) is neither.
type node struct {
	v    *Volume
	r    *record
	data *stream // data of a file
}

// Tree returns the volume's files.
func (v *Volume) Tree() (*tree.Tree, error) {
	v.reads = 0
	root, err := v.record(recordRoot)
	if err != nil {
		return nil, fmt.Errorf("root folder: %w", err)
	}
	n, err := v.node(root)
	return tree.New(n), err
}

// node opens what a record stands for.
func (v *Volume) node(r *record) (*node, error) {
	n := &node{v: v, r: r}
	if n.Kind() != tree.File {
		return n, nil
	}
	var err error
	n.data, err = v.stream(r, typeData, "")
	return n, err
}

func (n *node) Kind() tree.Kind {
	if _, points := n.r.first(typeReparse, ""); points {
		return tree.Other
	}
	if n.r.folder() {
		return tree.Folder
	}
	return tree.File
}

func (n *node) Size() int64 {
	if n.data == nil {
		return 0
	}
	return n.data.size
}

// ReadAt reads the requested bytes, and for a compressed file the units around them.
func (n *node) ReadAt(p []byte, off int64) (int, error) {
	if n.data == nil {
		return 0, errors.New("no regular file")
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

// List returns the names of a folder in the order Windows shows them, maxNames at most.
// Short names that go with a long one are left out.
func (n *node) List() ([]tree.Entry, error) {
	n.v.reads = 0
	t, entries, err := n.v.openIndex(n.r)
	if err != nil {
		return nil, err
	}
	return t.list(nil, entries, 0)
}

// Find looks a name up in a folder, short ones too, and without regard to case. Where
// names differ in nothing else it returns the first.
func (n *node) Find(name string) (tree.Node, error) {
	n.v.reads = 0
	t, entries, err := n.v.openIndex(n.r)
	if err != nil {
		return nil, err
	}
	ref, err := t.find(entries, utf16.Encode([]rune(name)))
	if err != nil {
		return nil, err
	}
	r, err := n.v.record(int64(ref & refNumber))
	if err == nil && r.sequence != uint16(ref>>48) {
		err = fmt.Errorf("%w: %s is another file by now", errCorrupt, name)
	}
	if err != nil {
		return nil, err
	}
	return n.v.node(r)
}

func (n *node) Target() (string, error) { return "", errors.New("links are not followed") }
