// Package tree has the common parts of the read-only file systems in untrusted images.
//
// A file system provides Nodes; this package resolves paths, symbolic links and mounts. Links stay
// within the tree: its root is the root of all paths, and ".." of the root is the root. A Node must be
// bounded: each call reads and allocates no more than its comment states, for any bytes on the disk.
package tree

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
)

const (
	maxLinks = 40   // symbolic links on one path, as in Linux
	maxPath  = 4096 // bytes of a path with its links resolved
)

// A Kind is what a name stands for.
type Kind uint8

const (
	Other  Kind = iota // a device, a socket, a pipe
	File               // a regular file
	Folder             // a directory
	Link               // a symbolic link
)

// KindOf returns the kind for the mode of a Unix inode.
func KindOf(mode uint32) Kind {
	switch mode & 0o170000 {
	case 0o100000:
		return File
	case 0o040000:
		return Folder
	case 0o120000:
		return Link
	}
	return Other
}

// An Entry is one name of a folder. Kind may be Other where the folder does not say.
type Entry struct {
	Name string
	Kind Kind
}

// A Node is a file, a folder or a link of a file system. Methods that do not suit its
// Kind return an error.
type Node interface {
	Kind() Kind

	// Size returns the bytes of a file.
	Size() int64

	// ReadAt reads a file as io.ReaderAt does; holes are zeros.
	io.ReaderAt

	// List returns the names of a folder in its own order, without "." and "..".
	List() ([]Entry, error)

	// Find looks a name up in a folder. The error is fs.ErrNotExist if it does not exist.
	Find(name string) (Node, error)

	// Target returns where a link points to.
	Target() (string, error)
}

// FS is a file system that is only read. Paths are slash-separated and start at the root,
// with or without a slash. Errors name the path; one that is not there is
// fs.ErrNotExist. Links are followed, the last one too.
type FS interface {
	// Open returns the node at path.
	Open(path string) (Node, error)

	// ReadFile returns the regular file at path, which may have limit bytes at most.
	ReadFile(path string, limit int64) ([]byte, error)

	// ReadDir returns the names in the folder at path.
	ReadDir(path string) ([]Entry, error)
}

// Usage is how full a file system is, in bytes.
type Usage struct {
	Size int64 `json:"size"`
	Free int64 `json:"free"`
}

// A Tree is an FS made of Nodes, and of further trees mounted in it.
type Tree struct {
	root   Node
	mounts map[string]Node // mounted trees by path, without the leading slash
}

// New returns the tree below root.
func New(root Node) *Tree { return &Tree{root: root} }

// Mount puts root at path, which need not be there. Mounts are seen by their own path
// only: a link that leads there finds them, too.
func (t *Tree) Mount(path string, root Node) {
	if t.mounts == nil {
		t.mounts = map[string]Node{}
	}
	t.mounts[strings.Trim(path, "/")] = root
}

// Root returns the node everything starts at.
func (t *Tree) Root() Node { return t.root }

// A place is a node and the path it was reached by, links resolved.
type place struct {
	node Node
	path string
}

// Open returns the node at path.
func (t *Tree) Open(path string) (Node, error) {
	p, err := t.walk(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p.node, nil
}

// walk resolves path from the root.
func (t *Tree) walk(path string) (place, error) {
	trail := []place{{node: t.root}} // the folders walked through, for ".."
	links := 0
	for path != "" {
		var name string
		name, path, _ = strings.Cut(path, "/")
		switch name {
		case "", ".":
			continue
		case "..":
			trail = trail[:max(1, len(trail)-1)]
			continue
		}
		next, err := t.step(trail[len(trail)-1], name)
		if err != nil {
			return place{}, err
		}
		if next.node.Kind() != Link {
			trail = append(trail, next)
			continue
		}
		target, err := next.node.Target()
		if err != nil {
			return place{}, err
		}
		if links++; links > maxLinks || len(target)+len(path) > maxPath {
			return place{}, fmt.Errorf("more than %d symbolic links, or a path too long", maxLinks)
		}
		if strings.HasPrefix(target, "/") {
			trail = trail[:1]
		}
		path = target + "/" + path
	}
	return trail[len(trail)-1], nil
}

// step goes from a folder to one of its names.
func (t *Tree) step(from place, name string) (place, error) {
	at := strings.TrimPrefix(from.path+"/"+name, "/")
	if root := t.mounts[at]; root != nil {
		return place{root, at}, nil
	}
	if from.node.Kind() != Folder {
		return place{}, fs.ErrNotExist
	}
	node, err := from.node.Find(name)
	return place{node, at}, err
}

// ReadFile returns the regular file at path, which may have limit bytes at most.
func (t *Tree) ReadFile(path string, limit int64) ([]byte, error) {
	node, err := t.Open(path)
	if err != nil {
		return nil, err
	}
	data, err := content(node, limit)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return data, nil
}

// ReadRuns fills p from byte off of a file of size bytes. The function read fills the start of the part that it
// gets, which is not empty, and returns how many bytes it filled.
func ReadRuns(p []byte, off, size int64, read func(p []byte, off int64) (int, error)) (int, error) {
	done := 0
	for done < len(p) && off < size {
		got, err := read(p[done:done+int(min(int64(len(p)-done), size-off))], off)
		done, off = done+got, off+int64(got)
		if err != nil {
			return done, err
		}
	}
	if done < len(p) {
		return done, io.EOF
	}
	return done, nil
}

func content(node Node, limit int64) ([]byte, error) {
	switch size := node.Size(); {
	case node.Kind() != File:
		return nil, errors.New("no regular file")
	case size < 0 || size > limit:
		return nil, fmt.Errorf("a file of %d bytes, %d are read at most", size, limit)
	}
	data := make([]byte, node.Size())
	n, err := node.ReadAt(data, 0)
	if n < len(data) {
		return nil, fmt.Errorf("at byte %d of %d: %w", n, len(data), err)
	}
	return data, nil
}

// ReadDir returns the names in the folder at path.
func (t *Tree) ReadDir(path string) ([]Entry, error) {
	node, err := t.Open(path)
	if err != nil {
		return nil, err
	}
	if node.Kind() != Folder {
		return nil, fmt.Errorf("%s: no folder", path)
	}
	entries, err := node.List()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return entries, nil
}
