package vmdktest

// writeFlat writes the raw bytes of an extent from its offset. The bytes before it are garbage, and
// grains without data are holes.
func (l *layer) writeFlat(f *file, p *plan) {
	for range p.offset {
		f.write(garbageSector())
	}
	buf := make([]byte, l.Grain*sector)
	for g, s := range p.grains {
		if s != data {
			continue
		}
		at := int64(g) * l.Grain
		f.skipTo(p.offset + at)
		f.write(l.fillGrain(buf, p, int64(g))[:min(l.Grain, p.sectors-at)*sector])
	}
	f.skipTo(p.offset + p.sectors)
}

// garbageSector returns a sector that no reader may return.
func garbageSector() []byte {
	b := make([]byte, sector)
	for i := range b {
		b[i] = garbage
	}
	return b
}
