package vmdk

import (
	"context"
	"encoding/binary"
	"slices"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

const (
	seMagic         = 0x00000000CAFEBABE // first eight bytes of a seSparse file, little-endian
	seVolatileMagic = 0x00000000CAFECAFE // first eight bytes of the volatile header, little-endian
	seVersion       = 0x0000000200000001 // version 2.1, the only known one

	seGrain      = 8 * disk.SectorSize  // size of a grain in bytes; all known files have this size
	seTableSize  = 64 * disk.SectorSize // size of a grain table in bytes
	seEntries    = seTableSize / 8      // number of entries of a grain table
	seMostSize   = 64 << 40             // largest disk in bytes; the directory numbers tables with 32 bits
	seTypeShift  = 60                   // position of the type in a table entry
	seTypeAbsent = 0                    // the parent has the grain
	seTypeUnmap  = 1                    // the guest discarded the grain: zeros, although the entry still has its old position
	seTypeZero   = 2                    // the grain is zeros
	seTypeData   = 3                    // the entry has the number of the grain in the file
)

// A seHeader is the constant header of a delta on VMFS6 ("seSparse"), with the relevant part of its
// volatile header. The format is only known from QEMU and from files of ESXi hosts, so all differences
// are refused. Sizes and offsets are in bytes.
type seHeader struct {
	capacity  int64 // size of the disk
	volatile  int64 // offset of the volatile header
	directory int64 // offset of the grain directory
	tables    int64 // offset of the first grain table; tables are numbered from here
	grains    int64 // offset of the first grain; grains are numbered from here
}

// parseSESparse parses the first sector of a seSparse file called name. Errors are fault.Corrupt or
// fault.Unsupported.
func parseSESparse(name string, b []byte) (*seHeader, error) {
	if len(b) < disk.SectorSize || binary.LittleEndian.Uint64(b) != seMagic {
		return nil, corruptFile(name, "it has no seSparse header")
	}
	if err := checkSE(name, b); err != nil {
		return nil, err
	}
	h := &seHeader{}
	for _, field := range []struct {
		at int
		to *int64
	}{{16, &h.capacity}, {80, &h.volatile}, {128, &h.directory}, {144, &h.tables}, {192, &h.grains}} {
		n := sectorCount(b[field.at:])
		if n <= 0 {
			return nil, corruptFile(name, "the seSparse header has no sensible number at offset %d", field.at)
		}
		*field.to = n * disk.SectorSize
	}
	if h.capacity > seMostSize {
		return nil, corruptFile(name, "the seSparse header has a capacity of %d bytes, more than ESXi allows", h.capacity)
	}
	return h, nil
}

// checkSE fails with fault.Unsupported if a field of the header differs from its only known value.
func checkSE(name string, b []byte) error {
	for _, want := range []struct {
		at    int
		value uint64
		what  string
	}{
		{8, seVersion, "version"},
		{24, seGrain / disk.SectorSize, "grain size"},
		{32, seTableSize / disk.SectorSize, "grain table size"},
		{40, 0, "flags"},
		{48, 0, "reserved field 1"},
		{56, 0, "reserved field 2"},
		{64, 0, "reserved field 3"},
		{72, 0, "reserved field 4"},
	} {
		if got := binary.LittleEndian.Uint64(b[want.at:]); got != want.value {
			return unsupportedFile(name, "seSparse %s is %#x, only %#x is known", want.what, got, want.value)
		}
	}
	if slices.ContainsFunc(b[208:disk.SectorSize], func(c byte) bool { return c != 0 }) {
		return unsupportedFile(name, "the seSparse header has fields that are not known")
	}
	return nil
}

// A seSparse reads the tables of a seSparse extent.
type seSparse struct {
	*seHeader
	file *file // file with the headers, the tables and the grains
}

// newSESparse returns the layer of a seSparse file that begins with head, and its grain size in bytes.
// A file whose journal must be replayed is fault.Conflict.
func newSESparse(ctx context.Context, f *file, head []byte, cache *tableCache) (layer, int64, error) {
	h, err := parseSESparse(f.name, head)
	if err != nil {
		return nil, 0, err
	}
	s := seSparse{h, f}
	if err := s.checkJournal(ctx); err != nil {
		return nil, 0, err
	}
	const span = seGrain * seEntries
	m := &grainMap{
		file: f, cache: cache, bytes: h.capacity, grain: seGrain, entries: seEntries,
		tables: (h.capacity + span - 1) / span, readPiece: s.directoryPiece, readTable: s.readTable,
	}
	if end := h.directory + m.tables*8; end > f.size() {
		return nil, 0, corruptFile(f.name, "its directory ends at %d, the file at %d", end, f.size())
	}
	return m, seGrain, nil
}

// checkJournal fails if the tables are valid only after a replay of the journal, which only ESXi can
// do.
func (s seSparse) checkJournal(ctx context.Context) error {
	b := make([]byte, disk.SectorSize)
	if err := s.file.readWhole(ctx, b, s.volatile); err != nil {
		return err
	}
	if magic := binary.LittleEndian.Uint64(b); magic != seVolatileMagic {
		return corruptFile(s.file.name, "the volatile header at %d begins with %#x, not %#x", s.volatile, magic, uint64(seVolatileMagic))
	}
	if binary.LittleEndian.Uint64(b[24:]) != 0 {
		return fault.New(fault.Conflict, "%s: its journal must be replayed first: the delta is in use, or its host crashed", s.file.name).
			WithHint("take another snapshot of the VM, which closes this delta, or power the VM on and off again; then copy the file again")
	}
	return nil
}

// directoryPiece returns n entries of the directory from entry first: the file offsets of grain tables,
// 0 for a missing table.
func (s seSparse) directoryPiece(ctx context.Context, first, n int64) (table, error) {
	t, err := s.file.readRegion(ctx, region{at: s.directory, width: 8}, first, n)
	if err != nil {
		return nil, err
	}
	for i, e := range t {
		switch {
		case e == 0:
		case e>>32 != 1<<28:
			return nil, corruptFile(s.file.name, "entry %d of the directory is %#x", first+int64(i), uint64(e))
		default:
			t[i] = s.tables + e&(1<<32-1)*seTableSize
		}
	}
	return t, nil
}

// readTable reads grain table n at file offset at, and converts its entries to file offsets.
func (s seSparse) readTable(ctx context.Context, n, at int64) (table, error) {
	t, err := s.file.readRegion(ctx, region{at: at, width: 8}, 0, seEntries)
	if err != nil {
		return nil, err
	}
	for i, e := range t {
		at, ok := s.grainOffset(uint64(e))
		if !ok {
			return nil, corruptFile(s.file.name, "grain %d of table %d has entry %#x", i, n, uint64(e))
		}
		t[i] = at
	}
	return t, nil
}

// grainOffset decodes an entry of a grain table: 4 bits of type, the lowest 12 bits of the grain's
// number, then its upper 48 bits. It returns false for an invalid entry or a grain outside the file.
func (s seSparse) grainOffset(e uint64) (at int64, ok bool) {
	switch e >> seTypeShift {
	case seTypeAbsent:
		return absentGrain, e == 0
	case seTypeUnmap, seTypeZero:
		return zeroGrain, true
	case seTypeData:
		number := e>>48&0xfff | e&(1<<48-1)<<12
		most := uint64(s.file.size()-s.grains+seGrain-1) / seGrain
		return s.grains + int64(number)*seGrain, s.grains < s.file.size() && number < most
	}
	return 0, false
}
