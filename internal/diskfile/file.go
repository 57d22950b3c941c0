package diskfile

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/rawfile"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/qcow2"
	"github.com/decamp/decamp/internal/vmdk"
)

// Options determine how a disk is opened.
type Options struct {
	Kind Kind // format that the user specified; empty to determine it by the content

	// RecordedRaw reports that decamp's records list the file as a raw image: its guest has written all
	// of its bytes, so a signature is meaningless.
	RecordedRaw bool

	// Folders are additional folders in which parents of a VMDK are searched that are named by a datastore
	// path.
	Folders []string

	// IgnoreCID reads a VMDK chain although a parent was written after the snapshot.
	IgnoreCID bool

	// Backing reads the backing files of a qcow2 image. Their names come from the image, which may be
	// untrusted.
	Backing bool
}

// A File is an open disk. It is a disk.Source.
type File struct {
	disk.Source
	Path    string        // absolute path without symbolic links
	Kind    Kind          // format of the topmost file
	vmdk    *vmdk.Disk    // the file as VMDK; nil for other formats
	qcow2   *qcow2.Source // the file as qcow2; nil for other formats
	files   *fileRecord   // names, sizes and times of all files, for Identity
	finding finding       // how Kind was determined
}

// Open opens the disk whose topmost file is at path.
func Open(ctx context.Context, path string, o Options) (*File, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, openFault(err)
	}
	if real, err = filepath.Abs(real); err != nil {
		return nil, err
	}
	if o.Kind != "" && o.Kind != VMDK && o.Kind != QCOW2 && o.Kind != Raw {
		return nil, fault.New(fault.Invalid, "no kind of disk is called %q", o.Kind).WithHint("use %s, %s or %s", VMDK, QCOW2, Raw)
	}
	f := &File{Path: real, files: &fileRecord{}}
	if f.finding, err = findKind(real, o); err != nil {
		return nil, err
	}
	f.Kind = f.finding.kind
	if err := f.openKind(ctx, o); err != nil {
		return nil, err
	}
	return f, nil
}

// openKind opens the disk as f.Kind.
func (f *File) openKind(ctx context.Context, o Options) (err error) {
	switch f.Kind {
	case VMDK:
		return f.openVMDK(ctx, o)
	case QCOW2:
		return f.openQCOW2(o)
	}
	return f.openRaw()
}

// openVMDK opens the disk as VMDK. If the file's name claims a raw image, it opens no other file.
func (f *File) openVMDK(ctx context.Context, o Options) (err error) {
	folder, name := filepath.Split(f.Path)
	f.files.from = vmdk.Folder(folder, o.Folders...)
	if f.finding.noOthers {
		f.files.from = singleFile{f.files.from, name}
	}
	if f.vmdk, err = vmdk.Open(ctx, f.files, name, vmdk.Options{IgnoreCID: o.IgnoreCID}); err != nil {
		return err
	}
	f.Source = f.vmdk
	return nil
}

// A singleFile opens one file of a folder. A guest can make its raw disk begin like a VMDK that names
// the disks of others.
type singleFile struct {
	vmdk.Files
	name string // the only file that may be opened
}

// Open implements vmdk.Files. Any other name is fault.Unsupported.
func (o singleFile) Open(ctx context.Context, name string) (disk.Source, error) {
	if name != o.name {
		return nil, fault.New(fault.Unsupported, "%s is not named like a VMDK, but names another file, %s", o.name, name).
			WithHint("if it is a VMDK that you trust: --from vmdk")
	}
	return o.Files.Open(ctx, name)
}

// openQCOW2 opens the disk as qcow2, with its backing files if Options.Backing is set.
func (f *File) openQCOW2(o Options) (err error) {
	var opts qcow2.SourceOptions
	if o.Backing {
		opts.Backing = qcow2.OpenFile
	}
	if f.qcow2, err = qcow2.OpenSource(f.Path, opts); err != nil {
		return err
	}
	f.Source = f.qcow2
	for _, l := range f.qcow2.Layers() {
		f.files.addFile(l.Path)
	}
	return nil
}

// openRaw opens the disk as raw bytes.
func (f *File) openRaw() error {
	src, err := rawfile.OpenSource(f.Path, rawfile.SourceOptions{})
	if err != nil {
		return err
	}
	f.Source = src
	f.files.addFile(f.Path)
	return nil
}

// Warnings returns what the user should know about the disk. Some damage is found only when it is read,
// so the list may grow.
func (f *File) Warnings() (all []string) {
	if f.finding.warning != "" {
		all = append(all, f.finding.warning)
	}
	switch f.Kind {
	case VMDK:
		all = append(all, f.vmdk.Warnings()...)
	case QCOW2:
		all = append(all, f.qcow2.Warnings()...)
	}
	return all
}

// Identity returns a text that changes with the name, size or time of any file of the disk.
func (f *File) Identity() string { return fmt.Sprintf("%s %s", f.Path, f.files.digest()) }
