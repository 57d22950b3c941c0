package nfs

import (
	"math/rand/v2"

	"github.com/decamp/decamp/internal/disk"
)

// A program is the sequence of writes that a host makes to a file: rounds one after the other. The writes of
// a round do not overlap, so their order does not matter. A seed always gives the same program.
type program struct {
	size     int64
	rounds   []round
	inFlight int // writes in flight; 0: as many as ESXi has
}

// A round is a set of writes that are in flight together, or one change of size.
type round struct {
	writes []write
	resize int64 // new size; -1: no change
}

type write struct {
	disk.Range
	seed uint64 // seed of the content; 0: zeros
}

func (w write) content() []byte {
	p := make([]byte, w.Len)
	if w.seed == 0 {
		return p
	}
	var key [32]byte
	for i := range 8 {
		key[i] = byte(w.seed >> (8 * i))
	}
	_, _ = rand.NewChaCha8(key).Read(p) // never fails
	return p
}

const (
	ioSize  = 64 << 10 // size of a write of vmkfstools
	minDisk = 2 << 20
	maxDisk = 6 << 20
)

// newProgram returns the program of a seed.
func newProgram(seed uint64) *program {
	rnd := newRand(seed, forProgram)
	p := &program{size: minDisk + rnd.Int64N(maxDisk-minDisk)/disk.SectorSize*disk.SectorSize}
	p.addResize(p.size)
	p.addCopyRounds(rnd)
	for range rnd.IntN(4) {
		if rnd.IntN(4) == 0 {
			p.addResize(rnd.Int64N(p.size + 1))
			p.addResize(p.size)
		}
		p.addRewriteRound(rnd)
	}
	return p
}

func (p *program) addResize(size int64) { p.rounds = append(p.rounds, round{resize: size}) }

// addCopyRounds adds the writes of vmkfstools: one pass over the disk, in several rounds. Half of the disks are
// fully allocated, so that a server may die after every chunk has been written.
func (p *program) addCopyRounds(rnd *rand.Rand) {
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

// addRewriteRound adds a round that overwrites parts of the disk, aligned or not, some with zeros.
func (p *program) addRewriteRound(rnd *rand.Rand) {
	r := round{resize: -1}
	stripe := p.size / int64(1+rnd.IntN(12))
	for off := int64(0); off+stripe <= p.size; off += stripe {
		n := 1 + rnd.Int64N(min(stripe, 300<<10))
		w := write{Range: disk.Range{Off: off + rnd.Int64N(stripe-n+1), Len: n}}
		if rnd.IntN(2) == 0 {
			w.Range = alignToPages(w.Range)
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

// alignToPages returns the part of r that consists of whole pages.
func alignToPages(r disk.Range) disk.Range {
	const page = 4096
	off := (r.Off + page - 1) / page * page
	return disk.Range{Off: off, Len: max(r.End()/page*page-off, 0)}
}

// expectedDisk returns the content of the disk after the program.
func (p *program) expectedDisk() []byte {
	b := make([]byte, p.size)
	for _, r := range p.rounds {
		if r.resize >= 0 {
			clear(b[r.resize:])
		}
		for _, w := range r.writes {
			copy(b[w.Off:], w.content())
		}
	}
	return b
}

// stepCount returns the number of steps in the program.
func (p *program) stepCount() (n int) {
	for _, r := range p.rounds {
		n += 1 + len(r.writes)
	}
	return n
}
