package qcow2

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/rawfile"
	"github.com/decamp/decamp/internal/fault"
)

// maxChain is how many files a disk may consist of; libvirt allows as many.
const maxChain = 200

// Opener opens a backing file as raw bytes. The path is that of the image's header, relative to the
// folder of the image unless it is absolute. An opener decides which files may be read.
type Opener func(path string, o rawfile.SourceOptions) (disk.Source, error)

// OpenFile is the Opener that allows every file and block device of this machine.
func OpenFile(path string, o rawfile.SourceOptions) (disk.Source, error) {
	src, err := rawfile.OpenSource(path, o)
	if err != nil {
		return nil, err
	}
	return src, nil
}

// A chain has the files of a disk while they are opened, the topmost first.
type chain struct {
	SourceOptions
	images []*Source // qcow2 images, the topmost first
	layers []Layer   // descriptions of all files, qcow2 and raw
	paths  []string  // paths of layers, cleaned
	shared *shared   // memory that the images share
}

// openChain opens the image in file and all its backing files. It owns file from then on, and closes it
// if it fails.
func openChain(file disk.Source, path string, o SourceOptions) (*Source, error) {
	c := &chain{SourceOptions: o, shared: newShared()}
	top, err := c.openImage(file, path)
	if err != nil {
		return nil, err
	}
	for _, s := range c.images {
		s.mapping.shrinkCache(len(c.images))
	}
	top.layers = c.layers
	return top, nil
}

// openImage opens the qcow2 image in file and its backing files. It owns file from then on.
func (c *chain) openImage(file disk.Source, path string) (*Source, error) {
	s, err := newSource(file, filePath(path), c.shared)
	if err == nil {
		c.addLayer(s.describeLayer(), file)
		c.images = append(c.images, s)
		err = c.openBacking(s)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open qcow2 image %s: %w", path, err), file.Close())
	}
	return s, nil
}

// addLayer adds the description of an open file.
func (c *chain) addLayer(l Layer, file disk.Source) {
	l.file = file
	c.layers = append(c.layers, l)
	c.paths = append(c.paths, filepath.Clean(l.Path))
}

// openBacking opens the backing file of s, if it has one, and all files below.
func (c *chain) openBacking(s *Source) error {
	if !s.hasBacking() {
		return nil
	}
	ref, err := s.readBackingRef()
	if err != nil {
		return err
	}
	path, err := c.backingPath(s.path, ref)
	if err != nil {
		return err
	}
	file, err := c.Backing(path, rawfile.SourceOptions{Direct: c.Direct})
	if err != nil {
		return fault.New(fault.KindOf(err), "open its backing file: %w", err).
			WithHint("make %s readable, or name the right one: qemu-img rebase -u -b RIGHT -F FORMAT %s", filePath(path).shellQuoted(), s.path.shellQuoted())
	}
	if ref.format == "raw" {
		c.addLayer(Layer{Path: path, Format: "raw", Size: file.Size()}, file)
		s.backing = file
		return nil
	}
	below, err := c.openImage(file, path)
	if err != nil {
		return err
	}
	s.backing = below
	return nil
}

// readBackingRef reads the reference to the backing file from the first cluster.
func (s *Source) readBackingRef() (backingRef, error) {
	first := make([]byte, min(s.clusterBytes(), s.file.Size()))
	if err := s.file.ReadAt(context.Background(), first, 0); err != nil {
		return backingRef{}, err
	}
	return s.parseBacking(s.path, first)
}

// backingPath returns the path of the backing file. It fails if there is no Opener, if the reference is
// no path or has no known format, or if the chain would become a loop or too long.
func (c *chain) backingPath(image filePath, ref backingRef) (string, error) {
	if c.Backing == nil {
		return "", image.unsupported("it has a backing file, %q", ref.name)
	}
	if filePath(ref.name).isAddress() {
		return "", image.unsupported("its backing file, %q, is not a path", ref.name)
	}
	path := ref.name
	if !filepath.IsAbs(path) { // not filepath.Join, to which a/link/.. is a
		path = string(image[:strings.LastIndexByte(string(image), '/')+1]) + path
	}
	switch {
	case ref.format == "":
		// Detecting the format by the content would be unsafe: the guest writes the bytes
		// of a raw file, and could name any file as the next backing file.
		return "", fault.New(fault.Unsupported, "it does not contain the format of its backing file, %s", path).
			WithHint("set it to raw or qcow2: qemu-img rebase -u -b %s -F FORMAT %s", filePath(ref.name).shellQuoted(), image.shellQuoted())
	case ref.format != "raw" && ref.format != "qcow2":
		return "", image.unsupported("its backing file, %s, has the format %q", path, ref.format)
	case len(c.layers) >= maxChain || slices.Contains(c.paths, filepath.Clean(path)):
		return "", fault.New(fault.Corrupt, "its backing file, %s, makes the chain a loop, or longer than %d files", path, maxChain).
			WithHint("see which file names which: qemu-img info %s; then name the right one: qemu-img rebase -u -b RIGHT -F FORMAT %s",
				image.shellQuoted(), image.shellQuoted())
	}
	return path, nil
}
