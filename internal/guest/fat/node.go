package fat

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/decamp/decamp/internal/guest/budget"
	"github.com/decamp/decamp/internal/guest/tree"
)

const (
	maxFolder  = 2 << 20 // bytes of a folder, the limit of the format
	maxRun     = 1 << 20 // bytes of one read
	attrVolume = 0x08    // volume label
	attrFolder = 0x10    // folder
)

// A node is a file or folder. It implements tree.Node.
type node struct {
	fs     *FS   // file system of the file
	folder bool  // the node is a folder
	first  int64 // first cluster; 0 for an empty file or the root of FAT12 and FAT16
	size   int64 // bytes of a file; 0 for a folder, whose size is not stored

	chained  bool    // clusters is complete
	clusters []int64 // clusters in order, cached by clusterChain
}

// Kind implements tree.Node; FAT has no links.
func (n *node) Kind() tree.Kind {
	if n.folder {
		return tree.Folder
	}
	return tree.File
}

// Size implements tree.Node.
func (n *node) Size() int64 { return n.size }

// Target always fails.
func (n *node) Target() (string, error) { return "", errors.New("not a symbolic link") }

// clusterChain returns the clusters of the first size bytes and caches them. It fails if there are
// more than maxClusters, so that a loop ends. Their memory is charged until the examination ends.
func (n *node) clusterChain(size int64) ([]int64, error) {
	if n.chained {
		return n.clusters, nil
	}
	// The chain is followed twice, so that its memory is charged and allocated once.
	count := 0
	err := n.eachCluster(size, func(int64) { count++ })
	if err != nil {
		return nil, err
	}
	budget.ReleaseSlice(n.fs.r.Budget(), n.clusters) // of a folder that has grown
	n.clusters = nil
	all, err := budget.Grow(n.fs.r.Budget(), n.clusters, count)
	if err != nil {
		return nil, err
	}
	if err := n.eachCluster(size, func(c int64) { all = append(all, c) }); err != nil {
		return nil, err
	}
	n.clusters, n.chained = all, true
	return all, nil
}

// eachCluster calls visit for each cluster of the first size bytes, in order. It fails after maxClusters
// of them.
func (n *node) eachCluster(size int64, visit func(c int64)) error {
	count := int64(0)
	for c := n.first; c != 0 && count*n.fs.clusterSize < size; count++ {
		if count == maxClusters {
			return fmt.Errorf("a file of more than %d clusters", maxClusters)
		}
		if count%16 == 0 {
			if err := n.fs.r.Budget().Step(1); err != nil {
				return err
			}
		}
		next, err := n.fs.nextCluster(c)
		if err != nil {
			return err
		}
		visit(c)
		c = next
	}
	return nil
}

// ReadAt implements io.ReaderAt. It reads contiguous clusters with one read.
func (n *node) ReadAt(p []byte, off int64) (int, error) {
	if n.folder {
		return 0, errors.New("not a regular file")
	}
	return n.readAt(p, off, n.size)
}

// readAt reads from a file or folder of size bytes.
func (n *node) readAt(p []byte, off, size int64) (int, error) {
	clusters, err := n.clusterChain(size)
	if err != nil {
		return 0, err
	}
	return tree.ReadRuns(p, off, size, func(p []byte, off int64) (int, error) {
		return n.readRun(clusters, p[:min(len(p), maxRun)], off)
	})
}

// readRun fills the beginning of p from byte off, up to the end of contiguous clusters. It returns the
// bytes read.
func (n *node) readRun(clusters []int64, p []byte, off int64) (int, error) {
	if err := n.fs.r.Budget().Step(1); err != nil {
		return 0, err
	}
	size := n.fs.clusterSize
	i, skip := off/size, off%size
	if i >= int64(len(clusters)) {
		return 0, fmt.Errorf("the chain of clusters ends at byte %d: %w", int64(len(clusters))*size, io.ErrUnexpectedEOF)
	}
	length := size - skip
	for j := i + 1; length < int64(len(p)) && j < int64(len(clusters)) && clusters[j] == clusters[j-1]+1; j++ {
		length += size
	}
	return n.fs.r.ReadAt(p[:min(length, int64(len(p)))], n.fs.dataOff+(clusters[i]-2)*size+skip)
}

// readFolder returns the bytes of a folder. The root of FAT12 and FAT16 is in a separate area.
func (n *node) readFolder() ([]byte, error) {
	if n.first == rootFAT {
		// In a FAT32 cluster 0 means that the entry is damaged.
		if n.fs.bits == 32 {
			return nil, errors.New("a folder without a cluster")
		}
		p := make([]byte, n.fs.root.size)
		_, err := n.fs.r.ReadAt(p, n.fs.root.off)
		return p, err
	}
	clusters, err := n.clusterChain(maxFolder)
	if err != nil {
		return nil, err
	}
	size := int64(len(clusters)) * n.fs.clusterSize
	p := make([]byte, size)
	_, err = n.readAt(p, 0, size)
	return p, err
}

// List implements tree.Node.
func (n *node) List() ([]tree.Entry, error) {
	all := tree.NewListing(n.fs.r.Budget())
	defer all.Close()
	var spent error
	err := n.eachChild(func(e dirEntry) bool {
		kind := tree.File
		if e.attr&attrFolder != 0 {
			kind = tree.Folder
		}
		spent = all.Add(tree.Entry{Name: e.name, Kind: kind})
		return spent == nil
	})
	if err = cmp.Or(err, spent); err != nil {
		return nil, err
	}
	return all.Close(), nil
}

// Find implements tree.Node. Names are compared without regard to case.
func (n *node) Find(name string) (tree.Node, error) {
	var found *node
	err := n.eachChild(func(e dirEntry) bool {
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

// eachChild calls yield for each entry of a folder until yield returns false.
func (n *node) eachChild(yield func(dirEntry) bool) error {
	if !n.folder {
		return errors.New("not a folder")
	}
	p, err := n.readFolder()
	if err != nil {
		return err
	}
	if err := n.fs.r.Budget().Step(int64(len(p)) / 32); err != nil { // one step for each entry
		return err
	}
	eachEntry(p, yield)
	return nil
}
