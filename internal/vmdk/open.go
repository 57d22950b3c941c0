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
	// maxDepth is the longest chain that is followed. ESXi makes 32 snapshots at most.
	maxDepth = 64

	// maxFiles is how many files a disk may consist of: 8 TiB of 2 GiB pieces.
	maxFiles = 4096
)

// Options determine how a disk is opened. Use the zero value unless Open's error names an option.
type Options struct {
	// IgnoreCID reads a delta even if its parent was written after the snapshot. The disk is then most
	// likely damaged; a warning reports that.
	IgnoreCID bool
}

// Open opens the disk that name describes, with all its parents. name is a descriptor,
// or a sparse file with one in it; or a delta or sparse file without any, which is read
// as far as it goes, with a warning.
func Open(ctx context.Context, files Files, name string, o Options) (*Disk, error) {
	d := &Disk{}
	op := &opener{Options: o, from: files, disk: d, byName: map[string]*file{}}
	if err := op.openChain(ctx, name); err != nil {
		return nil, errors.Join(fmt.Errorf("open disk %s: %w", name, err), d.Close())
	}
	d.readers.New = func() any { return &reader{disk: d, cursor: d.chain.newCursor()} }
	return d, nil
}

// opener opens the files of one disk.
type opener struct {
	Options
	from   Files
	disk   *Disk
	byName map[string]*file
}

// openChain opens the layers from the youngest down to the base.
func (o *opener) openChain(ctx context.Context, name string) error {
	seen := map[string]bool{}
	for child := ""; name != ""; {
		switch {
		case seen[name]:
			return corruptFile(name, "the chain of parents comes back to it").
				WithHint("the parent's file has the name of one of its children: put it into another folder, and name that too")
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

// openLayer opens one layer, which child names, and returns its parent's name.
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

// openFile opens a file that the file namer names, and returns the name under which it was found. A file in
// another folder of the datastore is also searched beside namer: there it is after both were copied to
// one folder.
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

// relativeTo returns name as seen from where namer is.
func relativeTo(namer, name string) string {
	if path.IsAbs(name) {
		return name
	}
	return path.Join(path.Dir(namer), name)
}

// addFile makes a file of the disk of src.
func (o *opener) addFile(name string, src disk.Source) (*file, error) {
	if len(o.disk.files) == maxFiles {
		return nil, errors.Join(unsupportedFile(name, "the disk has more than %d files", maxFiles), src.Close())
	}
	f := newFile(name, len(o.disk.files), src)
	o.disk.files = append(o.disk.files, f)
	o.byName[name] = f
	return f, nil
}

// openData opens a file that a descriptor names, or returns it if it is open.
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
