package nfs

import (
	"time"

	"golang.org/x/sys/unix"
)

// A handle holds no name, and after a restart nothing is known but the root. What a handle
// means is then found by going through the whole export, once: everything met on the way
// is known afterwards. A handle of a file that is gone must not make every call walk, so
// there is one walk a second at most.
const walkEvery = time.Second

type walkResult struct {
	ended time.Time // when it ended; zero before the first
}

// findByWalk finds a file by its identity; nil if the export has none.
func (x *export) findByWalk(id inodeID) *node {
	asked := time.Now()
	x.finding.Lock()
	defer x.finding.Unlock()
	fresh := x.walked.ended.After(asked) // somebody walked while this call waited
	if !fresh && time.Since(x.walked.ended) >= walkEvery {
		x.walkFolder(x.root, x.dir, 0)
		x.walked.ended = time.Now()
	}
	return x.nodeByID(id)
}

// walkFolder meets everything below a held folder. What cannot be read is left out: its
// handles are stale.
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
