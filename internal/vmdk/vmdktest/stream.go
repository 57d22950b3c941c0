package vmdktest

import (
	"bytes"
	"compress/zlib"
)

// A Layout is the layout of a streamOptimized file, which depends on its writer.
type Layout uint8

const (
	AtEnd     Layout = iota // ESXi, ovftool: markers, directory at the end, footer
	UpFront                 // Workstation: directory and tables in front, end-of-stream
	Both                    // converters: directory named in front, yet markers for all
	Padded                  // qemu-img: directories in front, no end-of-stream, zeros behind
	Scattered               // qemu-img convert -W: the same, with the grains in any order
)

// Marker types.
const (
	markEnd    = 0 // end of the stream
	markTable  = 1 // a grain table follows
	markDir    = 2 // the grain directory follows
	markFooter = 3 // the footer follows
)

// writeStream writes a streamOptimized file.
func (l *layer) writeStream(f *file, p *plan) {
	l.Hosted.Version = max(l.Hosted.Version, 3)
	w := &streamWriter{layer: l, f: f, p: p, tables: make([][]uint32, (len(p.grains)+511)/512)}
	w.zip, _ = zlib.NewWriterLevel(&w.packed, 1+int(l.seed%9)) // the level is in range
	switch l.Layout {
	case UpFront, Padded, Scattered:
		w.writeInFront()
	default:
		w.withMarkers()
	}
}

// A streamWriter writes one streamOptimized extent.
type streamWriter struct {
	*layer
	f      *file        // file that is written
	p      *plan        // states of the grains
	tables [][]uint32   // grain tables by number, filled as grains are written; nil for a table without grains
	packed bytes.Buffer // zlib data of the current grain
	zip    *zlib.Writer // compressor into packed
}

// writeInFront leaves space for the directory and its tables before the grains, and fills it in at the
// end.
func (w *streamWriter) writeInFront() {
	text := []byte(w.descriptorText())
	flags, rgd := uint32(0x30001), int64(0)
	dir := directory{at: 1 + textSectors(text), tables: w.allTables()}
	if w.Layout != UpFront {
		flags, rgd = 0x30003, dir.at
		dir.at += dir.sectorCount()
	}
	overhead := (dir.at + dir.sectorCount() + 127) / 128 * 128
	w.f.write(w.kdmvHeader(w.p, flags, textSectors(text), rgd, dir.at, overhead, 1))
	w.f.write(text)
	w.f.skipTo(overhead)
	w.tables = dir.tables
	w.InOrder = w.Layout != Scattered
	for _, g := range w.grainOrder(w.p) {
		w.writeGrain(int64(g))
	}
	if w.Layout == UpFront {
		w.writeMarker(0, markEnd)
	} else {
		w.f.skipTo((w.f.nextSector()/128 + 1) * 128)
	}
	w.patchDirectory(dir, dir.at)
	if rgd != 0 {
		w.patchDirectory(dir, rgd)
	}
}

// textSectors returns the number of sectors of a descriptor.
func textSectors(text []byte) int64 { return (int64(len(text)) + sector - 1) / sector }

// patchDirectory writes the directory at sector at, and its tables after it.
func (w *streamWriter) patchDirectory(dir directory, at int64) {
	next := at + directorySectors(len(dir.tables))
	var entries []uint32
	for _, t := range dir.tables {
		entries = append(entries, uint32(next))
		w.f.writeSectorAt(wordBytes(t), next)
		next += 4
	}
	w.f.writeSectorAt(wordBytes(entries), at)
}

// allTables returns an empty table for each entry of the directory.
func (w *streamWriter) allTables() [][]uint32 {
	tables := make([][]uint32, len(w.tables))
	for i := range tables {
		tables[i] = make([]uint32, 512)
	}
	return tables
}

// withMarkers writes a table after the grains of each table, then the directory and the footer.
func (w *streamWriter) withMarkers() {
	const overhead, unknown = 128, -1
	text := []byte(w.descriptorText())
	w.f.write(w.kdmvHeader(w.p, 0x30001, textSectors(text), 0, unknown, overhead, 1))
	w.f.write(text)
	w.f.skipTo(overhead)
	entries := make([]uint32, len(w.tables))
	for span := range w.tables {
		entries[span] = w.writeSpan(span)
	}
	w.writeMarker(directorySectors(len(entries)), markDir)
	gd := w.f.nextSector()
	w.f.write(wordBytes(entries))
	w.f.padSector()
	header := w.kdmvHeader(w.p, 0x30001, textSectors(text), 0, gd, overhead, 1)
	w.writeMarker(1, markFooter)
	w.f.write(header)
	w.writeMarker(0, markEnd)
	if w.Layout == Both {
		w.f.writeSectorAt(header, 0)
	}
}

// writeSpan writes the grains of table n and then the table. It returns the sector of the table, or 0
// if it has no grains.
func (w *streamWriter) writeSpan(n int) uint32 {
	for g := n * 512; g < min((n+1)*512, len(w.p.grains)); g++ {
		if w.p.grains[g] != data {
			continue
		}
		if w.tables[n] == nil {
			w.tables[n] = make([]uint32, 512)
		}
		w.writeGrain(int64(g))
	}
	if w.tables[n] == nil {
		return 0
	}
	w.writeMarker(4, markTable)
	at := w.f.nextSector()
	w.f.write(wordBytes(w.tables[n]))
	return uint32(at)
}

// writeGrain writes one compressed grain. The last grain of a disk of odd size is padded with zeros or,
// with ShortEnd, ends with the disk.
func (w *streamWriter) writeGrain(g int64) {
	b := w.layer.fillGrain(make([]byte, w.Grain*sector), w.p, g)
	n := min(w.Grain, w.p.sectors-g*w.Grain) * sector
	clear(b[n:])
	if w.Hosted.ShortEnd {
		b = b[:n]
	}
	w.packed.Reset()
	w.zip.Reset(&w.packed)
	w.zip.Write(b) // into memory: cannot fail
	w.zip.Close()
	w.tables[g/512][g%512] = uint32(w.f.nextSector())
	head := le.AppendUint64(nil, uint64(g*w.Grain))
	w.f.write(le.AppendUint32(head, uint32(w.packed.Len())))
	w.f.write(w.packed.Bytes())
	w.f.padSector()
}

// writeMarker writes a metadata marker of one sector. sectors is the number of sectors that belong to
// it.
func (w *streamWriter) writeMarker(sectors int64, kind uint32) {
	m := make([]byte, sector)
	le.PutUint64(m, uint64(sectors))
	le.PutUint32(m[12:], kind)
	w.f.write(m)
}
