package nfs

import (
	"math/rand/v2"

	"github.com/decamp/decamp/internal/disk"
)

// A program is what a host does to a file, as a copy of a disk or as anything worse: rounds
// one after the other, whose writes may overtake each other because they do not overlap. It
// is the same each time a seed is played, as a copy of the same disk is.
type program struct {
	size     int64
	rounds   []round
	inFlight int // writes; 0 for as many as ESXi has
}

// A round is writes that are in flight together, or one new size.
type round struct {
	writes []write
	resize int64 // -1: none
}

type write struct {
	disk.Range
	seed uint64 // of its bytes; 0 means zeros
}

func (w write) bytes() []byte {
	p := make([]byte, w.Len)
	if w.seed == 0 {
		return p
	}
	var key [32]byte
	for i := range 8 {
		key[i] = byte(w.seed >> (8 * i))
	}
	_, _ = rand.NewChaCha8(key).Read(p) // it does not fail
	return p
}

const (
	ioSize  = 64 << 10 // what vmkfstools writes at a time
	minDisk = 2 << 20
	maxDisk = 6 << 20
)

// newProgram makes the program of a seed.
func newProgram(seed uint64) *program {
	rnd := generator(seed, forProgram)
	p := &program{size: minDisk + rnd.Int64N(maxDisk-minDisk)/disk.SectorSize*disk.SectorSize}
	p.resize(p.size)
	p.copy(rnd)
	for range rnd.IntN(4) {
		if rnd.IntN(4) == 0 {
			p.resize(rnd.Int64N(p.size + 1))
			p.resize(p.size)
		}
		p.rewrite(rnd)
	}
	return p
}

func (p *program) resize(size int64) { p.rounds = append(p.rounds, round{resize: size}) }

// copy is what vmkfstools does: once over the disk, in several rounds. Half of the disks are
// allocated in full, so that a server may die when every chunk has been there.
func (p *program) copy(rnd *rand.Rand) {
	full := rnd.IntN(2) == 0
	r := round{resize: -1}
	end := func() {
		if len(r.writes) > 0 {
			p.rounds = append(p.rounds, r)
			r = round{resize: -1}
		}
	}
	for off := int64(0); off < p.size; off += ioSize {
		w := write{Range: disk.Range{Off: off, Len: min(ioSize, p.size-off)}}
		switch n := rnd.IntN(10); {
		case n < 2 && !full: // not allocated
			continue
		case n > 2:
			w.seed = rnd.Uint64() | 1
		}
		r.writes = append(r.writes, w)
		if rnd.IntN(30) == 0 {
			end()
		}
	}
	end()
}

// rewrite writes again here and there, aligned or not, zeros among it.
func (p *program) rewrite(rnd *rand.Rand) {
	r := round{resize: -1}
	stripe := p.size / int64(1+rnd.IntN(12))
	for off := int64(0); off+stripe <= p.size; off += stripe {
		n := 1 + rnd.Int64N(min(stripe, 300<<10))
		w := write{Range: disk.Range{Off: off + rnd.Int64N(stripe-n+1), Len: n}}
		if rnd.IntN(2) == 0 {
			w.Range = aligned(w.Range)
		}
		if w.Len > 0 && rnd.IntN(4) > 0 {
			w.seed = rnd.Uint64() | 1
		}
		if w.Len > 0 {
			r.writes = append(r.writes, w)
		}
	}
	p.rounds = append(p.rounds, r)
}

// aligned is the part of r that is whole pages.
func aligned(r disk.Range) disk.Range {
	const page = 4096
	off := (r.Off + page - 1) / page * page
	return disk.Range{Off: off, Len: max(r.End()/page*page-off, 0)}
}

// model is the disk that the program leaves.
func (p *program) model() []byte {
	b := make([]byte, p.size)
	for _, r := range p.rounds {
		if r.resize >= 0 {
			clear(b[r.resize:])
		}
		for _, w := range r.writes {
			copy(b[w.Off:], w.bytes())
		}
	}
	return b
}

// steps is how many steps a host takes that plays the program.
func (p *program) steps() (n int) {
	for _, r := range p.rounds {
		n += 1 + len(r.writes)
	}
	return n
}
