package vmdktest

// writeCOWD writes a COWD extent: a header of four sectors, the directory at sector 4, then tables of
// 4096 entries and grains in mixed order, as in a delta that grew.
func (l *layer) writeCOWD(f *file, p *plan) {
	tables := make([][]uint32, (len(p.grains)+4095)/4096)
	for g, s := range p.grains {
		if s == absent {
			continue
		}
		if tables[g/4096] == nil {
			tables[g/4096] = make([]uint32, 4096)
		}
		if s == zeroed {
			tables[g/4096][g%4096] = 1
		}
	}
	pieces := l.listPieces(p, tables)
	entries, end := l.placePieces(pieces, tables, 4+directorySectors(len(tables)))
	f.write(l.cowdHeader(p, len(tables), end))
	f.write(wordBytes(entries))
	f.padSector()
	buf := make([]byte, l.Grain*sector)
	for _, piece := range pieces {
		if piece < 0 {
			f.write(wordBytes(tables[-piece-1]))
		} else {
			f.write(l.fillGrain(buf, p, piece))
		}
	}
}

// listPieces returns the pieces after the directory in the order of the file. Grains have their number,
// and tables have numbers from -1 downwards.
func (l *layer) listPieces(p *plan, tables [][]uint32) []int64 {
	var out []int64
	for i, t := range tables {
		if t != nil {
			out = append(out, int64(-i-1))
		}
	}
	for _, g := range l.grainOrder(p) {
		out = append(out, int64(g))
	}
	if !l.InOrder {
		l.rnd.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	}
	return out
}

// placePieces assigns a sector to each piece from sector at, and enters grains in tables. It returns
// the directory and the sector at the end of the file.
func (l *layer) placePieces(pieces []int64, tables [][]uint32, at int64) (entries []uint32, end int64) {
	entries = make([]uint32, len(tables))
	for _, piece := range pieces {
		if piece < 0 {
			entries[-piece-1] = uint32(at)
			at += 32
			continue
		}
		tables[piece/4096][piece%4096] = uint32(at)
		at += l.Grain
	}
	return entries, at
}

// cowdHeader returns the four sectors of the header. end is the first free sector of the file.
func (l *layer) cowdHeader(p *plan, tables int, end int64) []byte {
	h := make([]byte, 4*sector)
	copy(h, "COWD")
	le.PutUint32(h[4:], 1)
	le.PutUint32(h[8:], 3)
	le.PutUint32(h[12:], uint32(p.sectors))
	le.PutUint32(h[16:], uint32(l.Grain))
	le.PutUint32(h[20:], 4)
	le.PutUint32(h[24:], uint32(tables))
	le.PutUint32(h[28:], uint32(end))
	le.PutUint32(h[1060:], 1)
	return h
}
