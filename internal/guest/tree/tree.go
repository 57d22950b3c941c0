// Package tree contains the common parts of the read-only file systems in untrusted images.
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

// A Kind is the type of a file.
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

// An Entry is one name of a folder.
type Entry struct {
	Name string // name without its path
	Kind Kind   // kind; Other if the folder does not store it
}

// A Node is a file, a folder or a link of a file system. Methods that do not apply to its Kind return
// an error.
type Node interface {
	Kind() Kind // Kind returns the type of the file.

	// Size returns the bytes of a file.
	Size() int64

	// ReadAt reads a file as io.ReaderAt does; holes are zeros.
	io.ReaderAt

	// List returns the names of a folder in its own order, without "." and "..".
	List() ([]Entry, error)

	// Find returns the entry of a folder with the name. The error is fs.ErrNotExist if it does not exist.
	Find(name string) (Node, error)

	// Target returns the target of a symbolic link.
	Target() (string, error)
}

// FS is a read-only file system. Paths are separated by slashes and start at the root, with or
// without a slash. Links are followed, including the last one. Errors contain the path; the error
// is fs.ErrNotExist if it does not exist.
type FS interface {
	// Open returns the node at path.
	Open(path string) (Node, error)

	// ReadFile returns the content of the regular file at path. It fails if the file exceeds limit bytes.
	ReadFile(path string, limit int64) ([]byte, error)

	// ReadDir returns the names in the folder at path.
	ReadDir(path string) ([]Entry, error)
}

// Usage is the size and the free space of a file system.
type Usage struct {
	Size int64 `json:"size"` // bytes of the file system
	Free int64 `json:"free"` // free bytes; negative if unknown
}

// A Tree is an FS that consists of Nodes and of further trees mounted in it.
type Tree struct {
	root   Node            // root folder
	mounts map[string]Node // mounted trees by path, without the leading slash
}

// New returns the tree below root.
func New(root Node) *Tree { return &Tree{root: root} }

// Mount mounts a tree with the root at path, which need not exist. A link to the path leads to the
// mounted tree, too.
func (t *Tree) Mount(path string, root Node) {
	if t.mounts == nil {
		t.mounts = map[string]Node{}
	}
	t.mounts[strings.Trim(path, "/")] = root
}

// Root returns the root of the tree.
func (t *Tree) Root() Node { return t.root }

// A location is a node with the path to it, after resolution of links.
type location struct {
	node Node   // file at the path
	path string // path from the root, without links and without a leading slash
}

// Open returns the node at path.
func (t *Tree) Open(path string) (Node, error) {
	p, err := t.resolvePath(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p.node, nil
}

// resolvePath resolves path from the root. It fails after maxLinks links.
func (t *Tree) resolvePath(path string) (location, error) {
	trail := []location{{node: t.root}} // folders from the root to the current one, for ".."
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
		next, err := t.enterName(trail[len(trail)-1], name)
		if err != nil {
			return location{}, err
		}
		if next.node.Kind() != Link {
			trail = append(trail, next)
			continue
		}
		target, err := next.node.Target()
		if err != nil {
			return location{}, err
		}
		if links++; links > maxLinks || len(target)+len(path) > maxPath {
			return location{}, fmt.Errorf("more than %d symbolic links, or a path too long", maxLinks)
		}
		if strings.HasPrefix(target, "/") {
			trail = trail[:1]
		}
		path = target + "/" + path
	}
	return trail[len(trail)-1], nil
}

// enterName returns the location of a name in a folder. A mount takes precedence over the folder's
// entry.
func (t *Tree) enterName(from location, name string) (location, error) {
	at := strings.TrimPrefix(from.path+"/"+name, "/")
	if root := t.mounts[at]; root != nil {
		return location{root, at}, nil
	}
	if from.node.Kind() != Folder {
		return location{}, fs.ErrNotExist
	}
	node, err := from.node.Find(name)
	return location{node, at}, err
}

// ReadFile returns the content of the regular file at path. It fails if the file exceeds limit bytes.
func (t *Tree) ReadFile(path string, limit int64) ([]byte, error) {
	node, err := t.Open(path)
	if err != nil {
		return nil, err
	}
	data, err := readContent(node, limit)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return data, nil
}

// ReadRuns implements ReadAt for a file of size bytes that consists of contiguous runs. It calls
// read with the remaining part of p, which is not empty; read fills its beginning and returns the
// number of bytes. ReadRuns returns io.EOF if p exceeds the file.
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

// readContent returns the content of a regular file of at most limit bytes.
func readContent(node Node, limit int64) ([]byte, error) {
	switch size := node.Size(); {
	case node.Kind() != File:
		return nil, errors.New("not a regular file")
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
		return nil, fmt.Errorf("%s: not a folder", path)
	}
	entries, err := node.List()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return entries, nil
}
