package nfs

import (
	"path"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/fault"
)

// Export is a local folder that clients mount.
type Export struct {
	// Path is the path that clients mount, absolute and clean: "/land". Handles contain a hash of it, so
	// another Path makes all earlier handles stale.
	Path string

	// Dir is the local folder. Other file systems mounted below it are not shown.
	Dir string

	// Open returns the Content of the file of that name, relative to Dir. It is called when the file is
	// first used; for a plain file, also after a RENAME of the file or of a folder above it, and after a
	// REMOVE of one of its names. See Server.Forget. A nil Content, or a nil Open, means the plain file. The
	// file stays in the folder in any case: clients see its name, times and identity.
	Open func(name string) (Content, error)

	// Writable reports whether the file of that name, relative to Dir, may be changed, created or removed;
	// "" is Dir itself. It is called for each such request. Nil means always.
	Writable func(name string) bool

	// Space returns the size and the free bytes that clients see; nil means those of Dir.
	Space func() (total, free int64, err error)
}

// export is an Export that is served. Its nodes are the files that clients have handles of, by
// identity. Files of handles from before a restart are found by findByWalk.
type export struct {
	Export
	id   uint64  // hash of Path, in the handles of folders and links; also the fsid in attributes
	dir  *object // open root folder; its attr has the device and the identity of the root
	root *node   // node of Dir; it is never removed

	fileID uint64 // hash of Path and the boot, in the handles of regular files; equal to id if handles survive a boot

	removed removedFiles // files removed so recently that a new file could get the same handle

	finding sync.Mutex // held during a walk, so that only one runs
	walked  walkResult // result of the last walk; finding guards it

	mu    sync.RWMutex      // guards nodes, and parent and name of each node
	nodes map[inodeID]*node // all nodes by identity
}

// openExport opens the folder of e and makes its root node. It does not set fileID. The caller closes
// the export.
func openExport(e Export) (*export, error) {
	if !path.IsAbs(e.Path) || path.Clean(e.Path) != e.Path || len(e.Path) > maxMountPath {
		return nil, fault.New(fault.Invalid, "export %q is not a clean absolute path", e.Path).
			WithHint("write an absolute path such as /land, without a slash at its end")
	}
	fd, err := unix.Open(e.Dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fault.New(fault.NotFound, "open folder %s: %w", e.Dir, err).WithHint("create it: mkdir -p %s", fault.Quote(e.Dir))
	}
	a, err := statAt(fd, "")
	if err != nil {
		unix.Close(fd)
		return nil, fault.New(fault.Unreachable, "read the attributes of folder %s: %w", e.Dir, err)
	}
	x := &export{Export: e, id: exportID(e.Path), dir: &object{fd: fd, attr: a}, nodes: make(map[inodeID]*node)}
	x.root = &node{export: x, id: a.id, format: unix.S_IFDIR}
	x.nodes[a.id] = x.root
	return x, nil
}

// close closes the root folder. No call may be in work.
func (x *export) close() { x.dir.close() }

// mayChange returns statusROFS if Writable refuses one of the names, which are relative to the export;
// nil if all may be changed.
func (x *export) mayChange(names ...string) error {
	if x.Writable == nil {
		return nil
	}
	for _, name := range names {
		if !x.Writable(name) {
			return statusROFS
		}
	}
	return nil
}

// isVisible reports whether clients may see a file: a regular file, folder or link on the export's file
// system. Inode numbers are unique only there.
func (x *export) isVisible(a *attr) bool {
	return a.dev == x.dir.attr.dev && typeOfFormat[a.format] != 0
}

// node is a file, folder or link that a client has a handle of. It has no descriptor: openNode opens it
// by its last path.
type node struct {
	export *export // export that the node belongs to
	id     inodeID // identity that an object must have to be this node
	format uint32  // file type: S_IFREG, S_IFDIR or S_IFLNK

	parent *node  // folder in which the node was last seen, nil for the root; the export's mu guards it
	name   string // name in parent when the node was last seen; the export's mu guards it

	// changing is held while a folder's names or a file's attributes are changed, so that
	// wcc_data describes the change of one call only.
	changing sync.Mutex

	listing listing // cached names of a folder; changing guards it

	file fileState // state of a regular file; unused for other types
}

// nodeByID returns the node with that identity; nil if the identity is unknown.
func (x *export) nodeByID(id inodeID) *node {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.nodes[id]
}

// addNode records that name in the folder parent has the attributes a. It returns the file's node,
// which is a new one if the identity is new.
func (x *export) addNode(parent *node, name string, a *attr) *node {
	if a.id == x.root.id {
		return x.root
	}
	x.mu.RLock()
	n := x.nodes[a.id]
	same := n != nil && n.parent == parent && n.name == name
	x.mu.RUnlock()
	if same {
		return n
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if n = x.nodes[a.id]; n == nil {
		n = &node{export: x, id: a.id, format: a.format}
		x.nodes[a.id] = n
	}
	n.parent, n.name = parent, name
	return n
}

// removeNode deletes the node of a file that no longer exists. Handles of it are stale from then on.
func (x *export) removeNode(n *node) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.nodes, n.id)
}

// maxDepth is the depth of the deepest tree that is walked: PATH_MAX allows no deeper one.
const maxDepth = maxPath / 2

// pathNames returns the names from the root to n, where n was last seen. The root has none.
func (x *export) pathNames(n *node) []string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var names []string
	for ; n.parent != nil && len(names) < maxDepth; n = n.parent {
		names = append(names, n.name)
	}
	for i, j := 0, len(names)-1; i < j; i, j = i+1, j-1 {
		names[i], names[j] = names[j], names[i]
	}
	return names
}

// filesBelow returns the known regular files at or below n.
func (x *export) filesBelow(n *node) (files []*node) {
	if n.format == formatFile {
		return []*node{n}
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, f := range x.nodes {
		if f.format == formatFile && f.isBelow(n) {
			files = append(files, f)
		}
	}
	return files
}

// isBelow reports whether n was last seen below the folder top. The export's mu must be held.
func (n *node) isBelow(top *node) bool {
	for depth := 0; n.parent != nil && depth < maxDepth; depth++ {
		if n = n.parent; n == top {
			return true
		}
	}
	return false
}

// pathOf returns the path of n relative to the export; "" for the root.
func (x *export) pathOf(n *node) string { return strings.Join(x.pathNames(n), "/") }

// parentOf returns the folder that n was last seen in. The parent of the root is the root.
func (x *export) parentOf(n *node) *node {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if n.parent == nil {
		return n
	}
	return n.parent
}

// openNode opens the object of n and verifies its identity. If n is no longer at its last path, it
// walks the export. It fails with statusStale if the file does not exist. The caller closes the object.
func (x *export) openNode(n *node) (*object, error) {
	o, err := x.openLastSeen(n)
	if err == nil || !isStale(err) {
		return o, err
	}
	if n = x.findByWalk(n.id); n == nil {
		return nil, statusStale
	}
	if o, err = x.openLastSeen(n); err != nil && isStale(err) {
		err = statusStale
	}
	return o, err
}

// isStale reports whether err means that the file may be found under another path.
func isStale(err error) bool {
	s := statusOf(err)
	return s == statusStale || s == statusNoEnt || s == statusNotDir || s == statusAcces
}

// openLastSeen opens the path where n was last seen. It fails with statusStale if that is another file
// by now.
func (x *export) openLastSeen(n *node) (*object, error) {
	o, err := x.openPath(x.pathNames(n))
	if err != nil {
		return nil, err
	}
	if o.attr.id != n.id || o.attr.dev != x.dir.attr.dev {
		o.close()
		return nil, statusStale
	}
	return o, nil
}

// openPath opens each folder from the root on, one by one. It follows no symbolic link: with
// O_NOFOLLOW, a link on the way is not a folder and the next step fails.
func (x *export) openPath(names []string) (*object, error) {
	o, err := openAt(x.dir.fd, ".")
	for _, name := range names {
		if err != nil {
			return nil, err
		}
		folder := o
		o, err = openAt(folder.fd, name)
		folder.close()
	}
	return o, err
}

// lookUpName returns the node and the attributes of name in an open folder. It fails with statusAcces
// for files that are not visible.
func (x *export) lookUpName(parent *node, folder *object, name string) (*node, *attr, error) {
	a, err := statAt(folder.fd, name)
	if err != nil {
		return nil, nil, err
	}
	if !x.isVisible(a) {
		return nil, nil, statusAcces
	}
	return x.addNode(parent, name, a), a, nil
}

// findFolder returns the folder at the path of these names, from the root on. It fails with
// statusNotDir if one of them is not a folder.
func (x *export) findFolder(names []string) (*node, error) {
	n := x.root
	for _, name := range names {
		o, err := x.openNode(n)
		if err != nil {
			return nil, err
		}
		n, _, err = x.lookUpName(n, o, name)
		o.close()
		if err != nil {
			return nil, err
		}
		if n.format != unix.S_IFDIR {
			return nil, statusNotDir
		}
	}
	return n, nil
}

// nodesNamed returns the nodes that were last seen at the path name, relative to the export. There can
// be several: one of each file that had this path.
func (x *export) nodesNamed(name string) []*node {
	x.mu.RLock()
	var like []*node
	for _, n := range x.nodes {
		if n.name == path.Base(name) {
			like = append(like, n)
		}
	}
	x.mu.RUnlock()
	var found []*node
	for _, n := range like {
		if x.pathOf(n) == name {
			found = append(found, n)
		}
	}
	return found
}
