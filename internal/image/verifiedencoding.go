package image

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/bitmap"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/manifest"
)

// A record lists the verified chunks. Its file contains
//
//	 0  magic, 16 bytes
//	16  BLAKE3 of the manifest's identity (Info.String), 32 bytes
//	48  uvarint: base, the offset of the disk's first byte in the file
//	 …  verified chunks: the number of runs, and for each the number of other chunks before it and
//	    its length; all uvarints
//	 …  pieces of 64 KiB that were zeros, likewise
//	 …  BLAKE3 of all previous bytes, 32 bytes
type record struct {
	bits  *bitmap.Bitmap // verified chunks
	base  int64          // offset in the file of the disk's first byte when chunks were read back
	zeros *bitmap.Bitmap // pieces of the verified chunks that were only zeros
}

// newRecord returns a record without chunks.
func newRecord(info manifest.Info) record {
	return record{bits: bitmap.New(info.Size, manifest.ChunkSize), zeros: bitmap.New(info.Size, pieceSize)}
}

const (
	provenMagic = "decamp proven 2\n" // first 16 bytes of the file
	sumLen      = 32                  // length of a BLAKE3 hash in bytes
)

// encodeRecord returns the content of the file.
func (p *VerifiedRecord) encodeRecord() []byte {
	b := append([]byte(provenMagic), identityOf(p.info)...)
	b = binary.AppendUvarint(b, uint64(p.base))
	b = appendRuns(b, p.bits, p.info.Size, manifest.ChunkSize)
	b = appendRuns(b, p.zeros, p.info.Size, pieceSize)
	sum := manifest.HashOf(b)
	return append(b, sum[:]...)
}

// appendRuns appends the runs of set bits to b. The bits are of grains of a disk of size bytes.
func appendRuns(b []byte, bits *bitmap.Bitmap, size, grain int64) []byte {
	var runs []byte
	n, done := uint64(0), int64(0) // done counts encoded grains
	for next := bits.Next(disk.Range{Len: size}); !next.Empty(); n++ {
		first, end := next.Off/grain, (next.End()+grain-1)/grain
		runs = binary.AppendUvarint(runs, uint64(first-done))
		runs = binary.AppendUvarint(runs, uint64(end-first))
		done = end
		next = bits.Next(disk.Range{Off: next.End(), Len: size - next.End()})
	}
	return append(binary.AppendUvarint(b, n), runs...)
}

// identityOf returns the hash that binds a record to its disk.
func identityOf(info manifest.Info) []byte {
	sum := manifest.HashOf(fmt.Appendf(nil, "%q %d %q", info.Disk, info.Size, info.Source))
	return sum[:]
}

// errProven is the error for any invalid record. The caller then treats the list as empty.
var errProven = fault.New(fault.Corrupt, "the record of verified chunks is damaged, or belongs to another image")

// parseProven parses the output of encodeRecord. Anything else is fault.Corrupt.
func parseProven(b []byte, info manifest.Info) (r record, err error) {
	head := len(provenMagic) + sumLen
	if len(b) < head+sumLen || !bytes.HasPrefix(b, []byte(provenMagic)) {
		return r, errProven
	}
	body, sum := b[:len(b)-sumLen], b[len(b)-sumLen:]
	want := manifest.HashOf(body)
	if !bytes.Equal(sum, want[:]) || !bytes.Equal(body[len(provenMagic):head], identityOf(info)) {
		return r, errProven
	}
	base, n := binary.Uvarint(body[head:])
	if n <= 0 || base > math.MaxInt64 {
		return r, errProven
	}
	r = newRecord(info)
	r.base = int64(base)
	body, err = takeRuns(body[head+n:], r.bits, info.Size, manifest.ChunkSize)
	if err == nil {
		body, err = takeRuns(body, r.zeros, info.Size, pieceSize)
	}
	if err == nil && len(body) > 0 {
		err = errProven
	}
	return r, err
}

// takeRuns parses the output of appendRuns at the beginning of b, and returns the rest of b.
func takeRuns(b []byte, bits *bitmap.Bitmap, size, grain int64) ([]byte, error) {
	runs, n := binary.Uvarint(b)
	if n <= 0 {
		return nil, errProven
	}
	b = b[n:]
	all := (size + grain - 1) / grain
	for at := int64(0); runs > 0; runs-- {
		gap, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, errProven
		}
		count, m := binary.Uvarint(b[n:])
		room := uint64(all - at)
		if m <= 0 || count == 0 || gap > room || count > room-gap {
			return nil, errProven
		}
		first := at + int64(gap)
		at = first + int64(count)
		bits.Set(disk.Range{Off: first * grain, Len: min(at*grain, size) - first*grain})
		b = b[n+m:]
	}
	return b, nil
}
