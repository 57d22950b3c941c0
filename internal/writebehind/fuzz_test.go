package writebehind

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// choices are random numbers that a fuzzer chooses, two bytes each, as long as it has any.
type choices struct {
	left []byte
	n    uint64 // of numbers: no two are the same, or package rand might look for others for ever
}

const choiceLen = 2

func (c *choices) Uint64() uint64 {
	const spread = 0x9e3779b97f4a7c15 // what is asked for are the highest bits
	c.n++
	if len(c.left) < choiceLen {
		return c.n * spread
	}
	v := binary.BigEndian.Uint16(c.left)
	c.left = c.left[choiceLen:]
	return (uint64(v)<<32 + c.n) * spread
}

// FuzzFile writes, reads, cuts, commits and waits as the input says: all reads are what a
// plain slice of bytes holds, so is the image in the end, and whatever a crash leaves
// between any two steps holds what its manifest lists and can be landed on.
func FuzzFile(f *testing.F) {
	rnd := rand.New(rand.NewPCG(12, 1))
	for _, n := range []int{3, 60, 300, 1000} {
		seed := make([]byte, n)
		for i := range seed {
			seed[i] = byte(rnd.Uint32())
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		const most = 1 << 10 // bytes: longer inputs take seconds each
		if len(in) > most {
			t.Skip()
		}
		c := &choices{left: in}
		p := newFuzzed(t, rand.New(c))
		for len(c.left) >= choiceLen {
			if p.rnd.IntN(16) == 0 {
				resume(t, picture(t, p.img, p.path, p.rnd), p.rnd)
			}
			p.rig.must(p.step())
		}
		p.rig.must(p.Finish(t.Context()))
		p.wantImage(p.bytes)
	})
}

func newFuzzed(t *testing.T, rnd *rand.Rand) *player {
	size := 1<<20 + rnd.Int64N(2<<20)
	img := newImage(t, size)
	img.dirty()
	log, path := newLog(t, size)
	timer := newManual()
	r := openRig(t, img, log, path, NewPool(MinBudget), Options{CheckpointBytes: 1 << 20, AfterFunc: timer.AfterFunc})
	return &player{rig: r, model: model{bytes: make([]byte, size)}, rnd: rnd}
}
