package vmdktest

// state is what a grain says.
type state uint8

const (
	absent state = iota
	zeroed
	unmapped
	data
)

// plan is what one extent holds: the state of each grain. The overlay was told of it.
type plan struct {
	first   int64 // sector of the disk where the extent begins
	sectors int64
	offset  int64 // sectors into its file, for flat ones
	grains  []state
	count   int64 // of grains with data
}

// newPlan decides the grains of an extent and tells the overlay.
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

// drawState draws a state by the layer's shares, among those the format has a word for.
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

func (l *layer) hasZero() bool {
	return l.Format == SESparse || l.Format == COWD || l.Format == Sparse && l.Hosted.Zeroed
}

// recordGrain writes grain g of p into the overlay. A flat extent has every sector: what it did
// not get is zero.
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

// grainOrder returns the grains with data in the order in which the file has them.
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

// fillGrain fills b with grain g of p; what lies past the extent is garbage.
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
