package writebehind

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// fuzzSource is a rand.Source of numbers from the input of a fuzzer, two bytes each. After the
// end of the input it returns a fixed sequence.
type fuzzSource struct {
	left []byte // rest of the input
	n    uint64 // number of calls; makes each number different, because package rand may retry without end
}

const choiceLen = 2

func (c *fuzzSource) Uint64() uint64 {
	const spread = 0x9e3779b97f4a7c15 // package rand uses the highest bits
	c.n++
	if len(c.left) < choiceLen {
		return c.n * spread
	}
	v := binary.BigEndian.Uint16(c.left)
	c.left = c.left[choiceLen:]
	return (uint64(v)<<32 + c.n) * spread
}

// FuzzFile performs the writes, reads, truncations and commits that the input selects. All reads and the final image
// agree with a slice of bytes. After a crash between two steps, the image has all chunks that its manifest lists, and
// the landing can continue.
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
		const most = 1 << 10 // maximum length; longer inputs take seconds each
		if len(in) > most {
			t.Skip()
		}
		c := &fuzzSource{left: in}
		p := newFuzzTest(t, rand.New(c))
		for len(c.left) >= choiceLen {
			if p.rnd.IntN(16) == 0 {
				resumeAfterCrash(t, takeCrashState(t, p.img, p.path, p.rnd), p.rnd)
			}
			p.testFile.noError(p.doStep())
		}
		p.testFile.noError(p.Finish(t.Context()))
		p.wantImage(p.bytes)
	})
}

func newFuzzTest(t *testing.T, rnd *rand.Rand) *modelTest {
	size := 1<<20 + rnd.Int64N(2<<20)
	img := newImage(t, size)
	img.fillWithGarbage()
	log, path := newLog(t, size)
	timer := newManualTimer()
	r := openTestFile(t, img, log, path, NewPool(MinBudget), Options{CheckpointBytes: 1 << 20, AfterFunc: timer.AfterFunc})
	return &modelTest{testFile: r, model: model{bytes: make([]byte, size)}, rnd: rnd}
}
