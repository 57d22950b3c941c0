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
	// Path is what clients mount: absolute and clean, "/land". Handles are made of it, so
	// a server that starts again with another Path makes every mount stale.
	Path string

	// Dir is the local folder. What else is mounted below it is not shown.
	Dir string

	// Open decides what holds the bytes of the file of that name, relative to Dir. It is
	// asked when the file is first used; see Server.Forget. A nil Content, or a nil Open,
	// means the file itself. The file stays in the folder in any case: its name, times
	// and identity are what clients see.
	Open func(name string) (Content, error)

	// Writable says whether a name, relative to Dir and "" for Dir itself, may be changed,
	// made or removed. It is asked each time. nil: always.
	Writable func(name string) bool

	// Space returns the size and the free bytes to report; nil: those of Dir.
	Space func() (total, free int64, err error)
}

// export is an Export that is served. It knows the files that clients were told of, by
// their identity; what it does not know it finds again, see walk.
type export struct {
	Export
	id   uint64 // of folders and links, in handles; it stands for the file system as well
	dir  *object
	root *node

	fileID uint64 // of regular files, in handles

	removed removedFiles

	finding sync.Mutex // held by a walk: one at a time
	walked  walkResult // of the last one

	mu    sync.RWMutex
	nodes map[inodeID]*node
}

func openExport(e Export) (*export, error) {
	if !path.IsAbs(e.Path) || path.Clean(e.Path) != e.Path || len(e.Path) > maxMountPath {
		return nil, fault.New(fault.Invalid, "export %q is not a clean absolute path", e.Path).
			WithHint("name it like /land, without a slash at the end")
	}
	fd, err := unix.Open(e.Dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fault.New(fault.NotFound, "open folder %s: %w", e.Dir, err).WithHint("create it: mkdir -p %s", fault.Quote(e.Dir))
	}
	a, err := statAt(fd, "")
	if err != nil {
		unix.Close(fd)
		return nil, fault.New(fault.Unreachable, "look at folder %s: %w", e.Dir, err)
	}
	x := &export{Export: e, id: exportID(e.Path), dir: &object{fd: fd, attr: a}, nodes: make(map[inodeID]*node)}
	x.root = &node{export: x, id: a.id, format: unix.S_IFDIR}
	x.nodes[a.id] = x.root
	return x, nil
}

func (x *export) close() { x.dir.close() }

// mayChange reports whether the names, relative to the export, may be changed.
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

// isVisible reports whether a file is one that clients may see: a regular file, folder or
// link of the export's own file system. Inode numbers of another one mean other files.
func (x *export) isVisible(a *attr) bool {
	return a.dev == x.dir.attr.dev && typeOfFormat[a.format] != 0
}

// node is a file that clients were told of.
type node struct {
	export *export
	id     inodeID
	format uint32

	// parent and name are where it was last seen. The export's mu guards them.
	parent *node // nil for the root
	name   string

	// changing is held while a folder's names or a file's attributes are changed, so that
	// wcc_data tells what this call changed and nothing else.
	changing sync.Mutex

	listing listing // of a folder; changing guards it

	file fileState // of a regular file
}

// nodeByID returns a known file; nil if it is not known.
func (x *export) nodeByID(id inodeID) *node {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.nodes[id]
}

// addNode notes that name in the folder parent is that file, and returns its node.
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

// removeNode forgets a file that is no more.
func (x *export) removeNode(n *node) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.nodes, n.id)
}

// maxDepth is the deepest tree that is followed; PATH_MAX allows no deeper one.
const maxDepth = maxPath / 2

// pathNames returns the way from the root to n.
func (x *export) pathNames(n *node) []string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var way []string
	for ; n.parent != nil && len(way) < maxDepth; n = n.parent {
		way = append(way, n.name)
	}
	for i, j := 0, len(way)-1; i < j; i, j = i+1, j-1 {
		way[i], way[j] = way[j], way[i]
	}
	return way
}

// pathOf returns n's name relative to the export.
func (x *export) pathOf(n *node) string { return strings.Join(x.pathNames(n), "/") }

// parentOf returns the folder that n was last seen in; the root's is the root.
func (x *export) parentOf(n *node) *node {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if n.parent == nil {
		return n
	}
	return n.parent
}

// openNode opens a file that is known, and verifies that it is the one. The caller closes it.
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

// isStale reports whether a file may be found under another name.
func isStale(err error) bool {
	s := statusOf(err)
	return s == statusStale || s == statusNoEnt || s == statusNotDir || s == statusAcces
}

// openLastSeen opens what stands where n was last seen.
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

// openPath opens the way from the root. No part of it may be a link.
func (x *export) openPath(way []string) (*object, error) {
	o, err := openAt(x.dir.fd, ".")
	for _, name := range way {
		if err != nil {
			return nil, err
		}
		folder := o
		o, err = openAt(folder.fd, name)
		folder.close()
	}
	return o, err
}

// lookUpName returns what name in a held folder is.
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

// findFolder finds a folder by the names on the way to it.
func (x *export) findFolder(way []string) (*node, error) {
	n := x.root
	for _, name := range way {
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

// nodesNamed returns the files that were last seen under a name.
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
