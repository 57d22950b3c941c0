package vmdk

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

// memFiles is a Files whose files are in memory.
type memFiles map[string][]byte

func (m memFiles) Open(_ context.Context, name string) (disk.Source, error) {
	b, ok := m[name]
	if !ok {
		return nil, fault.New(fault.NotFound, "%s is not there", name).WithHint("make it")
	}
	return bytesSource(b), nil
}

// bytesSource is a disk.Source of bytes in memory.
type bytesSource []byte

func (b bytesSource) Size() int64       { return int64(len(b)) }
func (b bytesSource) Hints() disk.Hints { return disk.Hints{} }
func (b bytesSource) Close() error      { return nil }

func (b bytesSource) ReadAt(ctx context.Context, p []byte, off int64) error {
	if err := disk.CheckRange(b.Size(), disk.Range{Off: off, Len: int64(len(p))}); err != nil {
		return err
	}
	copy(p, b[off:])
	return ctx.Err()
}

func (b bytesSource) Extents(_ context.Context, r disk.Range) ([]disk.Extent, error) {
	return []disk.Extent{{Range: r}}, nil
}

// putUints writes uint32 and uint64 values in little-endian order at an offset.
func putUints(b []byte, at int, values ...any) {
	for _, v := range values {
		at += copy(b[at:], binary.LittleEndian.AppendUint64(nil, toUint64(v))[:binary.Size(v)])
	}
}

func toUint64(v any) uint64 {
	if n, ok := v.(uint32); ok {
		return uint64(n)
	}
	return v.(uint64)
}

// Layout of the file of miniSparse: 63 sectors in grains of 4 KiB, and two tables of 4 entries.
// Sector 1 is the redundant directory, sectors 3 and 4 are its tables. Sector 2 is the primary
// directory, sectors 5 and 6 are its tables. Grains start at sector 8.
const (
	miniGrain    = 8 * disk.SectorSize
	miniCapacity = 63 // disk size in sectors
)

func miniSparse(flags uint32) []byte {
	b := make([]byte, 8*disk.SectorSize+3*miniGrain)
	copy(b, "KDMV")
	putUints(b, 4, uint32(2), flags, uint64(miniCapacity), uint64(8), uint64(0), uint64(0), uint32(4), uint64(1), uint64(2), uint64(8))
	putUints(b, 1*disk.SectorSize, uint32(3), uint32(4))
	putUints(b, 2*disk.SectorSize, uint32(5), uint32(6))
	for _, t := range []int{3, 5} {
		putUints(b, t*disk.SectorSize, uint32(16), uint32(0), uint32(8), uint32(1)) // data, absent, data, zero
		putUints(b, (t+1)*disk.SectorSize, uint32(0), uint32(0), uint32(0), uint32(24))
	}
	for i := range 3 {
		fillBytes(b[8*disk.SectorSize+i*miniGrain:][:miniGrain], byte('a'+i))
	}
	return b
}

// miniContent returns the content of the disk of miniSparse.
func miniContent() []byte {
	b := make([]byte, 64*disk.SectorSize)
	fillBytes(b[:miniGrain], 'b')
	fillBytes(b[2*miniGrain:3*miniGrain], 'a')
	fillBytes(b[7*miniGrain:], 'c')
	return b[:miniCapacity*disk.SectorSize]
}

func fillBytes(b []byte, c byte) {
	for i := range b {
		b[i] = c
	}
}

// readAll opens a disk and reads all of it.
func readAll(t *testing.T, files Files, name string) ([]byte, *Disk) {
	t.Helper()
	d, err := Open(t.Context(), files, name, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	b := make([]byte, d.Size())
	if err := d.ReadAt(t.Context(), b, 0); err != nil {
		t.Fatal(err)
	}
	return b, d
}

// openRead opens a disk, reads all of it and returns the error.
func openRead(t *testing.T, files Files, name string) error {
	t.Helper()
	d, err := Open(t.Context(), files, name, Options{})
	if err != nil {
		return err
	}
	defer d.Close()
	return d.ReadAt(t.Context(), make([]byte, d.Size()), 0)
}

// descriptorText returns a descriptor with the given extent lines.
func descriptorText(cid, parent CID, hint string, lines ...string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Disk DescriptorFile\nversion=1\nCID=%08x\nparentCID=%08x\n", cid, parent)
	if hint != "" {
		fmt.Fprintf(&b, "parentFileNameHint=%q\n", hint)
	}
	for _, l := range lines {
		fmt.Fprintln(&b, l)
	}
	return b.Bytes()
}

// patched returns a copy of b with values written at an offset.
func patched(b []byte, at int, values ...any) []byte {
	b = slices.Clone(b)
	putUints(b, at, values...)
	return b
}

// miniCOWD returns a COWD file of a disk of 5000 sectors. Sector 0 is filled with a, sector 1 is zeros,
// sector 4999 is filled with b. The directory is at sector 4, its tables are at sectors 5 and 38.
func miniCOWD() []byte {
	b := make([]byte, 71*disk.SectorSize)
	copy(b, "COWD")
	putUints(b, 4, uint32(1), uint32(3), uint32(5000), uint32(1), uint32(4), uint32(2), uint32(71))
	putUints(b, 4*disk.SectorSize, uint32(5), uint32(38))
	putUints(b, 5*disk.SectorSize, uint32(37), uint32(1))
	fillBytes(b[37*disk.SectorSize:][:disk.SectorSize], 'a')
	putUints(b, 38*disk.SectorSize+4*(4999-4096), uint32(70))
	fillBytes(b[70*disk.SectorSize:], 'b')
	return b
}

func miniCOWDContent() []byte {
	b := make([]byte, 5000*disk.SectorSize)
	fillBytes(b[:disk.SectorSize], 'a')
	fillBytes(b[4999*disk.SectorSize:], 'b')
	return b
}

// miniSESparse returns an seSparse file of a disk of 16 MiB and one sector. Grains 0 to 3 are data,
// unmapped, zero and absent, the last grain is data. The directory is at sector 3, tables start at
// sector 4, grains at sector 192.
func miniSESparse() []byte {
	b := make([]byte, 192*disk.SectorSize+2*4096)
	putUints(b, 0, uint64(0xCAFEBABE), uint64(0x200000001), uint64(1<<15+1), uint64(8), uint64(64))
	putUints(b, 80, uint64(1), uint64(1))
	putUints(b, 128, uint64(3), uint64(1), uint64(4), uint64(128))
	putUints(b, 192, uint64(192), uint64(16))
	putUints(b, disk.SectorSize, uint64(0xCAFECAFE), uint64(2))
	putUints(b, 3*disk.SectorSize, uint64(0x1000000000000001), uint64(0x1000000000000000))
	putUints(b, (4+64)*disk.SectorSize, uint64(0x3001000000000000), uint64(0x1000000000000005), uint64(0x2000000000000000), uint64(0))
	putUints(b, 4*disk.SectorSize, uint64(0x3000000000000000))
	fillBytes(b[192*disk.SectorSize:][:4096], 'z')
	fillBytes(b[192*disk.SectorSize+4096:], 'a')
	return b
}

func miniSESparseContent() []byte {
	b := make([]byte, 16<<20+disk.SectorSize)
	fillBytes(b[:4096], 'a')
	fillBytes(b[16<<20:], 'z')
	return b
}
