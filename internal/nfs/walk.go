package nfs

import (
	"time"

	"golang.org/x/sys/unix"
)

// walkEvery is the shortest time between two walks. A handle contains no path, and after a restart only
// the root node exists. A walk then adds the nodes of the whole export. The limit exists because a
// handle of a deleted file would otherwise cause a walk with each call.
const walkEvery = time.Second

// walkResult is the state of the last walk.
type walkResult struct {
	ended time.Time // zero before the first walk
}

// findByWalk returns the node with that identity, after a walk over the export unless one ended
// recently. It returns nil if the export has no such file.
func (x *export) findByWalk(id inodeID) *node {
	asked := time.Now()
	x.finding.Lock()
	defer x.finding.Unlock()
	fresh := x.walked.ended.After(asked) // another call walked while this one waited
	if !fresh && time.Since(x.walked.ended) >= walkEvery {
		x.walkFolder(x.root, x.dir, 0)
		x.walked.ended = time.Now()
	}
	return x.nodeByID(id)
}

// walkFolder adds the nodes of everything below an open folder. It skips unreadable folders: handles of
// their files are stale.
func (x *export) walkFolder(parent *node, folder *object, depth int) {
	names, err := folder.readNames()
	if err != nil || depth == maxDepth {
		return
	}
	for _, e := range names {
		o, err := openAt(folder.fd, e.name)
		if err != nil {
			continue
		}
		if x.isVisible(o.attr) && o.attr.id != x.root.id {
			n := x.addNode(parent, e.name, o.attr)
			if o.attr.format == unix.S_IFDIR {
				x.walkFolder(n, o, depth+1)
			}
		}
		o.close()
	}
}
