package treetest

import (
	"bytes"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/guest/tree"
)

// Memory returns a tree of files that are in memory. Keys are paths, and a
// content that starts with "-> " is a link to the rest of it.
func Memory(files map[string]string) *tree.Tree {
	root := &held{kind: tree.Folder}
	for path, content := range files {
		root.put(strings.Split(strings.Trim(path, "/"), "/"), content)
	}
	return tree.New(root)
}

// held is a node of a Memory.
type held struct {
	name    string
	kind    tree.Kind
	content string
	nodes   []*held
}

func (h *held) put(path []string, content string) {
	i := slices.IndexFunc(h.nodes, func(n *held) bool { return n.name == path[0] })
	if i < 0 {
		i = len(h.nodes)
		h.nodes = append(h.nodes, &held{name: path[0], kind: tree.Folder})
	}
	if len(path) > 1 {
		h.nodes[i].put(path[1:], content)
		return
	}
	h.nodes[i].kind, h.nodes[i].content = tree.File, content
	if target, ok := strings.CutPrefix(content, "-> "); ok {
		h.nodes[i].kind, h.nodes[i].content = tree.Link, target
	}
}

func (h *held) Kind() tree.Kind { return h.kind }
func (h *held) Size() int64     { return int64(len(h.content)) }

func (h *held) ReadAt(p []byte, off int64) (int, error) {
	return bytes.NewReader([]byte(h.content)).ReadAt(p, off)
}

func (h *held) Target() (string, error) { return h.content, nil }

func (h *held) List() ([]tree.Entry, error) {
	if h.kind != tree.Folder {
		return nil, errors.New("no folder")
	}
	var entries []tree.Entry
	for _, n := range h.nodes {
		entries = append(entries, tree.Entry{Name: n.name, Kind: n.kind})
	}
	return entries, nil
}

func (h *held) Find(name string) (tree.Node, error) {
	for _, n := range h.nodes {
		if n.name == name {
			return n, nil
		}
	}
	return nil, fs.ErrNotExist
}
