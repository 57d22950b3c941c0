package vmdk

import (
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

const (
	// largest number of disks in a chain. ESXi creates at most 32 snapshots.
	maxDepth = 64

	// largest number of files of a disk: 8 TiB in pieces of 2 GiB
	maxFiles = 4096
)

// Options determine how a disk is opened. Use the zero value unless Open's error names an option.
type Options struct {
	// IgnoreCID reads a delta even if its parent was written after the snapshot. The disk is then most
	// likely damaged; a warning reports that.
	IgnoreCID bool
}

// Open opens the disk name with all its parents. name is a descriptor, or a sparse file with an
// embedded descriptor. A delta or sparse file without a descriptor is read without its parent, with a
// warning.
func Open(ctx context.Context, files Files, name string, o Options) (*Disk, error) {
	d := &Disk{}
	op := &opener{Options: o, from: files, disk: d, byName: map[string]*file{}}
	if err := op.openChain(ctx, name); err != nil {
		return nil, errors.Join(fmt.Errorf("open disk %s: %w", name, err), d.Close())
	}
	d.readers.New = func() any { return &reader{disk: d, cursor: d.chain.newCursor()} }
	return d, nil
}

// An opener opens the files of one disk. Open uses it for a single call.
type opener struct {
	Options
	from   Files            // source of the files
	disk   *Disk            // disk with the files and layers that are open so far
	byName map[string]*file // open files by their path in Files
}

// openChain opens the disk name and all its parents. A loop is fault.Corrupt.
func (o *opener) openChain(ctx context.Context, name string) error {
	seen := map[string]bool{}
	for child := ""; name != ""; {
		switch {
		case seen[name]:
			return corruptFile(name, "the chain of parents comes back to it").
				WithHint("the parent's file has the name of one of its children: move it to another folder, and add that folder to the command")
		case len(seen) == maxDepth:
			return unsupportedFile(name, "the chain of parents is longer than %d", maxDepth)
		}
		seen[name] = true
		parent, err := o.openLayer(ctx, name, child)
		if err != nil {
			return err
		}
		child, name = o.disk.layers[len(o.disk.layers)-1].Name, parent
	}
	return nil
}

// openLayer opens one layer and returns the name of its parent, "" for a base. child is the layer above
// it, or "".
func (o *opener) openLayer(ctx context.Context, name, child string) (parent string, err error) {
	src, name, err := o.openFile(ctx, name, child)
	if err != nil {
		return "", err
	}
	kind, head, err := identifyFile(ctx, name, src)
	if err != nil {
		return "", errors.Join(err, src.Close())
	}
	if kind == "" {
		text, err := readText(ctx, name, src)
		if err = errors.Join(err, src.Close()); err != nil {
			return "", err
		}
		return o.openDescribed(ctx, name, text, nil)
	}
	f, err := o.addFile(name, src)
	if err != nil {
		return "", err
	}
	if kind == FormatSparse {
		text, err := embeddedText(ctx, f, head)
		if err != nil {
			return "", err
		}
		if text != nil {
			return o.openDescribed(ctx, name, text, f)
		}
	}
	return "", o.openBare(ctx, f, kind)
}

// openFile opens the file name and returns the path at which it was found. namer is the descriptor that
// names the file. If a file of a datastore is missing, openFile also tries the folder of namer: both
// may have been copied there.
func (o *opener) openFile(ctx context.Context, name, namer string) (disk.Source, string, error) {
	src, err := o.from.Open(ctx, name)
	if fault.Is(err, fault.NotFound) && path.IsAbs(name) {
		if near := relativeTo(namer, path.Base(name)); near != namer {
			if src, err := o.from.Open(ctx, near); err == nil {
				return src, near, nil
			}
		}
	}
	if err != nil {
		return nil, "", fmt.Errorf("open %s: %w", name, err)
	}
	return src, name, nil
}

// relativeTo returns the path of name, which the descriptor namer contains. An absolute name is
// returned unchanged.
func relativeTo(namer, name string) string {
	if path.IsAbs(name) {
		return name
	}
	return path.Join(path.Dir(namer), name)
}

// addFile adds src to the files of the disk, which owns it from then on. With too many files it closes
// src and fails.
func (o *opener) addFile(name string, src disk.Source) (*file, error) {
	if len(o.disk.files) == maxFiles {
		return nil, errors.Join(unsupportedFile(name, "the disk has more than %d files", maxFiles), src.Close())
	}
	f := newFile(name, len(o.disk.files), src)
	o.disk.files = append(o.disk.files, f)
	o.byName[name] = f
	return f, nil
}

// openData returns the file name of a descriptor. It opens the file unless it is open already.
func (o *opener) openData(ctx context.Context, name, descriptor string) (*file, error) {
	name = relativeTo(descriptor, name)
	if f := o.byName[name]; f != nil {
		return f, nil
	}
	src, name, err := o.openFile(ctx, name, descriptor)
	if err != nil {
		return nil, err
	}
	return o.addFile(name, src)
}
