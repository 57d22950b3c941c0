package vmdktest

import "math/rand/v2"

// Random returns a chain that depends only on seed: any base, up to four deltas of any format, odd
// sizes, disks that grow, several extents, and grains in all states. It has a few MiB.
func Random(seed uint64) Chain {
	r := layerRand{rand.New(rand.NewPCG(seed, 0x6465636d70))}
	c := Chain{Seed: seed, Layers: []Layer{r.drawBase()}}
	sectors := c.Layers[0].Sectors
	for range r.IntN(5) {
		l := r.drawDelta(sectors)
		sectors = max(l.Sectors, sectors)
		c.Layers = append(c.Layers, l)
	}
	return c
}

// A layerRand returns random layers.
type layerRand struct{ *rand.Rand }

// drawBase returns a random base disk.
func (r layerRand) drawBase() Layer {
	l := r.drawLayer([]Format{Flat, Flat, Sparse, Stream})
	l.Sectors = 1 + r.Int64N(30000)
	r.splitExtents(&l)
	return l
}

// drawDelta returns a random delta on a disk of that many sectors. Its disk may be larger.
func (r layerRand) drawDelta(sectors int64) Layer {
	l := r.drawLayer([]Format{Sparse, COWD, COWD, SESparse, SESparse})
	if r.IntN(4) == 0 {
		l.Sectors = sectors + r.Int64N(20000)
	}
	if l.Sectors == 0 {
		l.Sectors = sectors
	}
	r.splitExtents(&l)
	return l
}

// drawLayer returns a layer of one of the formats, without sizes and extents.
func (r layerRand) drawLayer(formats []Format) Layer {
	l := Layer{
		Format: formats[r.IntN(len(formats))], Run: 1 + r.IntN(8), InOrder: r.IntN(4) == 0,
		Data: r.Float64() * 0.8, Zero: r.Float64() * 0.2, Unmapped: r.Float64() * 0.2,
		Layout: Layout(r.IntN(5)),
		Text:   Text{CRLF: r.IntN(4) == 0, Bare: r.IntN(4) == 0},
		Hosted: Hosted{
			Version: 1 + r.Uint32N(3), Zeroed: r.IntN(2) == 0, Redundant: r.IntN(2) == 0,
			Separate: r.IntN(2) == 0, ShortEnd: r.IntN(2) == 0, AllTables: r.IntN(2) == 0,
		},
	}
	switch l.Format {
	case Sparse, Stream:
		l.Grain = []int64{16, 32, 128, 256}[r.IntN(4)]
	case COWD:
		l.Grain = []int64{1, 1, 1, 8}[r.IntN(4)]
	}
	return l
}

// splitExtents divides one in three layers into several extents, some of them without a file.
func (r layerRand) splitExtents(l *Layer) {
	if l.Format == Stream || l.Sectors < 4096 || r.IntN(3) > 0 {
		return
	}
	for left := l.Sectors; left > 0; {
		x := Extent{Sectors: min(left, 512+r.Int64N(8000))}
		if r.IntN(6) == 0 {
			x.Type = "ZERO"
		}
		if x.Type == "" && l.Format == Flat && r.IntN(3) == 0 {
			x.Offset = r.Int64N(100)
		}
		l.Extents = append(l.Extents, x)
		left -= x.Sectors
	}
}
