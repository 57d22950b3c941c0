// Package fat reads files and folders of FAT12, FAT16 and FAT32 on untrusted media, such as EFI system
// partitions. A Writer adds files to one.
//
// Names are those of Windows, including long ones, without regard to case; the short name of a file with a
// long name is ignored. Each call follows a chain of clusters once, at most maxClusters of them, and reads
// adjacent ones together. The layout is that of Microsoft's "FAT32 File System Specification" of December
// 2000.
package fat

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/decamp/decamp/internal/guest/budget"
	"github.com/decamp/decamp/internal/guest/tree"
)

const (
	// maxClusters bounds the clusters of one file that are followed.
	maxClusters = 1 << 20

	maxTable = 8 << 20 // bytes of the table that are held; FAT16 has 128 KiB at most
	rootFAT  = 0       // the number of FAT12's and FAT16's root folder
)

// FS is a FAT file system.
type FS struct {
	*tree.Tree
	r        budget.Reader
	bits     int   // 12, 16 or 32: of an entry of the table
	cluster  int64 // bytes
	clusters int64 // their number
	data     int64 // byte of cluster 2
	root     extent
	top      int64 // cluster of the root folder; rootFAT if it is in a separate area
	table    []byte
}

// An extent is a range of the medium, in bytes.
type extent struct{ off, size int64 }

// Open reads the boot sector and the table of the file system at r's first byte.
func Open(r budget.Reader) (*FS, error) {
	b := make([]byte, 512)
	if _, err := r.ReadAt(b, 0); err != nil {
		return nil, err
	}
	sector, perCluster := int64(le16(b, 11)), int64(b[13])
	reserved, tables, rootEntries := int64(le16(b, 14)), int64(b[16]), int64(le16(b, 17))
	sectors, perTable := int64(le16(b, 19)), int64(le16(b, 22))
	if sectors == 0 {
		sectors = int64(le32(b, 32))
	}
	if perTable == 0 {
		perTable = int64(le32(b, 36))
	}
	switch {
	case b[510] != 0x55 || b[511] != 0xaa:
		return nil, errors.New("no boot sector")
	case sector < 512 || sector > 4096 || sector&(sector-1) != 0 || perCluster == 0 || perCluster&(perCluster-1) != 0:
		return nil, fmt.Errorf("sectors of %d bytes, %d in a cluster", sector, perCluster)
	case reserved == 0 || tables == 0 || perTable == 0:
		return nil, fmt.Errorf("%d reserved sectors, %d tables of %d", reserved, tables, perTable)
	}
	fs := &FS{r: r, cluster: perCluster * sector}
	fs.root = extent{(reserved + tables*perTable) * sector, rootEntries * 32}
	fs.data = fs.root.off + (fs.root.size+sector-1)/sector*sector
	fs.clusters = (sectors*sector - fs.data) / fs.cluster
	return fs, fs.open(extent{reserved * sector, perTable * sector}, int64(le32(b, 44)))
}

// open determines the type of the file system from the number of clusters, as the specification
// requires.
func (fs *FS) open(table extent, root int64) error {
	switch {
	case fs.clusters <= 0:
		return errors.New("no clusters")
	case fs.clusters < 4085:
		fs.bits = 12
	case fs.clusters < 65525:
		fs.bits = 16
	default:
		fs.bits = 32
	}
	need := ((fs.clusters+2)*int64(fs.bits) + 7) / 8
	if need > table.size {
		return fmt.Errorf("a table of %d bytes for %d clusters", table.size, fs.clusters)
	}
	if err := fs.r.Budget().Hold(min(need, maxTable)); err != nil {
		return err
	}
	fs.table = make([]byte, min(need, maxTable))
	if _, err := fs.r.ReadAt(fs.table, table.off); err != nil {
		return fmt.Errorf("table: %w", err)
	}
	if fs.bits == 32 {
		fs.top = root
	}
	fs.Tree = tree.New(&node{fs: fs, folder: true, first: fs.top})
	return nil
}

// entry returns the table's entry of cluster n; ok is false for an invalid one.
func (fs *FS) entry(n int64) (v int64, ok bool) {
	at := n * int64(fs.bits) / 8
	if n < 2 || n >= fs.clusters+2 || at+int64(fs.bits+7)/8 > int64(len(fs.table)) {
		return 0, false
	}
	switch fs.bits {
	case 12: // two entries in three bytes
		return int64(le16(fs.table, int(at))) >> (n & 1 * 4) & 0xfff, true
	case 16:
		return int64(le16(fs.table, int(at))), true
	}
	return int64(le32(fs.table, int(at))) & 0xfffffff, true
}

// next returns the cluster that follows n; 0 at the end of a chain.
func (fs *FS) next(n int64) (int64, error) {
	v, ok := fs.entry(n)
	bad := int64(0xffffff7)
	switch fs.bits {
	case 12:
		bad = 0xff7
	case 16:
		bad = 0xfff7
	}
	switch {
	case !ok:
		return 0, fmt.Errorf("cluster %d of %d", n, fs.clusters)
	case v == 0 || v == bad:
		return 0, fmt.Errorf("cluster %d leads to one that is free or bad", n)
	case v > bad:
		return 0, nil
	}
	return v, nil
}

// Usage returns how full the file system is, as far as its table is held. Free is 0 if
// counting it exceeds the budget.
func (fs *FS) Usage() tree.Usage {
	free := int64(0)
	for n := int64(2); n < fs.clusters+2; n++ {
		if n%1024 == 0 && fs.r.Budget().Step(64) != nil {
			free = 0
			break
		}
		v, ok := fs.entry(n)
		if !ok {
			break
		}
		if v == 0 {
			free++
		}
	}
	return tree.Usage{Size: fs.clusters * fs.cluster, Free: free * fs.cluster}
}

func le16(p []byte, at int) uint16 { return binary.LittleEndian.Uint16(p[at:]) }
func le32(p []byte, at int) uint32 { return binary.LittleEndian.Uint32(p[at:]) }
