package fat

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest/budget"
	"github.com/decamp/decamp/internal/guest/tree"
)

// A Device holds a file system, from its first byte on.
type Device = budget.ReadWriter

// A Writer adds files to a file system, and changes nothing that is there: new files lie in free
// clusters and in free lines of their folders. Nothing reaches the device before Flush.
type Writer struct {
	fs     *FS
	to     io.WriterAt
	staged *staged
	tables []extent // all copies of the table
	info   int64    // byte of FAT32's count of free clusters; 0: it has none
	taken  int64    // clusters
	now    time.Time
}

// odd refuses an unusual file system.
func odd(format string, args ...any) error {
	return fault.New(fault.Unsupported, format, args...).WithHint("in the guest: umount /boot/efi && fsck.vfat -a its partition, and copy it again")
}

// OpenWriter opens the file system on dev. It refuses (fault.Unsupported) tables that differ, are not
// mirrored or contradict themselves, and those of more than 8 MiB.
func OpenWriter(dev Device, now time.Time) (*Writer, error) {
	s := &staged{r: dev}
	fsys, err := Open(s)
	if err != nil {
		return nil, err
	}
	b := make([]byte, 512)
	if _, err := dev.ReadAt(b, 0); err != nil {
		return nil, err
	}
	w := &Writer{fs: fsys, to: dev, staged: s, now: now}
	sector, perTable := int64(le16(b, 11)), int64(le16(b, 22))
	if perTable == 0 {
		perTable = int64(le32(b, 36))
	}
	if need := ((fsys.clusters+2)*int64(fsys.bits) + 7) / 8; need > int64(len(fsys.table)) {
		return nil, odd("a table of %d bytes", need)
	}
	if fsys.bits == 32 {
		if le16(b, 40)&0x80 != 0 {
			return nil, odd("its tables are not mirrored")
		}
		if err := w.findInfo(int64(le16(b, 48)) * sector); err != nil {
			return nil, err
		}
	}
	for i := range int64(b[16]) {
		w.tables = append(w.tables, extent{(int64(le16(b, 14)) + i*perTable) * sector, int64(len(fsys.table))})
	}
	if err := w.compareTables(); err != nil {
		return nil, err
	}
	return w, w.checkChains()
}

// checkChains refuses chains that meet, or refer to free clusters: a new file would share clusters with
// another.
func (w *Writer) checkChains() error {
	if err := w.fs.r.Budget().Hold(w.fs.clusters + 2); err != nil {
		return err
	}
	defer w.fs.r.Budget().Release(w.fs.clusters + 2)
	if err := w.fs.r.Budget().Step(w.fs.clusters / 4); err != nil {
		return err
	}
	led := make([]bool, w.fs.clusters+2)
	for c := int64(2); c < w.fs.clusters+2; c++ {
		v, _ := w.fs.entry(c)
		if v < 2 || v >= w.fs.clusters+2 {
			continue
		}
		if next, _ := w.fs.entry(v); next == 0 || led[v] {
			return odd("cluster %d leads to one that is free or another's", c)
		}
		led[v] = true
	}
	return nil
}

func (w *Writer) compareTables() error {
	other := make([]byte, len(w.fs.table))
	for _, t := range w.tables[1:] {
		if _, err := w.staged.r.ReadAt(other, t.off); err != nil {
			return err
		}
		if !bytes.Equal(other, w.fs.table) {
			return odd("its tables differ")
		}
	}
	return nil
}

// findInfo finds the count of free clusters, if there is one.
func (w *Writer) findInfo(at int64) error {
	p := make([]byte, 512)
	if _, err := w.staged.r.ReadAt(p, at); err != nil {
		return err
	}
	const lead, middle, free = 0x41615252, 0x61417272, 488
	if at > 0 && le32(p, 0) == lead && le32(p, 484) == middle && le32(p, free) != 0xffffffff {
		w.info = at + free
	}
	return nil
}

// Tree returns the file system with the additions.
func (w *Writer) Tree() *tree.Tree { return w.fs.Tree }

// Add makes a file, and the folders above it that are missing. All names must be short ones
// (8.3); letters become upper case. A file that is there is fs.ErrExist; no room is fault.Full.
func (w *Writer) Add(path string, data []byte) error {
	parts := strings.Split(path, "/")
	folder, err := w.folder(parts[:len(parts)-1])
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	name := parts[len(parts)-1]
	if _, err := folder.Find(name); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", path, errors.Join(err, fs.ErrExist))
	}
	if err := w.add(folder, name, 0, data); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// folder opens a path from the root, and creates missing folders.
func (w *Writer) folder(names []string) (*node, error) {
	at := &node{fs: w.fs, folder: true, first: w.fs.top}
	for _, name := range names {
		next, err := at.Find(name)
		if errors.Is(err, fs.ErrNotExist) {
			if err := w.add(at, name, attrFolder, nil); err != nil {
				return nil, err
			}
			next, err = at.Find(name)
		}
		if err != nil {
			return nil, err
		}
		if next.Kind() != tree.Folder {
			return nil, fmt.Errorf("%s is no folder", name)
		}
		at = next.(*node)
	}
	return at, nil
}

// add makes a file or a folder in one.
func (w *Writer) add(in *node, name string, attr byte, data []byte) error {
	short, err := shortName(name)
	if err != nil {
		return err
	}
	size := int64(len(data))
	if attr == attrFolder {
		data = make([]byte, w.fs.cluster)
	}
	clusters, err := w.take((int64(len(data)) + w.fs.cluster - 1) / w.fs.cluster)
	if err != nil {
		return err
	}
	var first int64
	if len(clusters) > 0 {
		first = clusters[0]
	}
	if attr == attrFolder {
		parent := in.first
		if parent == w.fs.top {
			parent = 0 // both kinds of root
		}
		copy(data, w.line([11]byte([]byte(".          ")), attrFolder, first, 0))
		copy(data[lineLen:], w.line([11]byte([]byte("..         ")), attrFolder, parent, 0))
	}
	for i, c := range clusters {
		from := int64(i) * w.fs.cluster
		w.staged.write(data[from:min(from+w.fs.cluster, int64(len(data)))], w.place(c))
	}
	return w.enter(in, w.line(short, attr, first, size))
}

// take takes free clusters and makes a chain of them.
func (w *Writer) take(n int64) (clusters []int64, err error) {
	for c := int64(2); c < w.fs.clusters+2 && int64(len(clusters)) < n; c++ {
		if v, ok := w.fs.entry(c); ok && v == 0 {
			clusters = append(clusters, c)
		}
	}
	if int64(len(clusters)) < n {
		return nil, fault.New(fault.Full, "%d KiB are free, and %d are needed", int64(len(clusters))*w.fs.cluster>>10, n*w.fs.cluster>>10).
			WithHint("in the guest, remove unneeded files from its EFI system partition, /boot/efi")
	}
	w.taken += n
	for i, c := range clusters {
		next := int64(0xfffffff) // the end
		if i+1 < len(clusters) {
			next = clusters[i+1]
		}
		w.fs.set(c, next)
	}
	return clusters, nil
}

// enter puts a line into a folder, which grows if it has no room.
func (w *Writer) enter(in *node, line []byte) error {
	p, err := in.content()
	if err != nil {
		return err
	}
	at := 0
	for at < len(p) && p[at] != 0 && p[at] != removed {
		at += lineLen
	}
	if at >= len(p) {
		if err := w.grow(in); err != nil {
			return err
		}
		return w.enter(in, line)
	}
	if p[at] == 0 && at+lineLen < len(p) { // bytes after the end may have any value
		line = append(line, make([]byte, lineLen)...)
	}
	for ; len(line) > 0; at, line = at+lineLen, line[lineLen:] {
		off := w.fs.root.off + int64(at)
		if in.first != rootFAT {
			off = w.place(in.clusters[int64(at)/w.fs.cluster]) + int64(at)%w.fs.cluster
		}
		w.staged.write(line[:lineLen], off)
	}
	return nil
}

// grow gives a folder one more cluster.
func (w *Writer) grow(in *node) error {
	if in.first == rootFAT || int64(len(in.clusters)+1)*w.fs.cluster > maxFolder {
		return fault.New(fault.Full, "a folder has no room for another name").WithHint("in the guest: remove files from the folders of /boot/efi")
	}
	more, err := w.take(1)
	if err != nil {
		return err
	}
	w.staged.write(make([]byte, w.fs.cluster), w.place(more[0]))
	w.fs.set(in.clusters[len(in.clusters)-1], more[0])
	in.chained = false
	return nil
}

// place is where a cluster is, in bytes.
func (w *Writer) place(cluster int64) int64 { return w.fs.data + (cluster-2)*w.fs.cluster }

// Flush writes the additions: the files before the table, and the folders' lines last.
func (w *Writer) Flush() error {
	if w.taken == 0 {
		return nil
	}
	for _, each := range w.staged.writes {
		if _, err := w.to.WriteAt(each.data, each.off); err != nil {
			return err
		}
	}
	for _, t := range w.tables {
		if _, err := w.to.WriteAt(w.fs.table, t.off); err != nil {
			return err
		}
	}
	if w.info > 0 {
		p := make([]byte, 4)
		if _, err := w.staged.r.ReadAt(p, w.info); err != nil {
			return err
		}
		put32(p, 0, uint32(max(0, int64(le32(p, 0))-w.taken)))
		if _, err := w.to.WriteAt(p, w.info); err != nil {
			return err
		}
	}
	w.taken, w.staged.writes = 0, nil
	return nil
}
