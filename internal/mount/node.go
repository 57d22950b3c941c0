package mount

import (
	"context"
	"maps"
	"path"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/readahead"
)

const (
	folderMode = 0o555 // permissions of folders
	fileMode   = 0o444 // permissions of files
)

// A rootNode is the root of the mount: a folder for each datacenter.
type rootNode struct {
	fs.Inode
	m *Mount // mount of the node
}

// A datacenterNode is a datacenter: a folder for each datastore.
type datacenterNode struct {
	fs.Inode
	m    *Mount // mount of the node
	name string // name of the folder
}

// A folderNode is a folder of a datastore, or its root.
type folderNode struct {
	fs.Inode
	m          *Mount         // mount of the node
	datacenter string         // inventory path of the datacenter
	at         inventory.Path // path on the datastore; File is "" for the root
}

// A fileNode is a file of a datastore.
type fileNode struct {
	fs.Inode
	m          *Mount         // mount of the node
	datacenter string         // inventory path of the datacenter
	at         inventory.Path // path on the datastore

	mu    sync.Mutex  // guards the fields below, and handles of the opens
	size  int64       // last known size in bytes
	seen  time.Time   // time when the host reported size
	opens []*openFile // open files; sizes differ if the file changed at the host
}

var (
	_ fs.NodeLookuper  = (*rootNode)(nil)
	_ fs.NodeReaddirer = (*rootNode)(nil)
	_ fs.NodeGetattrer = (*rootNode)(nil)
	_ fs.NodeLookuper  = (*datacenterNode)(nil)
	_ fs.NodeReaddirer = (*datacenterNode)(nil)
	_ fs.NodeGetattrer = (*datacenterNode)(nil)
	_ fs.NodeLookuper  = (*folderNode)(nil)
	_ fs.NodeReaddirer = (*folderNode)(nil)
	_ fs.NodeGetattrer = (*folderNode)(nil)
	_ fs.NodeGetattrer = (*fileNode)(nil)
	_ fs.NodeOpener    = (*fileNode)(nil)
)

// folderAttr sets the attributes of a folder.
func (m *Mount) folderAttr(out *fuse.Attr) {
	out.Mode = syscall.S_IFDIR | folderMode
	out.Nlink = 2
	m.setOwnerAndTimes(out)
}

// fileAttr sets the attributes of a file of size bytes.
func (m *Mount) fileAttr(out *fuse.Attr, size int64) {
	out.Mode = syscall.S_IFREG | fileMode
	out.Nlink = 1
	out.Size, out.Blocks = uint64(size), uint64(size+511)/512
	m.setOwnerAndTimes(out)
}

// setOwnerAndTimes sets owner and times. ESXi reports no dates, so all times are that of the mount.
func (m *Mount) setOwnerAndTimes(out *fuse.Attr) {
	out.Owner = fuse.Owner{Uid: m.uid, Gid: m.gid}
	out.Blksize = readahead.LeastPageSize
	out.SetTimes(nil, &m.begun, &m.begun)
}

// Getattr implements fs.NodeGetattrer.
func (n *rootNode) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	n.m.folderAttr(&out.Attr)
	return fs.OK
}

// Getattr implements fs.NodeGetattrer.
func (n *datacenterNode) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	n.m.folderAttr(&out.Attr)
	return fs.OK
}

// Getattr implements fs.NodeGetattrer.
func (n *folderNode) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	n.m.folderAttr(&out.Attr)
	return fs.OK
}

// Readdir implements fs.NodeReaddirer.
func (n *rootNode) Readdir(ctx context.Context) (fs.DirStream, syscall.Errno) {
	tree, err := n.m.datacenterTree(ctx)
	if err != nil {
		return nil, n.m.errnoOf("list datacenters", err)
	}
	return folderStream(slices.Sorted(maps.Keys(tree))), fs.OK
}

// Readdir implements fs.NodeReaddirer.
func (n *datacenterNode) Readdir(ctx context.Context) (fs.DirStream, syscall.Errno) {
	tree, err := n.m.datacenterTree(ctx)
	if err != nil {
		return nil, n.m.errnoOf("list datastores", err)
	}
	return folderStream(slices.Sorted(maps.Keys(tree[n.name]))), fs.OK
}

// folderStream returns the entries of a folder that has only folders.
func folderStream(names []string) fs.DirStream {
	var list []fuse.DirEntry
	for _, name := range names {
		list = append(list, fuse.DirEntry{Name: name, Mode: syscall.S_IFDIR})
	}
	return fs.NewListDirStream(list)
}

// Readdir implements fs.NodeReaddirer.
func (n *folderNode) Readdir(ctx context.Context) (fs.DirStream, syscall.Errno) {
	ctx, cancel := n.m.requestContext(ctx)
	defer cancel()
	files, err := retryTransient(ctx, func() ([]inventory.File, error) { return n.m.host.List(ctx, n.datacenter, n.at) })
	if err != nil {
		return nil, n.m.errnoOf("list "+n.at.String(), err)
	}
	var list []fuse.DirEntry
	for _, f := range files {
		mode := uint32(syscall.S_IFREG)
		if f.Folder {
			mode = syscall.S_IFDIR
		}
		list = append(list, fuse.DirEntry{Name: f.Name, Mode: mode})
	}
	return fs.NewListDirStream(list), fs.OK
}

// Lookup implements fs.NodeLookuper.
func (n *rootNode) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	tree, err := n.m.datacenterTree(ctx)
	if err != nil {
		return nil, n.m.errnoOf("find datacenter "+name, err)
	}
	if tree[name] == nil {
		return nil, syscall.ENOENT
	}
	n.m.folderAttr(&out.Attr)
	if child := n.GetChild(name); child != nil {
		return child, fs.OK
	}
	return n.NewInode(ctx, &datacenterNode{m: n.m, name: name}, fs.StableAttr{Mode: syscall.S_IFDIR}), fs.OK
}

// Lookup implements fs.NodeLookuper.
func (n *datacenterNode) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	tree, err := n.m.datacenterTree(ctx)
	if err != nil {
		return nil, n.m.errnoOf("find datastore "+name, err)
	}
	ds, ok := tree[n.name][name]
	if !ok {
		return nil, syscall.ENOENT
	}
	n.m.folderAttr(&out.Attr)
	if child := n.GetChild(name); child != nil {
		return child, fs.OK
	}
	node := &folderNode{m: n.m, datacenter: ds.Datacenter, at: inventory.Path{Datastore: ds.Name}}
	return n.NewInode(ctx, node, fs.StableAttr{Mode: syscall.S_IFDIR}), fs.OK
}

// Lookup implements fs.NodeLookuper. It requests the single name and not the listing: a listing has no
// sizes, and on some hosts not all files.
func (n *folderNode) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	at := inventory.Path{Datastore: n.at.Datastore, File: path.Join(n.at.File, name)}
	ctx, cancel := n.m.requestContext(ctx)
	defer cancel()
	f, err := n.m.statFile(ctx, n.datacenter, at)
	if err != nil {
		return nil, n.m.errnoOf("read the attributes of "+at.String(), err)
	}
	child := n.GetChild(name)
	if f.Folder {
		n.m.folderAttr(&out.Attr)
		if child != nil && child.IsDir() {
			return child, fs.OK
		}
		return n.NewInode(ctx, &folderNode{m: n.m, datacenter: n.datacenter, at: at}, fs.StableAttr{Mode: syscall.S_IFDIR}), fs.OK
	}
	n.m.fileAttr(&out.Attr, f.Size)
	if child != nil && !child.IsDir() {
		child.Operations().(*fileNode).setSize(f.Size)
		return child, fs.OK
	}
	node := &fileNode{m: n.m, datacenter: n.datacenter, at: at, size: f.Size, seen: n.m.opts.Now()}
	return n.NewInode(ctx, node, fs.StableAttr{Mode: syscall.S_IFREG}), fs.OK
}

// setSize records the current size of the file at the host.
func (n *fileNode) setSize(size int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.size, n.seen = size, n.m.opts.Now()
}

// Getattr implements fs.NodeGetattrer. An open file has the size from when it was opened.
func (n *fileNode) Getattr(ctx context.Context, h fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	if h, ok := h.(*handle); ok {
		n.m.fileAttr(&out.Attr, h.file.Size())
		return fs.OK
	}
	n.mu.Lock()
	size, age := n.size, n.m.opts.Now().Sub(n.seen)
	n.mu.Unlock()
	if age < attrAge {
		n.m.fileAttr(&out.Attr, size)
		return fs.OK
	}
	ctx, cancel := n.m.requestContext(ctx)
	defer cancel()
	size, err := n.statSize(ctx)
	if err != nil {
		return n.m.errnoOf("read the attributes of "+n.at.String(), err)
	}
	n.m.fileAttr(&out.Attr, size)
	return fs.OK
}

// statSize requests the size from the host and records it. A folder with that name is fault.NotFound.
func (n *fileNode) statSize(ctx context.Context) (int64, error) {
	f, err := n.m.statFile(ctx, n.datacenter, n.at)
	if err != nil {
		return 0, err
	}
	if f.Folder {
		return 0, fault.New(fault.NotFound, "%v is a folder, no longer a file", n.at)
	}
	n.setSize(f.Size)
	return f.Size, nil
}
