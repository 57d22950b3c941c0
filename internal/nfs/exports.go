package nfs

import (
	"path"
	"strings"

	"github.com/decamp/decamp/internal/fault"
)

// exportTable contains the exports of a server. New fills it; it does not change after that and needs
// no lock.
type exportTable struct {
	list []*export          // exports in the order of Options.Exports
	byID map[uint64]*export // exports by id and by fileID, the two numbers that their handles contain
}

// add opens an export and adds it. It fails with fault.Invalid if another export has the same path.
// boot is Options.Boot.
func (t *exportTable) add(e Export, boot string) error {
	x, err := openExport(e)
	if err != nil {
		return err
	}
	if t.byID[x.id] != nil {
		x.close()
		return fault.New(fault.Invalid, "two exports have the path %s", e.Path).WithHint("use a different path for each export")
	}
	x.fileID = fileExportID(x.Path, boot)
	t.byID[x.id], t.byID[x.fileID] = x, x
	t.list = append(t.list, x)
	return nil
}

// byPath returns the export that clients mount as path; nil if no export has that path.
func (t *exportTable) byPath(path string) *export { return t.byID[exportID(path)] }

// findNode returns the node of a handle. It walks the export if the node is not in memory, which
// happens after a restart. It fails with statusStale for an unknown export, another boot, or a file
// that does not exist, and with statusBadHandle for other bytes.
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

// mountPoint returns the folder of a MOUNT path: an export, or a folder below one. It refuses "." and
// ".." as components.
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

// pathBelow returns the components of p after folder. ok is false if p is not below folder; rest is nil
// if both are equal.
func pathBelow(p, folder string) (rest []string, ok bool) {
	if p == folder {
		return nil, true
	}
	tail, ok := strings.CutPrefix(p, strings.TrimSuffix(folder, "/")+"/")
	return strings.Split(tail, "/"), ok
}

// close closes all exports.
func (t *exportTable) close() {
	for _, x := range t.list {
		x.close()
	}
}
