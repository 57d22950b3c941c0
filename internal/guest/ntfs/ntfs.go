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
// The layout is that of the Linux-NTFS project's documentation and of Microsoft's
// "How NTFS works".
package ntfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"

	"github.com/decamp/decamp/internal/guest/budget"
)

// MaxReads bounds the records and index blocks read to find one file or list one folder.
const MaxReads = 16384

// ErrNotFound means that there is no such file.
var ErrNotFound = fs.ErrNotExist

var errCorrupt = errors.New("corrupt")

// Numbers of the records every volume has.
const (
	recordMFT    = 0
	recordLog    = 2
	recordVolume = 3
	recordRoot   = 5
	recordBitmap = 6
	recordUpCase = 10
)

// A Volume is an NTFS file system. Its methods are not safe for concurrent use.
type Volume struct {
	r           budget.Reader
	clusterSize int64
	clusters    int64
	recordSize  int64
	mft         *stream
	upcase      []uint16
	reads       int   // records and index blocks read for the current call
	parked      int64 // bytes of records that pieces of an attribute are read from
}

// Open reads the boot sector, the master file table's own record and $UpCase of the
// volume that starts at r's first byte.
func Open(r budget.Reader) (*Volume, error) {
	boot := make([]byte, 512)
	if _, err := r.ReadAt(boot, 0); err != nil {
		return nil, err
	}
	v := &Volume{r: r}
	lcn, err := v.geometry(boot)
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

// geometry takes the sizes from the boot sector and returns where the MFT begins.
func (v *Volume) geometry(boot []byte) (int64, error) {
	if string(boot[3:11]) != "NTFS    " {
		return 0, errors.New("no NTFS boot sector")
	}
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
	if sectors < 0 || sectors > 1<<52 || v.clusters == 0 || lcn <= 0 || lcn >= v.clusters {
		return 0, fmt.Errorf("%d sectors, and the master file table at cluster %d", sectors, lcn)
	}
	v.recordSize = v.scaled(boot[0x40])
	if v.recordSize < 512 || v.recordSize > 64<<10 || v.recordSize&(v.recordSize-1) != 0 {
		return 0, fmt.Errorf("records of %d bytes", v.recordSize)
	}
	return lcn, nil
}

// clusterSectors reads the sectors of a cluster: beyond 128 it is a negative power of two.
func clusterSectors(b byte) int64 {
	if b > 0x80 {
		return 1 << min(256-int(b), 30)
	}
	return int64(b)
}

// scaled reads a size that is a number of clusters, or a negative power of two in bytes.
func (v *Volume) scaled(b byte) int64 {
	if n := int8(b); n < 0 {
		return 1 << min(-int(n), 30)
	}
	return int64(b) * v.clusterSize
}

// openMFT reads the table's own record. Where its runs do not fit into that, the rest is
// found through those that do.
func (v *Volume) openMFT(lcn int64) error {
	raw := make([]byte, v.recordSize)
	if _, err := v.r.ReadAt(raw, lcn*v.clusterSize); err != nil {
		return err
	}
	rec, err := parseRecord(raw)
	if err != nil {
		return err
	}
	first, ok := rec.first(typeData, "")
	if !ok {
		return fmt.Errorf("%w: no data", errCorrupt)
	}
	if v.mft, err = v.streamOf([]attribute{first}); err != nil {
		return err
	}
	if _, listed := rec.first(typeList, ""); !listed {
		return nil
	}
	v.mft, err = v.stream(rec, typeData, "")
	return err
}

// record reads record number num of the master file table.
func (v *Volume) record(num int64) (*record, error) {
	if err := v.spend(); err != nil {
		return nil, err
	}
	if num < 0 || num > 1<<47 || (num+1)*v.recordSize > v.mft.size {
		return nil, fmt.Errorf("%w: record %d of %d", errCorrupt, num, v.mft.size/v.recordSize)
	}
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

// spend counts one read of a record or of an index block.
func (v *Volume) spend() error {
	if err := v.step(1); err != nil {
		return err
	}
	if v.reads++; v.reads > MaxReads {
		return budget.Exceeded("more than %d records would be read", MaxReads)
	}
	return nil
}

func (v *Volume) step(n int) error { return v.r.Budget().Step(int64(n)) }

func le16(p []byte, at int) uint16 { return binary.LittleEndian.Uint16(p[at:]) }
func le32(p []byte, at int) uint32 { return binary.LittleEndian.Uint32(p[at:]) }
func le64(p []byte, at int) uint64 { return binary.LittleEndian.Uint64(p[at:]) }
