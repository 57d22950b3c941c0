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
	// maxClusters limits the clusters of one file that are followed.
	maxClusters = 1 << 20

	maxTable = 8 << 20 // bytes of the table in memory; a FAT16 has at most 128 KiB
	rootFAT  = 0       // first cluster of the root folder of FAT12 and FAT16, which has a separate area
)

// FS is a FAT file system. It is not safe for concurrent use.
type FS struct {
	*tree.Tree
	r           budget.Reader // file system from its first byte
	bits        int           // bits of a table entry: 12, 16 or 32
	clusterSize int64         // bytes of a cluster
	clusters    int64         // number of clusters
	dataOff     int64         // offset of cluster 2, the first one, in bytes
	root        extent        // area of the root folder of FAT12 and FAT16; empty for FAT32
	rootCluster int64         // first cluster of the root folder; rootFAT if it is in a separate area
	rootNode    *node         // root folder
	table       []byte        // first copy of the table, at most maxTable bytes of it
}

// An extent is a range of the device.
type extent struct{ off, size int64 }

// Open reads the boot sector and the table of the file system that begins at r's first byte.
func Open(r budget.Reader) (*FS, error) {
	b := make([]byte, 512)
	if _, err := r.ReadAt(b, 0); err != nil {
		return nil, err
	}
	// Offsets: 11 bytes of a sector, 13 sectors of a cluster, 14 reserved sectors, 16 tables, 17 entries of the
	// root, 19 and 32 sectors, 22 and 36 sectors of a table, 44 first cluster of the root.
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
	fs := &FS{r: r, clusterSize: perCluster * sector}
	// The root area of FAT12 and FAT16 follows the tables; in a FAT32 rootEntries is 0.
	fs.root = extent{(reserved + tables*perTable) * sector, rootEntries * 32}
	fs.dataOff = fs.root.off + (fs.root.size+sector-1)/sector*sector
	fs.clusters = (sectors*sector - fs.dataOff) / fs.clusterSize
	return fs, fs.openTable(extent{reserved * sector, perTable * sector}, int64(le32(b, 44)))
}

// openTable reads the table and opens the root folder. It determines the type of the file system
// from the number of clusters, as the specification requires. root is the root's first cluster in a
// FAT32.
func (fs *FS) openTable(table extent, root int64) error {
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
		fs.rootCluster = root
	}
	fs.rootNode = &node{fs: fs, folder: true, first: fs.rootCluster}
	fs.Tree = tree.New(fs.rootNode)
	return nil
}

// tableEntry returns the table entry of cluster n. ok is false if n is invalid or beyond the part
// of the table in memory.
func (fs *FS) tableEntry(n int64) (v int64, ok bool) {
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

// nextCluster returns the cluster after n; 0 at the end of the chain. It fails if the chain leads
// to a free or bad cluster.
func (fs *FS) nextCluster(n int64) (int64, error) {
	v, ok := fs.tableEntry(n)
	// Values above the mark of a bad cluster end a chain.
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

// Usage returns size and free space in bytes, as far as the table is in memory. Free is 0 if
// counting exceeds the budget.
func (fs *FS) Usage() tree.Usage {
	free := int64(0)
	for n := int64(2); n < fs.clusters+2; n++ {
		if n%1024 == 0 && fs.r.Budget().Step(64) != nil {
			free = 0
			break
		}
		v, ok := fs.tableEntry(n)
		if !ok {
			break
		}
		if v == 0 {
			free++
		}
	}
	return tree.Usage{Size: fs.clusters * fs.clusterSize, Free: free * fs.clusterSize}
}

// le16 reads the little-endian 16-bit number at offset at of p.
func le16(p []byte, at int) uint16 { return binary.LittleEndian.Uint16(p[at:]) }

// le32 reads the little-endian 32-bit number at offset at of p.
func le32(p []byte, at int) uint32 { return binary.LittleEndian.Uint32(p[at:]) }
