package fat

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest/budget"
	"github.com/decamp/decamp/internal/guest/tree"
)

// A Device contains a file system from its first byte on.
type Device = budget.ReadWriter

// A Writer adds files to a file system. It does not change existing files: new ones use free
// clusters and free entries of their folders. Flush makes all writes; before it the device is
// unchanged.
type Writer struct {
	fs           *FS           // file system with pending changes
	to           io.WriterAt   // device
	staged       *stagedReader // pending writes of files and folders
	tables       []extent      // all copies of the table
	freeCountOff int64         // offset of FAT32's count of free clusters; 0 if it has none
	allocated    int64         // clusters allocated since the last Flush
	undo         []tableChange // changes of the table by the current Add
	now          time.Time     // time of new files
}

// A tableChange is a changed entry of the table.
type tableChange struct {
	cluster int64 // number of the entry
	old     int64 // value before the change
}

// unusualError returns a fault.Unsupported error for a file system that the Writer does not change.
func unusualError(format string, args ...any) error {
	return fault.New(fault.Unsupported, format, args...).WithHint("in the guest: umount /boot/efi && fsck.vfat -a PARTITION; then copy it again")
}

// OpenWriter opens the file system on dev for additions at the time now. It refuses
// (fault.Unsupported) a file system whose tables differ, are not mirrored, are inconsistent, or
// exceed 8 MiB.
func OpenWriter(dev Device, now time.Time) (*Writer, error) {
	s := &stagedReader{r: dev}
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
		return nil, unusualError("a table of %d bytes", need)
	}
	if fsys.bits == 32 {
		// Bit 7 of the flags at 40 means that only one table is active.
		if le16(b, 40)&0x80 != 0 {
			return nil, unusualError("its tables are not mirrored")
		}
		if err := w.findFreeCount(int64(le16(b, 48)) * sector); err != nil {
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

// checkChains fails if two chains share a cluster or a chain leads to a free one, because then a
// new file could share clusters with an existing file.
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
		v, _ := w.fs.tableEntry(c)
		if v < 2 || v >= w.fs.clusters+2 {
			continue
		}
		if next, _ := w.fs.tableEntry(v); next == 0 || led[v] {
			return unusualError("cluster %d leads to one that is free or another's", c)
		}
		led[v] = true
	}
	return nil
}

// compareTables fails if a copy of the table differs from the first one.
func (w *Writer) compareTables() error {
	size := int64(len(w.fs.table))
	if err := w.fs.r.Budget().Hold(size); err != nil {
		return err
	}
	defer w.fs.r.Budget().Release(size)
	other := make([]byte, size)
	for _, t := range w.tables[1:] {
		if _, err := w.staged.r.ReadAt(other, t.off); err != nil {
			return err
		}
		if !bytes.Equal(other, w.fs.table) {
			return unusualError("its tables differ")
		}
	}
	return nil
}

// findFreeCount sets freeCountOff if the sector at offset at is a valid FSInfo with a known count.
func (w *Writer) findFreeCount(at int64) error {
	p := make([]byte, 512)
	if _, err := w.staged.r.ReadAt(p, at); err != nil {
		return err
	}
	// FSInfo has signatures at 0 and 484 and the count at 488; 0xffffffff means unknown.
	const lead, middle, free = 0x41615252, 0x61417272, 488
	if at > 0 && le32(p, 0) == lead && le32(p, 484) == middle && le32(p, free) != 0xffffffff {
		w.freeCountOff = at + free
	}
	return nil
}

// Tree returns the files, including additions.
func (w *Writer) Tree() *tree.Tree { return w.fs.Tree }

// Add adds a file and the missing folders of its path. All names must be short (8.3); letters
// become upper case. The error is fs.ErrExist if the file exists, and fault.Full if there is not
// enough space. A call that fails changes nothing.
func (w *Writer) Add(path string, data []byte) error {
	w.undo = w.undo[:0]
	writes, allocated := len(w.staged.writes), w.allocated
	err := w.addFile(path, data)
	if err != nil {
		for _, c := range slices.Backward(w.undo) {
			w.fs.setTableEntry(c.cluster, c.old)
		}
		w.staged.dropWrites(writes)
		w.allocated = allocated
		w.fs.rootNode.chained = false // its chain is shorter again if it had grown
	}
	return err
}

// addFile adds a file and the missing folders of its path. If it fails, some of its changes remain.
func (w *Writer) addFile(path string, data []byte) error {
	parts := strings.Split(path, "/")
	folder, err := w.openFolder(parts[:len(parts)-1])
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	name := parts[len(parts)-1]
	if _, err := folder.Find(name); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", path, errors.Join(err, fs.ErrExist))
	}
	if err := w.addEntry(folder, name, 0, data); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// openFolder returns the folder at the path from the root, and creates missing folders.
func (w *Writer) openFolder(names []string) (*node, error) {
	at := w.fs.rootNode
	for _, name := range names {
		next, err := at.Find(name)
		if errors.Is(err, fs.ErrNotExist) {
			if err := w.addEntry(at, name, attrFolder, nil); err != nil {
				return nil, err
			}
			next, err = at.Find(name)
		}
		if err != nil {
			return nil, err
		}
		if next.Kind() != tree.Folder {
			return nil, fmt.Errorf("%s is not a folder", name)
		}
		at = next.(*node)
	}
	return at, nil
}

// addEntry adds a file, or an empty folder if attr is attrFolder, to the folder in.
func (w *Writer) addEntry(in *node, name string, attr byte, data []byte) error {
	short, err := shortName(name)
	if err != nil {
		return err
	}
	size := int64(len(data))
	if attr == attrFolder {
		data = make([]byte, w.fs.clusterSize)
	}
	clusters, err := w.allocateClusters((int64(len(data)) + w.fs.clusterSize - 1) / w.fs.clusterSize)
	if err != nil {
		return err
	}
	var first int64
	if len(clusters) > 0 {
		first = clusters[0]
	}
	if attr == attrFolder {
		parent := in.first
		if parent == w.fs.rootCluster {
			parent = 0 // ".." of a subfolder of the root is always 0
		}
		copy(data, w.makeLine([11]byte([]byte(".          ")), attrFolder, first, 0))
		copy(data[lineLen:], w.makeLine([11]byte([]byte("..         ")), attrFolder, parent, 0))
	}
	for i, c := range clusters {
		from := int64(i) * w.fs.clusterSize
		if err := w.staged.addWrite(data[from:min(from+w.fs.clusterSize, int64(len(data)))], w.clusterOff(c)); err != nil {
			return err
		}
	}
	return w.addLine(in, w.makeLine(short, attr, first, size))
}

// allocateClusters allocates n free clusters and links them to a chain. It fails with fault.Full,
// and changes nothing, if fewer are free.
func (w *Writer) allocateClusters(n int64) (clusters []int64, err error) {
	for c := int64(2); c < w.fs.clusters+2 && int64(len(clusters)) < n; c++ {
		if v, ok := w.fs.tableEntry(c); ok && v == 0 {
			clusters = append(clusters, c)
		}
	}
	if int64(len(clusters)) < n {
		return nil, fault.New(fault.Full, "%d KiB are free, and %d are required", int64(len(clusters))*w.fs.clusterSize>>10, n*w.fs.clusterSize>>10).
			WithHint("in the guest, remove unneeded files from its EFI system partition, /boot/efi")
	}
	w.allocated += n
	for i, c := range clusters {
		next := int64(0xfffffff) // the end
		if i+1 < len(clusters) {
			next = clusters[i+1]
		}
		w.changeTable(c, next)
	}
	return clusters, nil
}

// changeTable changes the entry of a cluster. Add reverts the change if it fails.
func (w *Writer) changeTable(cluster, next int64) {
	old, _ := w.fs.tableEntry(cluster)
	w.undo = append(w.undo, tableChange{cluster, old})
	w.fs.setTableEntry(cluster, next)
}

// addLine writes an entry to the first free place of a folder. It adds a cluster to a full folder.
func (w *Writer) addLine(in *node, line []byte) error {
	p, err := in.readFolder()
	if err != nil {
		return err
	}
	at := 0
	for at < len(p) && p[at] != 0 && p[at] != removed {
		at += lineLen
	}
	if at >= len(p) {
		if err := w.growFolder(in); err != nil {
			return err
		}
		return w.addLine(in, line)
	}
	if p[at] == 0 && at+lineLen < len(p) { // bytes after the end may have any value
		line = append(line, make([]byte, lineLen)...)
	}
	for ; len(line) > 0; at, line = at+lineLen, line[lineLen:] {
		off := w.fs.root.off + int64(at)
		if in.first != rootFAT {
			off = w.clusterOff(in.clusters[int64(at)/w.fs.clusterSize]) + int64(at)%w.fs.clusterSize
		}
		if err := w.staged.addWrite(line[:lineLen], off); err != nil {
			return err
		}
	}
	return nil
}

// growFolder adds an empty cluster to a folder. The root of FAT12 and FAT16 cannot grow.
func (w *Writer) growFolder(in *node) error {
	if in.first == rootFAT || int64(len(in.clusters)+1)*w.fs.clusterSize > maxFolder {
		return fault.New(fault.Full, "a folder is full").WithHint("in the guest: remove files from the folders of /boot/efi")
	}
	more, err := w.allocateClusters(1)
	if err != nil {
		return err
	}
	if err := w.staged.addWrite(make([]byte, w.fs.clusterSize), w.clusterOff(more[0])); err != nil {
		return err
	}
	w.changeTable(in.clusters[len(in.clusters)-1], more[0])
	in.chained = false
	return nil
}

// clusterOff returns the offset of a cluster in bytes.
func (w *Writer) clusterOff(cluster int64) int64 { return w.fs.dataOff + (cluster-2)*w.fs.clusterSize }

// Flush writes all additions: contents and folders in the order of the calls, then the tables and
// the count of free clusters. If it fails, some of them may be written.
func (w *Writer) Flush() error {
	for _, each := range w.staged.writes {
		if _, err := w.to.WriteAt(each.data, each.off); err != nil {
			return err
		}
	}
	w.staged.dropWrites(0)
	// An empty file in a folder with a free entry takes no cluster, so the tables are unchanged.
	if w.allocated == 0 {
		return nil
	}
	for _, t := range w.tables {
		if _, err := w.to.WriteAt(w.fs.table, t.off); err != nil {
			return err
		}
	}
	if w.freeCountOff > 0 {
		p := make([]byte, 4)
		if _, err := w.staged.r.ReadAt(p, w.freeCountOff); err != nil {
			return err
		}
		put32(p, 0, uint32(max(0, int64(le32(p, 0))-w.allocated)))
		if _, err := w.to.WriteAt(p, w.freeCountOff); err != nil {
			return err
		}
	}
	w.allocated = 0
	return nil
}
