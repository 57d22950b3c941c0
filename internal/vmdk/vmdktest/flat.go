package vmdktest

// flat writes the raw bytes of an extent, from its offset on. Before it is garbage, and
// what the plan left out is a hole.
func (l *layer) flat(f *file, p *plan) {
	for range p.offset {
		f.write(garbageSector())
	}
	buf := make([]byte, l.Grain*sector)
	for g, s := range p.grains {
		if s != data {
			continue
		}
		at := int64(g) * l.Grain
		f.skip(p.offset + at)
		f.write(l.grain(buf, p, int64(g))[:min(l.Grain, p.sectors-at)*sector])
	}
	f.skip(p.offset + p.sectors)
}

func garbageSector() []byte {
	b := make([]byte, sector)
	for i := range b {
		b[i] = garbage
	}
	return b
}
