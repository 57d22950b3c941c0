package vmdktest

// A state is the state of a grain in a layer.
type state uint8

const (
	absent   state = iota // the parent has the grain
	zeroed                // the layer marks the grain as zeros
	unmapped              // the guest discarded the grain (seSparse only)
	data                  // the layer has data for the grain
)

// A plan has the states of all grains of an extent. The Overlay has been updated with them.
type plan struct {
	first   int64   // sector of the disk at which the extent begins
	sectors int64   // length of the extent in sectors
	offset  int64   // position of the data in a flat file, in sectors
	grains  []state // state of each grain; nil if the extent has no file
	count   int64   // number of grains with data
}

// newPlan chooses the states of the grains of extent x, which begins at sector first of the disk, and
// updates the Overlay.
func (l *layer) newPlan(first int64, x Extent) *plan {
	p := &plan{first: first, sectors: x.Sectors, offset: x.Offset}
	if x.isZero() {
		l.want.setWriter(first, first+x.Sectors, 0)
		return p
	}
	p.grains = make([]state, (x.Sectors+l.Grain-1)/l.Grain)
	var s state
	for g := range p.grains {
		if g == 0 || l.Run < 2 || l.rnd.IntN(l.Run) == 0 {
			s = l.drawState()
		}
		p.grains[g] = s
		l.recordGrain(p, int64(g))
	}
	return p
}

// drawState returns a random state by the layer's shares. A state that the format cannot represent
// becomes absent.
func (l *layer) drawState() state {
	x := l.rnd.Float64()
	switch {
	case x < l.Data:
		return data
	case x < l.Data+l.Zero && l.hasZero():
		return zeroed
	case x >= l.Data+l.Zero && x < l.Data+l.Zero+l.Unmapped && l.Format == SESparse:
		return unmapped
	}
	return absent
}

// hasZero reports whether the format can mark a grain as zeros.
func (l *layer) hasZero() bool {
	return l.Format == SESparse || l.Format == COWD || l.Format == Sparse && l.Hosted.Zeroed
}

// recordGrain records grain g of p in the Overlay. An absent grain of a flat extent is a hole, and
// reads as zeros.
func (l *layer) recordGrain(p *plan, g int64) {
	from := p.first + g*l.Grain
	to := min(from+l.Grain, p.first+p.sectors)
	switch p.grains[g] {
	case data:
		p.count++
		l.want.setWriter(from, to, l.writer)
	case zeroed, unmapped:
		l.want.setWriter(from, to, 0)
	case absent:
		if l.Format == Flat {
			l.want.setWriter(from, to, 0)
		}
	}
}

// grainOrder returns the grains with data in the order of the file.
func (l *layer) grainOrder(p *plan) []uint32 {
	out := make([]uint32, 0, p.count)
	for g, s := range p.grains {
		if s == data {
			out = append(out, uint32(g))
		}
	}
	if !l.InOrder {
		l.rnd.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	}
	return out
}

// fillGrain fills b with grain g of p, and with garbage after the end of the extent. It returns the
// grain.
func (l *layer) fillGrain(b []byte, p *plan, g int64) []byte {
	b = b[:l.Grain*sector]
	for i := range l.Grain {
		n := g*l.Grain + i
		if n < p.sectors {
			fillSector(b[i*sector:], l.seed, l.writer, p.first+n)
			continue
		}
		rest := b[i*sector:]
		for j := range rest {
			rest[j] = garbage
		}
		break
	}
	return b
}
