package vmdktest

import "encoding/binary"

// Hosted is the layout of a hosted sparse file.
type Hosted struct {
	Version   uint32 // 1 to 3; default 1
	Zeroed    bool   // flag 0x4: entry 1 is a zero grain
	Redundant bool   // flag 0x2: a second directory with separate tables
	Separate  bool   // the descriptor is in a separate file
	ShortEnd  bool   // the file ends with the disk, within the last grain
	AllTables bool   // write tables of spans without a grain as well
}

// le is the byte order of all VMDK files.
var le = binary.LittleEndian

// A directory is a grain directory followed by its tables.
type directory struct {
	at     int64      // sector of the directory
	tables [][]uint32 // tables of 512 entries; nil for a missing table
}

// sectorCount returns the number of sectors of the directory and its tables.
func (d *directory) sectorCount() int64 {
	n := directorySectors(len(d.tables))
	for _, t := range d.tables {
		if t != nil {
			n += 4
		}
	}
	return n
}

// directorySectors returns the number of sectors of a directory with that many entries.
func directorySectors(entries int) int64 { return (int64(entries)*4 + sector - 1) / sector }

// writeTo writes the directory and the tables after it.
func (d *directory) writeTo(f *file) {
	f.skipTo(d.at)
	next := d.at + directorySectors(len(d.tables))
	var entries []byte
	for _, t := range d.tables {
		if t == nil {
			entries = le.AppendUint32(entries, 0)
			continue
		}
		entries = le.AppendUint32(entries, uint32(next))
		next += 4
	}
	f.write(entries)
	for _, t := range d.tables {
		if t != nil {
			f.padSector()
			f.write(wordBytes(t))
		}
	}
	f.padSector()
}

// wordBytes returns the integers of a table in little-endian order.
func wordBytes(t []uint32) []byte {
	b := make([]byte, 0, 4*len(t))
	for _, w := range t {
		b = le.AppendUint32(b, w)
	}
	return b
}

// writeHosted writes a hosted sparse extent:
//
//	header | descriptor at 1 | redundant directory and tables at 21 | directory and tables | grains
func (l *layer) writeHosted(f *file, p *plan) {
	order := l.orderHosted(p)
	main := directory{at: 21, tables: l.emptyTables(p)}
	second := directory{at: 21, tables: main.tables} // the same tables, stored twice
	if l.Hosted.Redundant {
		main.at += second.sectorCount()
	}
	first := main.at + main.sectorCount()
	first = (first + l.Grain - 1) / l.Grain * l.Grain
	for i, g := range order {
		main.tables[g/512][g%512] = uint32(first + int64(i)*l.Grain)
	}
	f.write(l.hostedHeader(p, main.at, second.at, first))
	if l.isEmbedded() {
		f.write([]byte(l.descriptorText()))
	}
	if l.Hosted.Redundant {
		second.writeTo(f)
	}
	main.writeTo(f)
	f.skipTo(first)
	l.writeGrains(f, p, order)
}

// orderHosted returns the grains in file order. With ShortEnd, the last grain of the disk is also the
// last in the file.
func (l *layer) orderHosted(p *plan) []uint32 {
	order := l.grainOrder(p)
	last := uint32(len(p.grains) - 1)
	for i, g := range order {
		if l.Hosted.ShortEnd && g == last {
			order[i], order[len(order)-1] = order[len(order)-1], g
		}
	}
	return order
}

// emptyTables returns tables for p that contain only its zeroed grains.
func (l *layer) emptyTables(p *plan) [][]uint32 {
	tables := make([][]uint32, (len(p.grains)+511)/512)
	for g, s := range p.grains {
		if tables[g/512] == nil && (s != absent || l.Hosted.AllTables) {
			tables[g/512] = make([]uint32, 512)
		}
		if s == zeroed {
			tables[g/512][g%512] = 1
		}
	}
	return tables
}

// writeGrains writes the grains in the given order.
func (l *layer) writeGrains(f *file, p *plan, order []uint32) {
	buf := make([]byte, l.Grain*sector)
	for i, g := range order {
		b := l.fillGrain(buf, p, int64(g))
		if l.Hosted.ShortEnd && i == len(order)-1 {
			b = b[:min(l.Grain, p.sectors-int64(g)*l.Grain)*sector]
		}
		f.write(b)
	}
}

// hostedHeader returns the header sector. gd, rgd and overhead are sectors of the directory, the
// redundant directory and the first grain.
func (l *layer) hostedHeader(p *plan, gd, rgd, overhead int64) []byte {
	flags := uint32(0x1)
	if l.Hosted.Redundant {
		flags |= 0x2
	}
	if l.Hosted.Zeroed {
		flags |= 0x4
	}
	if !l.Hosted.Redundant {
		rgd = 0
	}
	return l.kdmvHeader(p, flags, 20, rgd, gd, overhead, 0)
}

// kdmvHeader returns the header sector. gd is all ones if the directory is at the end.
func (l *layer) kdmvHeader(p *plan, flags uint32, descriptorSize, rgd, gd, overhead int64, compress uint16) []byte {
	h := make([]byte, sector)
	copy(h, "KDMV")
	le.PutUint32(h[4:], max(l.Hosted.Version, 1))
	le.PutUint32(h[8:], flags)
	le.PutUint64(h[12:], uint64(p.sectors))
	le.PutUint64(h[20:], uint64(l.Grain))
	if l.isEmbedded() {
		le.PutUint64(h[28:], 1)
		le.PutUint64(h[36:], uint64(descriptorSize))
	}
	le.PutUint32(h[44:], 512)
	le.PutUint64(h[48:], uint64(rgd))
	le.PutUint64(h[56:], uint64(gd))
	le.PutUint64(h[64:], uint64(overhead))
	copy(h[73:], "\n \r\n")
	le.PutUint16(h[77:], compress)
	return h
}
