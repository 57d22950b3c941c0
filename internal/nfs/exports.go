package nfs

import (
	"path"
	"strings"

	"github.com/decamp/decamp/internal/fault"
)

// exportTable is the exports of a server, by the path that clients mount and by what stands
// for them in handles. New fills it; it does not change after that and has no lock.
type exportTable struct {
	list []*export
	byID map[uint64]*export
}

func (t *exportTable) add(e Export, boot string) error {
	x, err := openExport(e)
	if err != nil {
		return err
	}
	if t.byID[x.id] != nil {
		x.close()
		return fault.New(fault.Invalid, "two exports are called %s", e.Path).WithHint("give each its own path")
	}
	x.fileID = fileExportID(x.Path, boot)
	t.byID[x.id], t.byID[x.fileID] = x, x
	t.list = append(t.list, x)
	return nil
}

// byPath returns the export of that path; nil if there is none.
func (t *exportTable) byPath(path string) *export { return t.byID[exportID(path)] }

// findNode returns what a handle means.
func (t *exportTable) findNode(handle []byte) (*node, error) {
	export, id, err := decodeHandle(handle)
	if err != nil {
		return nil, err
	}
	x := t.byID[export]
	if x == nil {
		return nil, statusStale
	}
	n := x.nodeByID(id)
	if n == nil {
		n = x.findByWalk(id)
	}
	if n == nil || x.fileID != x.id && (n.format == formatFile) != (export == x.fileID) {
		return nil, statusStale
	}
	return n, nil
}

// mountPoint finds the folder that a mount names.
func (t *exportTable) mountPoint(arg string) (*node, error) {
	if !path.IsAbs(arg) || strings.Contains(arg, "\x00") {
		return nil, statusNoEnt
	}
	for _, part := range strings.Split(arg, "/") {
		if isDot(part) {
			return nil, statusAcces
		}
	}
	arg = path.Clean(arg)
	for _, x := range t.list {
		if rest, ok := pathBelow(arg, x.Path); ok {
			return x.findFolder(rest)
		}
	}
	return nil, statusNoEnt
}

// pathBelow returns what a path is relative to a folder it is in.
func pathBelow(p, folder string) (rest []string, ok bool) {
	if p == folder {
		return nil, true
	}
	tail, ok := strings.CutPrefix(p, strings.TrimSuffix(folder, "/")+"/")
	return strings.Split(tail, "/"), ok
}

func (t *exportTable) close() {
	for _, x := range t.list {
		x.close()
	}
}
