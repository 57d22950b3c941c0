package vsphere

import (
	"cmp"
	"encoding/binary"
	"io"
	"slices"
	"sync"
)

// deltaFile is the data file of a delta as bytes. It is generated from its layer at the first read, and
// again when the layer has changed. It implements content.
type deltaFile struct {
	d     *vdisk
	layer *layer
	make  func(capacity int64, y *layer) *sparseFile

	mu      sync.Mutex
	file    *sparseFile
	version int64
}

func (f *deltaFile) currentBytes() *sparseFile {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.layer.mu.RLock()
	version := f.layer.version
	f.layer.mu.RUnlock()
	if f.file == nil || f.version != version {
		f.file, f.version = f.make(f.d.size.Load(), f.layer), version
	}
	return f.file
}

func (f *deltaFile) Size() int64                             { return f.currentBytes().size }
func (f *deltaFile) Close() error                            { return nil }
func (f *deltaFile) ReadAt(p []byte, off int64) (int, error) { return f.currentBytes().ReadAt(p, off) }

func (f *deltaFile) nextData(off int64) (start, end int64, err error) {
	size := f.Size()
	if off >= size {
		return size, size, nil
	}
	return off, size, nil // its allocation is not reported
}

// sparseFile is a file made of pieces; the gaps read as zeros.
type sparseFile struct {
	size   int64
	pieces []filePiece // pieces in order of their offsets, without overlaps
}

// filePiece is bytes at an offset: data, or a page to be computed.
type filePiece struct {
	off    int64
	length int64
	data   []byte
	page   page
	number int64 // number of the page
	noise  []byte
}

func (s *sparseFile) addPiece(off int64, data []byte) {
	s.pieces = append(s.pieces, filePiece{off: off, length: int64(len(data)), data: data})
}

func (s *sparseFile) addPage(off, number int64, p page, noise []byte) {
	s.pieces = append(s.pieces, filePiece{off: off, length: pageSize, page: p, number: number, noise: noise})
}

// finish sorts the pieces and sets the size.
func (s *sparseFile) finish(size int64) *sparseFile {
	slices.SortFunc(s.pieces, func(a, b filePiece) int { return cmp.Compare(a.off, b.off) })
	s.size = size
	return s
}

// ReadAt is part of io.ReaderAt.
func (s *sparseFile) ReadAt(p []byte, off int64) (int, error) {
	n, eof := clipRead(p, off, s.size)
	p = p[:n]
	clear(p)
	first, _ := slices.BinarySearchFunc(s.pieces, off, func(c filePiece, at int64) int { return cmp.Compare(c.off+c.length, at+1) })
	for _, c := range s.pieces[first:] {
		if c.off >= off+int64(n) {
			break
		}
		data := c.data
		if data == nil {
			var whole [pageSize]byte
			c.page.fillBytes(whole[:], c.noise, c.number)
			data = whole[:]
		}
		from := max(0, off-c.off)
		copy(p[max(0, c.off-off):], data[from:])
	}
	return n, eof
}

var _ io.ReaderAt = (*sparseFile)(nil)

const sector = 512

func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }

// The COWD format (vmfsSparse): a header, a directory, and tables and grains of one sector
// each in the order they were first written. Every number is a little-endian uint32 of
// sectors. Source: the layout that Xen Orchestra, qemu and dissect read.
const (
	cowdHeader   = 4    // sectors
	cowdEntries  = 4096 // entries of a table: 2 MiB of disk
	cowdTable    = cowdEntries * 4
	cowdSpan     = cowdEntries * sector
	cowdZero     = 1 // a grain that reads as zeros, whatever the parent holds
	pageSectors  = pageSize / sector
	cowdVersion  = 1
	cowdFlags    = 3
	pagesInTable = cowdSpan / pageSize
)

// makeCOWD writes a layer as a COWD file.
func makeCOWD(capacity int64, y *layer) *sparseFile {
	numbers, pages, _ := y.copyPages()
	le, s := binary.LittleEndian, &sparseFile{}
	entries := (capacity + cowdSpan - 1) / cowdSpan
	directory := make([]byte, roundUp(entries*4, sector))
	free := cowdHeader + int64(len(directory))/sector // the next sector that is free
	for _, t := range tableOrder(numbers, pagesInTable) {
		table := make([]byte, cowdTable)
		le.PutUint32(directory[t.index*4:], uint32(free))
		at := free * sector
		free += cowdTable / sector
		for _, number := range t.pages {
			inside := (number - t.index*pagesInTable) * pageSectors
			for i := range int64(pageSectors) {
				if (number*pageSectors+i)*sector >= capacity {
					break
				}
				entry := uint32(cowdZero)
				if !pages[number].isZero() {
					entry = uint32(free + i)
				}
				le.PutUint32(table[(inside+i)*4:], entry)
			}
			if !pages[number].isZero() {
				s.addPage(free*sector, number, pages[number], y.noise)
				free += pageSectors
			}
		}
		s.addPiece(at, table)
	}
	header := make([]byte, cowdHeader*sector)
	copy(header, "COWD")
	for i, v := range []int64{cowdVersion, cowdFlags, capacity / sector, 1, cowdHeader, entries, free} {
		le.PutUint32(header[4+4*i:], uint32(v))
	}
	s.addPiece(0, header)
	s.addPiece(cowdHeader*sector, directory)
	return s.finish(free * sector)
}

// pageTable is the pages that one table of a delta's file covers.
type pageTable struct {
	index int64
	pages []int64
}

// tableOrder groups pages by table. Tables come in no order, as those of a guest that writes
// here and there do: a reader must not rely on one.
func tableOrder(numbers []int64, perTable int64) (all []pageTable) {
	for _, n := range numbers {
		if len(all) == 0 || all[len(all)-1].index != n/perTable {
			all = append(all, pageTable{index: n / perTable})
		}
		last := &all[len(all)-1]
		last.pages = append(last.pages, n)
	}
	slices.SortFunc(all, func(a, b pageTable) int { return cmp.Compare(mixBits(uint64(a.index)), mixBits(uint64(b.index))) })
	return all
}

// The seSparse format: constant and volatile header, journal, directory, tables, a bitmap of
// used grains, a map back from grain to place, grains of 4 KiB. Every number is a
// little-endian uint64, of sectors where it is a place. Source: qemu's reader, and one real
// file.
const (
	seMagic      = 0x00000000CAFEBABE
	seVersion    = 0x0000000200000001
	seVolatile   = 0x00000000CAFECAFE
	seJournal    = 0x00000000DEAFC0DE
	seGrain      = 8    // sectors
	seTable      = 64   // sectors
	seEntries    = 4096 // entries of a table: 16 MiB of disk
	seRegion     = 2048 // sectors; regions begin at multiples of it
	seUnmapped   = 1 << 60
	seZero       = 2 << 60
	seAllocated  = 3 << 60
	seDirectory  = 1 << 60 // an entry of the directory that is used
	seJournalAt  = 2       // its header
	seSequenceNo = 1
)

// seIndex rotates a grain's index the way entries hold it.
func seIndex(index uint64) uint64 { return index>>12 | index&0xfff<<48 }

// makeSESparse writes a layer as an seSparse file, its journal clean.
func makeSESparse(capacity int64, y *layer) *sparseFile {
	numbers, pages, _ := y.copyPages()
	tables := tableOrder(numbers, seEntries)
	covered := (capacity + seEntries*pageSize - 1) / (seEntries * pageSize)
	used := int64(0)
	for _, n := range numbers {
		if !pages[n].isZero() {
			used++
		}
	}
	r := layoutSESparse(covered, max(1, used))
	le, s := binary.LittleEndian, &sparseFile{}
	directory, bitmap, backmap := make([]byte, covered*8), make([]byte, (used+7)/8), make([]byte, used*8)
	next := uint64(0)
	for i, t := range tables {
		le.PutUint64(directory[t.index*8:], seDirectory|uint64(i))
		table := make([]byte, seTable*sector)
		for _, number := range t.pages {
			entry := uint64(seZero)
			switch zero := pages[number].isZero(); {
			case zero && number%2 == 1:
				entry = seUnmapped | seIndex(next) // the grain it once had stays in the entry
			case !zero:
				entry = seAllocated | seIndex(next)
				s.addPage((r.grains+int64(next)*seGrain)*sector, number, pages[number], y.noise)
				bitmap[next/8] |= 1 << (next % 8)
				le.PutUint64(backmap[next*8:], 1<<60|seIndex(uint64(number)))
				next++
			}
			le.PutUint64(table[(number%seEntries)*8:], entry)
		}
		s.addPiece((r.tables+int64(i)*seTable)*sector, table)
	}
	s.addPiece(0, r.headerBytes(capacity))
	s.addPiece(r.directory*sector, directory)
	s.addPiece(r.bitmap*sector, bitmap)
	s.addPiece(r.backmap*sector, backmap)
	return s.finish((r.grains + max(1, used)*seGrain) * sector)
}

// seLayout is where the regions of an seSparse file begin, in sectors.
type seLayout struct {
	directory, tables, bitmap, backmap, grains int64
	tableSectors                               int64
	grainSectors                               int64
}

func layoutSESparse(covered, used int64) seLayout {
	region := func(bytes int64) int64 { return roundUp(max(1, bytes), seRegion*sector) / sector }
	r := seLayout{directory: 2 * seRegion, tableSectors: region(covered * seTable * sector), grainSectors: roundUp(used*seGrain, seRegion)}
	r.tables = r.directory + region(covered*8)
	r.bitmap = r.tables + r.tableSectors
	r.backmap = r.bitmap + region((used+7)/8)
	r.grains = r.backmap + region(used*8)
	return r
}

// headerBytes writes both headers and that of the journal.
func (r seLayout) headerBytes(capacity int64) []byte {
	le, p := binary.LittleEndian, make([]byte, 4*sector)
	for i, v := range []uint64{seMagic, seVersion, uint64(capacity / sector), seGrain, seTable} {
		le.PutUint64(p[i*8:], v)
	}
	for i, v := range []int64{
		1, 1, seJournalAt, 2, seRegion, seRegion, r.directory, r.tables - r.directory, r.tables, r.tableSectors,
		r.bitmap, r.backmap - r.bitmap, r.backmap, r.grains - r.backmap, r.grains, r.grainSectors,
	} {
		le.PutUint64(p[80+i*8:], uint64(v))
	}
	le.PutUint64(p[sector:], seVolatile)
	le.PutUint64(p[sector+16:], seSequenceNo)
	le.PutUint64(p[seJournalAt*sector:], seJournal)
	le.PutUint64(p[seJournalAt*sector+8:], seSequenceNo)
	return p
}
