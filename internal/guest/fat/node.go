package fat

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/decamp/decamp/internal/guest/tree"
)

const (
	maxFolder  = 2 << 20 // bytes of a folder; the format's own bound
	maxRun     = 1 << 20 // bytes of one read
	attrVolume = 0x08
	attrFolder = 0x10
)

// A node is a file or folder, as a tree's node.
type node struct {
	fs     *FS
	folder bool
	first  int64 // cluster
	size   int64 // bytes; unknown for a folder

	chained  bool // clusters is complete
	clusters []int64
}

func (n *node) Kind() tree.Kind {
	if n.folder {
		return tree.Folder
	}
	return tree.File
}

func (n *node) Size() int64 { return n.size }

func (n *node) Target() (string, error) { return "", errors.New("no symbolic link") }

// chain returns the clusters of a file, up to a number of bytes.
func (n *node) chain(size int64) ([]int64, error) {
	if n.chained {
		return n.clusters, nil
	}
	var all []int64
	for c := n.first; c != 0 && int64(len(all))*n.fs.cluster < size; {
		if len(all) == maxClusters {
			return nil, fmt.Errorf("a file of more than %d clusters", maxClusters)
		}
		if len(all)%16 == 0 {
			if err := n.fs.r.Budget().Step(1); err != nil {
				return nil, err
			}
		}
		next, err := n.fs.next(c)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
		c = next
	}
	n.clusters, n.chained = all, true
	return all, nil
}

// ReadAt reads clusters that lie side by side at once.
func (n *node) ReadAt(p []byte, off int64) (int, error) {
	if n.folder {
		return 0, errors.New("no regular file")
	}
	return n.readAt(p, off, n.size)
}

func (n *node) readAt(p []byte, off, size int64) (int, error) {
	clusters, err := n.chain(size)
	if err != nil {
		return 0, err
	}
	return tree.ReadRuns(p, off, size, func(p []byte, off int64) (int, error) {
		return n.readRun(clusters, p[:min(len(p), maxRun)], off)
	})
}

// readRun fills the start of p, as far as its clusters follow one another.
func (n *node) readRun(clusters []int64, p []byte, off int64) (int, error) {
	if err := n.fs.r.Budget().Step(1); err != nil {
		return 0, err
	}
	size := n.fs.cluster
	i, skip := off/size, off%size
	if i >= int64(len(clusters)) {
		return 0, fmt.Errorf("the chain of clusters ends at byte %d: %w", int64(len(clusters))*size, io.ErrUnexpectedEOF)
	}
	length := size - skip
	for j := i + 1; length < int64(len(p)) && j < int64(len(clusters)) && clusters[j] == clusters[j-1]+1; j++ {
		length += size
	}
	return n.fs.r.ReadAt(p[:min(length, int64(len(p)))], n.fs.data+(clusters[i]-2)*size+skip)
}

// content returns a folder's bytes. The root of FAT12 and FAT16 is in a separate area.
func (n *node) content() ([]byte, error) {
	if n.first == rootFAT {
		if n.fs.bits == 32 {
			return nil, errors.New("a folder without a cluster")
		}
		p := make([]byte, n.fs.root.size)
		_, err := n.fs.r.ReadAt(p, n.fs.root.off)
		return p, err
	}
	clusters, err := n.chain(maxFolder)
	if err != nil {
		return nil, err
	}
	size := int64(len(clusters)) * n.fs.cluster
	p := make([]byte, size)
	_, err = n.readAt(p, 0, size)
	return p, err
}

// List returns the names in a folder.
func (n *node) List() ([]tree.Entry, error) {
	var all []tree.Entry
	err := n.each(func(e entry) bool {
		kind := tree.File
		if e.attr&attrFolder != 0 {
			kind = tree.Folder
		}
		all = append(all, tree.Entry{Name: e.name, Kind: kind})
		return true
	})
	return all, err
}

// Find looks a name up, whatever its case.
func (n *node) Find(name string) (tree.Node, error) {
	var found *node
	err := n.each(func(e entry) bool {
		if strings.EqualFold(e.name, name) {
			found = &node{fs: n.fs, folder: e.attr&attrFolder != 0, first: e.first, size: e.size}
		}
		return found == nil
	})
	switch {
	case err != nil:
		return nil, err
	case found == nil:
		return nil, fs.ErrNotExist
	case found.folder:
		found.size = 0
	}
	return found, nil
}

// each gives a folder's entries to yield until it returns false.
func (n *node) each(yield func(entry) bool) error {
	if !n.folder {
		return errors.New("no folder")
	}
	p, err := n.content()
	if err != nil {
		return err
	}
	if err := n.fs.r.Budget().Step(int64(len(p)) / 32); err != nil { // its lines
		return err
	}
	entries(p, yield)
	return nil
}
