package vmdktest

import "slices"

// A regions is the layout of a seSparse file.
type regions struct {
	journal, directory, tables, bitmap, backmap, grains region
}

// A region is a part of the file.
type region struct{ at, sectors int64 }

// mib is the unit of regions in sectors, 1 MiB.
const mib = 2048

// regionsOf returns the layout of a file. directory is the number of directory entries, tables the
// number of grain tables, and physical the number of grains.
func regionsOf(directory, tables, physical int64) regions {
	next := int64(mib)
	take := func(bytes int64) region {
		r := region{next, max((bytes+mib*sector-1)/(mib*sector), 1) * mib}
		next += r.sectors
		return r
	}
	return regions{
		journal:   take(1),
		directory: take(directory * 8),
		tables:    take(tables * 64 * sector),
		bitmap:    take(physical/8 + 1),
		backmap:   take(physical * 8),
		grains:    take(physical * 8 * sector),
	}
}

// writeSESparse writes a seSparse extent. Tables are numbered in the order of their first write. Grains
// have numbers far above 4095, so that tests detect a wrong rotation in an entry.
func (l *layer) writeSESparse(f *file, p *plan) {
	order := l.grainOrder(p)
	space := int64(len(order)) + 6000 // the free ones are spread among them
	where := l.scatterGrains(order, space)
	spans := int64(len(p.grains)+4095) / 4096
	r := regionsOf(spans, spans, space)
	tables := l.tablesOf(p, where)
	f.write(l.sesparseHeader(p, r))
	f.write(volatileHeader(len(tables.numbered)))
	f.write(journalHeader())
	f.skipTo(r.directory.at)
	f.write(quadBytes(tables.directory))
	f.skipTo(r.tables.at)
	for _, t := range tables.numbered {
		f.write(quadBytes(t))
	}
	f.skipTo(r.bitmap.at)
	f.write(bitmapOf(where, space))
	f.skipTo(r.backmap.at)
	f.write(quadBytes(backmapOf(where, space)))
	l.writeScattered(f, p, where, r.grains.at)
	f.skipTo(r.grains.at + r.grains.sectors)
}

// scatterGrains assigns to each grain of order a number below space. The numbers ascend, because order
// is the order of the file.
func (l *layer) scatterGrains(order []uint32, space int64) []placedGrain {
	where := make([]placedGrain, 0, len(order))
	free := space - int64(len(order))
	at := int64(0)
	for i, g := range order {
		if gap := free / int64(len(order)-i); gap > 0 {
			n := l.rnd.Int64N(2*gap + 1)
			n = min(n, free)
			at, free = at+n, free-n
		}
		where = append(where, placedGrain{g, uint32(at)})
		at++
	}
	return where
}

// A placedGrain is a grain with its number on the disk (logical) and in the file (physical).
type placedGrain struct{ logical, physical uint32 }

// A seTables has the grain tables by number, and the directory that refers to them.
type seTables struct {
	numbered  [][]uint64 // grain tables in the order of their numbers
	directory []uint64   // directory entries: type 1 and the number of the table; 0 for no table
}

// tablesOf returns the tables for the states of p and the placed grains.
func (l *layer) tablesOf(p *plan, where []placedGrain) seTables {
	bySpan := make([][]uint64, (len(p.grains)+4095)/4096)
	put := func(g int, entry uint64) {
		if bySpan[g/4096] == nil {
			bySpan[g/4096] = make([]uint64, 4096)
		}
		bySpan[g/4096][g%4096] = entry
	}
	for g, s := range p.grains {
		switch s {
		case zeroed:
			put(g, 0x2<<60)
		case unmapped:
			put(g, 0x1<<60|rotateNumber(uint64(l.rnd.Uint32N(1<<20))))
		}
	}
	for _, w := range where {
		put(int(w.logical), 0x3<<60|rotateNumber(uint64(w.physical)))
	}
	return l.numberTables(bySpan)
}

// numberTables assigns numbers to tables in random order, or in the order of the disk with InOrder.
func (l *layer) numberTables(bySpan [][]uint64) seTables {
	t := seTables{directory: make([]uint64, len(bySpan))}
	for i, span := range l.rnd.Perm(len(bySpan)) {
		if l.InOrder {
			span = i
		}
		if bySpan[span] != nil {
			t.directory[span] = 0x1<<60 | uint64(len(t.numbered))
			t.numbered = append(t.numbered, bySpan[span])
		}
	}
	return t
}

// rotateNumber encodes a grain number: its low twelve bits go above the others.
func rotateNumber(n uint64) uint64 { return n>>12 | n&0xfff<<48 }

// writeScattered writes the grains at their places. at is the sector of the grain region.
func (l *layer) writeScattered(f *file, p *plan, where []placedGrain, at int64) {
	buf := make([]byte, l.Grain*sector)
	for _, w := range where {
		f.skipTo(at + int64(w.physical)*l.Grain)
		f.write(l.fillGrain(buf, p, int64(w.logical)))
	}
}

// bitmapOf returns the bitmap of used grains, of space bits.
func bitmapOf(where []placedGrain, space int64) []byte {
	b := make([]byte, (space+7)/8)
	for _, w := range where {
		b[w.physical/8] |= 1 << (w.physical % 8)
	}
	return b
}

// backmapOf returns the table that maps grains of the file to grains of the disk.
func backmapOf(where []placedGrain, space int64) []uint64 {
	b := make([]uint64, space)
	for _, w := range where {
		b[w.physical] = 0x1<<60 | rotateNumber(uint64(w.logical))
	}
	return b
}

// quadBytes returns 64-bit integers in little-endian order.
func quadBytes(t []uint64) []byte {
	b := make([]byte, 0, 8*len(t))
	for _, q := range t {
		b = le.AppendUint64(b, q)
	}
	return b
}

// sesparseHeader returns the constant header: magic, version 2.1, sizes, flags, and the regions.
func (l *layer) sesparseHeader(p *plan, r regions) []byte {
	return sectorOf(0xCAFEBABE, 2<<32|1, uint64(p.sectors), uint64(l.Grain), 64, 0, 0, 0, 0, 0,
		1, 1, 2, 2,
		uint64(r.journal.at), uint64(r.journal.sectors),
		uint64(r.directory.at), uint64(r.directory.sectors),
		uint64(r.tables.at), uint64(r.tables.sectors),
		uint64(r.bitmap.at), uint64(r.bitmap.sectors),
		uint64(r.backmap.at), uint64(r.backmap.sectors),
		uint64(r.grains.at), uint64(r.grains.sectors))
}

// volatileHeader returns the volatile header with that many tables and an empty journal.
func volatileHeader(tables int) []byte { return sectorOf(0xCAFECAFE, uint64(tables), 36, 0) }

// journalHeader returns the two sectors of an empty journal.
func journalHeader() []byte { return slices.Concat(sectorOf(0xDEAFC0DE, 36, 1), sectorOf(1)) }

// sectorOf returns a sector that begins with words and continues with zeros.
func sectorOf(words ...uint64) []byte {
	b := quadBytes(words)
	return append(b, make([]byte, sector-len(b))...)
}
