package treetest

import (
	"bytes"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/guest/tree"
)

// Memory returns a tree of files in memory. Keys are paths; missing folders are created. A content that
// starts with "-> " is a symbolic link.
func Memory(files map[string]string) *tree.Tree {
	root := &memoryNode{kind: tree.Folder}
	for path, content := range files {
		root.addFile(strings.Split(strings.Trim(path, "/"), "/"), content)
	}
	return tree.New(root)
}

// A memoryNode is a node of a Memory tree. It implements tree.Node.
type memoryNode struct {
	name    string        // name in its folder; empty for the root
	kind    tree.Kind     // File, Folder or Link
	content string        // content of a file or target of a link
	nodes   []*memoryNode // entries of a folder
}

// addFile adds a file or link below h and creates missing folders.
func (h *memoryNode) addFile(path []string, content string) {
	i := slices.IndexFunc(h.nodes, func(n *memoryNode) bool { return n.name == path[0] })
	if i < 0 {
		i = len(h.nodes)
		h.nodes = append(h.nodes, &memoryNode{name: path[0], kind: tree.Folder})
	}
	if len(path) > 1 {
		h.nodes[i].addFile(path[1:], content)
		return
	}
	h.nodes[i].kind, h.nodes[i].content = tree.File, content
	if target, ok := strings.CutPrefix(content, "-> "); ok {
		h.nodes[i].kind, h.nodes[i].content = tree.Link, target
	}
}

// Kind implements tree.Node.
func (h *memoryNode) Kind() tree.Kind { return h.kind }

// Size implements tree.Node.
func (h *memoryNode) Size() int64 { return int64(len(h.content)) }

// ReadAt implements io.ReaderAt.
func (h *memoryNode) ReadAt(p []byte, off int64) (int, error) {
	return bytes.NewReader([]byte(h.content)).ReadAt(p, off)
}

// Target implements tree.Node.
func (h *memoryNode) Target() (string, error) { return h.content, nil }

// List implements tree.Node; the order is that of insertion.
func (h *memoryNode) List() ([]tree.Entry, error) {
	if h.kind != tree.Folder {
		return nil, errors.New("not a folder")
	}
	var entries []tree.Entry
	for _, n := range h.nodes {
		entries = append(entries, tree.Entry{Name: n.name, Kind: n.kind})
	}
	return entries, nil
}

// Find implements tree.Node; names are compared with case.
func (h *memoryNode) Find(name string) (tree.Node, error) {
	for _, n := range h.nodes {
		if n.name == name {
			return n, nil
		}
	}
	return nil, fs.ErrNotExist
}
