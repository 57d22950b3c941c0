// Package ntfs reads files and folders of untrusted NTFS volumes.
//
// It supports the master file table with its fixups, attribute lists, resident data, runs, sparse and LZNT1
// compressed data, folders as B+ trees, and the volume's label, flags, free space and journal state. It does
// not support encrypted files, compression behind a reparse point (CompactOS), links and junctions, which
// are not followed, and the contents of the journal: changes just before a crash are not visible.
//
// Names are compared as in Windows, by the volume's $UpCase.
//
// The work is bounded: finding a file takes at most MaxReads reads of one record or index block, for any
// content, and reading a piece of it reads only that piece, or the compressed 64 KiB around it.
//
// The layout is that of the Linux-NTFS project's documentation and of Microsoft's "How NTFS works".
package ntfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"

	"github.com/decamp/decamp/internal/guest/budget"
)

// MaxReads limits the records and index blocks that one call reads to find a file or list a folder.
const MaxReads = 16384

// maxBytes limits the size of a volume and the end of a run within its value, in bytes. The product of a
// number of clusters and their size then fits int64, also with another offset added. Windows supports
// 2^53 bytes.
const maxBytes = 1 << 60

// ErrNotFound means that the file does not exist. It is fs.ErrNotExist.
var ErrNotFound = fs.ErrNotExist

// errCorrupt is wrapped by errors about invalid data on the volume.
var errCorrupt = errors.New("corrupt")

// Numbers of records that every volume has.
const (
	recordMFT    = 0  // $MFT, the master file table itself
	recordLog    = 2  // $LogFile, the journal
	recordVolume = 3  // $Volume: label, version and flags
	recordRoot   = 5  // root folder
	recordBitmap = 6  // $Bitmap: clusters in use
	recordUpCase = 10 // $UpCase: upper case letters
)

// A Volume is an NTFS file system. Its methods and the trees that it returns share a read counter; they
// are not safe for concurrent use.
type Volume struct {
	r           budget.Reader // volume from its first byte, with the budget of the examination
	clusterSize int64         // bytes of a cluster, a power of two from 512 to 2 MiB
	clusters    int64         // number of clusters
	recordSize  int64         // bytes of a record, a power of two from 512 to 64 KiB
	mft         *stream       // data of the master file table
	upcase      []uint16      // upper case of each UTF-16 unit
	reads       int           // records and index blocks read in the current call, at most MaxReads
	partBytes   int64         // bytes that are charged for the parts of attributes and their records
}

// Open opens the volume that begins at r's first byte. It reads the boot sector, the record of the
// master file table, and $UpCase.
func Open(r budget.Reader) (*Volume, error) {
	boot := make([]byte, 512)
	if _, err := r.ReadAt(boot, 0); err != nil {
		return nil, err
	}
	v := &Volume{r: r}
	lcn, err := v.parseGeometry(boot)
	if err != nil {
		return nil, err
	}
	if err := v.openMFT(lcn); err != nil {
		return nil, fmt.Errorf("master file table: %w", err)
	}
	if err := v.readUpCase(); err != nil {
		return nil, fmt.Errorf("$UpCase: %w", err)
	}
	return v, nil
}

// parseGeometry sets the sizes from the boot sector and returns the first cluster of the MFT. It fails
// if a size is outside the range that NTFS allows.
func (v *Volume) parseGeometry(boot []byte) (int64, error) {
	if string(boot[3:11]) != "NTFS    " {
		return 0, errors.New("no NTFS boot sector")
	}
	// Offsets in the boot sector: 0x0b bytes of a sector, 0x0d sectors of a cluster, 0x28 sectors of the
	// volume, 0x30 first cluster of the MFT, 0x40 size of a record.
	sector := int64(le16(boot, 0x0b))
	if sector < 256 || sector > 4096 || sector&(sector-1) != 0 {
		return 0, fmt.Errorf("sectors of %d bytes", sector)
	}
	v.clusterSize = sector * clusterSectors(boot[0x0d])
	if v.clusterSize < 512 || v.clusterSize > 2<<20 || v.clusterSize&(v.clusterSize-1) != 0 {
		return 0, fmt.Errorf("clusters of %d bytes", v.clusterSize)
	}
	sectors, lcn := int64(le64(boot, 0x28)), int64(le64(boot, 0x30))
	v.clusters = sectors / (v.clusterSize / sector)
	if sectors < 0 || sectors > maxBytes/sector || v.clusters == 0 || lcn <= 0 || lcn >= v.clusters {
		return 0, fmt.Errorf("%d sectors, and the master file table at cluster %d", sectors, lcn)
	}
	v.recordSize = v.parseSize(boot[0x40])
	if v.recordSize < 512 || v.recordSize > 64<<10 || v.recordSize&(v.recordSize-1) != 0 {
		return 0, fmt.Errorf("records of %d bytes", v.recordSize)
	}
	return lcn, nil
}

// clusterSectors decodes the sectors of a cluster. Values above 128 are negative powers of two, for
// clusters of more than 64 KiB.
func clusterSectors(b byte) int64 {
	if b > 0x80 {
		return 1 << min(256-int(b), 30)
	}
	return int64(b)
}

// parseSize decodes a size in bytes: a number of clusters, or a negative power of two in bytes.
func (v *Volume) parseSize(b byte) int64 {
	if n := int8(b); n < 0 {
		return 1 << min(-int(n), 30)
	}
	return int64(b) * v.clusterSize
}

// openMFT opens the master file table, whose first cluster is lcn. If its run list is spread over
// several records, the part in the first record locates the others.
func (v *Volume) openMFT(lcn int64) error {
	raw := make([]byte, v.recordSize)
	if _, err := v.r.ReadAt(raw, lcn*v.clusterSize); err != nil {
		return err
	}
	rec, err := parseRecord(raw)
	if err != nil {
		return err
	}
	first, ok := rec.findAttribute(typeData, "")
	if !ok {
		return fmt.Errorf("%w: no data", errCorrupt)
	}
	// The first part of the run list is sufficient to read the records with the other parts.
	if v.mft, err = v.newStream([]attribute{first}); err != nil {
		return err
	}
	if _, listed := rec.findAttribute(typeList, ""); !listed {
		return nil
	}
	defer v.mft.release()
	v.mft, err = v.openStream(rec, typeData, "")
	return err
}

// readRecord returns record num of the master file table with its fixups applied.
func (v *Volume) readRecord(num int64) (*record, error) {
	if err := v.countRead(); err != nil {
		return nil, err
	}
	if num < 0 || num >= v.mft.size/v.recordSize {
		return nil, fmt.Errorf("%w: record %d of %d", errCorrupt, num, v.mft.size/v.recordSize)
	}
	// v.mft.readAt reads only clusters of the MFT, so no recursion occurs here.
	raw := make([]byte, v.recordSize)
	if err := v.mft.readAt(raw, num*v.recordSize); err != nil {
		return nil, fmt.Errorf("record %d: %w", num, err)
	}
	rec, err := parseRecord(raw)
	if err != nil {
		return nil, fmt.Errorf("record %d: %w", num, err)
	}
	rec.number = num
	return rec, v.step(len(rec.attributes))
}

// countRead charges one read of a record or index block to the budget. It fails after MaxReads reads.
func (v *Volume) countRead() error {
	if err := v.step(1); err != nil {
		return err
	}
	if v.reads++; v.reads > MaxReads {
		return budget.Exceeded("more than %d records would be read", MaxReads)
	}
	return nil
}

// step charges n steps to the budget of the examination.
func (v *Volume) step(n int) error { return v.r.Budget().Step(int64(n)) }

// le16 reads the little-endian 16-bit number at offset at of p.
func le16(p []byte, at int) uint16 { return binary.LittleEndian.Uint16(p[at:]) }

// le32 reads the little-endian 32-bit number at offset at of p.
func le32(p []byte, at int) uint32 { return binary.LittleEndian.Uint32(p[at:]) }

// le64 reads the little-endian 64-bit number at offset at of p.
func le64(p []byte, at int) uint64 { return binary.LittleEndian.Uint64(p[at:]) }
