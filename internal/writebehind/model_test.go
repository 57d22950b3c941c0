package writebehind

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/decamp/decamp/internal/disk"
)

// A model is what a disk must be: its bytes, and how many of them there are.
type model struct {
	bytes []byte // zeros from size on
	size  int64
}

func (m *model) write(p []byte, off int64) {
	copy(m.bytes[off:], p)
	m.size = max(m.size, off+int64(len(p)))
}

func (m *model) truncate(size int64) {
	if size < m.size {
		clear(m.bytes[size:m.size])
	}
	m.size = size
}

// A player does random things to a rig, and the same to a model.
type player struct {
	*rig
	model
	rnd *rand.Rand
}

// step does one thing.
func (p *player) step() error {
	switch n := p.rnd.IntN(100); {
	case n < 70:
		return p.writeSome()
	case n < 88:
		return p.readSome()
	case n < 92:
		return p.truncateSome()
	case n < 96:
		return p.Commit(p.t.Context())
	case n < 98:
		return p.reset(p.rnd.Int64N(int64(len(p.bytes)) + 1))
	}
	p.checkpoints.onTimer()
	return nil
}

func (p *player) writeSome() error {
	n := p.length()
	off := p.rnd.Int64N(int64(len(p.bytes)) - n + 1)
	if p.rnd.IntN(3) > 0 {
		off &^= 4095
	}
	b := bytes.Repeat([]byte{byte(p.rnd.IntN(5))}, int(n)) // some of it zeros
	p.model.write(b, off)
	return p.rig.write(b, off)
}

// length favours what streams bring, and what breaks things.
func (p *player) length() int64 {
	size := int64(len(p.bytes))
	switch p.rnd.IntN(4) {
	case 0:
		return min(MaxBuffer, size)
	case 1:
		return min(64<<10, size)
	case 2:
		return p.rnd.Int64N(min(MaxBuffer, size)) + 1
	}
	return p.rnd.Int64N(min(5000, size)) + 1
}

func (p *player) readSome() error {
	off := p.rnd.Int64N(int64(len(p.bytes)))
	got := make([]byte, p.rnd.Int64N(2<<20)+1)
	n, err := p.ReadAt(p.t.Context(), got, off)
	if err == io.EOF {
		err = nil
	}
	if err != nil {
		return err
	}
	want := p.bytes[min(off, p.model.size):min(off+int64(len(got)), p.model.size)]
	if n != len(want) || !bytes.Equal(got[:n], want) {
		return fmt.Errorf("a read of %d bytes at %d differs from the model", len(got), off)
	}
	return nil
}

// truncateSome grows mostly: what was cut is soon only zeros.
func (p *player) truncateSome() error {
	size := p.model.size + p.rnd.Int64N(int64(len(p.bytes))-p.model.size+1)
	if p.rnd.IntN(3) == 0 {
		size = p.rnd.Int64N(int64(len(p.bytes)) + 1)
	}
	return p.reset(size)
}

func (p *player) reset(size int64) error {
	p.truncate(size)
	return p.Truncate(p.t.Context(), size)
}

// reorder makes calls of an image overtake each other.
func reorder(seed uint64) func(string, disk.Range) error {
	var mu sync.Mutex
	rnd := rand.New(rand.NewPCG(seed, 7))
	return func(string, disk.Range) error {
		mu.Lock()
		n := rnd.IntN(40)
		mu.Unlock()
		for range n {
			runtime.Gosched()
		}
		return nil
	}
}

func TestFileIsWhatTheModelIs(t *testing.T) {
	seeds := uint64(4)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { playModel(t, seed) })
	}
}

func playModel(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 3))
	size := 3<<20 + rnd.Int64N(4<<20)
	img := newImage(t, size)
	img.before = reorder(seed)
	img.dirty()
	log, path := newLog(t, size)
	timer := newManual()
	r := openRig(t, img, log, path, NewPool(MinBudget), Options{CheckpointBytes: 6 << 20, AfterFunc: timer.AfterFunc})
	p := &player{rig: r, model: model{bytes: make([]byte, size)}, rnd: rnd}
	for i := range 200 {
		if err := p.step(); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
	}
	r.must(r.Finish(t.Context()))
	r.wantImage(p.bytes)
}

// Many write at once, each its own stripes of the same chunks, and find what they wrote.
func TestWritersOfTheSameChunksDoNotDisturbEachOther(t *testing.T) {
	const size, stripe, writers = 4 << 20, 24 << 10, 4
	r := newRig(t, size, Options{CheckpointBytes: 2 << 20})
	r.img.before = reorder(1)
	r.must(r.Truncate(t.Context(), size))
	want := make([]byte, size)
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			rnd := rand.New(rand.NewPCG(9, uint64(w)))
			for range 150 {
				n := rnd.IntN(size/stripe/writers)*writers + w
				own := want[n*stripe : (n+1)*stripe]
				got := make([]byte, stripe)
				if _, err := r.ReadAt(t.Context(), got, int64(n)*stripe); err != nil || !bytes.Equal(got, own) {
					t.Errorf("stripe %d is not what was written to it: %v", n, err)
					return
				}
				copy(own, fill(stripe, byte(rnd.IntN(255)+1)))
				if err := r.write(own, int64(n)*stripe); err != nil {
					t.Error(err)
					return
				}
				if rnd.IntN(20) == 0 {
					if err := r.Commit(t.Context()); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	group.Wait()
	r.must(r.Finish(t.Context()))
	r.wantImage(want)
}

// Every write covers the same bytes, across the edge of two chunks. Whoever reads them
// sees one of the writes, and never an older one than before.
func TestReadSeesNoMixture(t *testing.T) {
	const size, off, n = 2 << 20, 1<<20 - 100<<10, 200 << 10
	r := newRig(t, size, Options{})
	r.img.before = reorder(2)
	r.mustWrite(fill(n, 1), off)
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			p := make([]byte, n)
			for last := byte(0); ; last = p[0] {
				select {
				case <-done:
					return
				default:
				}
				if _, err := r.ReadAt(t.Context(), p, off); err != nil {
					t.Error(err)
					return
				}
				if !bytes.Equal(p, fill(n, p[0])) || p[0] < last {
					t.Errorf("a read saw a mixture, or %d after %d", p[0], last)
					return
				}
			}
		})
	}
	for i := range 50 {
		r.mustWrite(fill(n, byte(i+2)), off)
		if i%3 == 0 {
			r.must(r.Commit(t.Context())) // the readers read the target, too
		}
	}
	close(done)
	readers.Wait()
}

// A crashed image is what a crash left of an image and its manifest.
type crashed struct {
	image    []byte
	manifest []byte
}

// Whatever moment the lights go out, the manifest lists no chunk that the image does not
// hold; and the disk that is sent again from its beginning is right.
func TestCrashLosesNothingThatTheManifestLists(t *testing.T) {
	seeds := uint64(4)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { crashAndResume(t, seed) })
	}
}

func crashAndResume(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 5))
	size := 3<<20 + rnd.Int64N(3<<20)
	img := newImage(t, size)
	log, path := newLog(t, size)
	left := photograph(t, img, path, seed)
	r := openRig(t, img, log, path, NewPool(MinBudget), Options{Fresh: true, CheckpointBytes: 2 << 20})
	p := &player{rig: r, model: model{bytes: make([]byte, size)}, rnd: rnd}
	for range 120 {
		if p.step() != nil {
			break // the target failed, as it does now and then
		}
	}
	r.must(r.Close())
	for _, c := range left() {
		resume(t, c, rnd)
	}
}

// photograph has the image keep what a crash would leave, at some of its calls, and fail
// at one. It returns how to get the pictures.
//
// The manifest is read while no call of the target can end: what it lists then was synced
// before, and what it will drop is not written yet.
func photograph(t *testing.T, img *memoryImage, path string, seed uint64) func() []crashed {
	var mu sync.Mutex
	var left []crashed
	rnd := rand.New(rand.NewPCG(seed, 11))
	shuffle := reorder(seed)
	fails := 100 + rnd.IntN(400)
	calls := 0
	img.before = func(op string, r disk.Range) error {
		mu.Lock()
		calls++
		if rnd.IntN(20) == 0 && len(left) < 12 {
			left = append(left, picture(t, img, path, rnd))
		}
		failed := calls >= fails && rnd.IntN(10) == 0
		mu.Unlock()
		if failed {
			return errBroken
		}
		return shuffle(op, r)
	}
	return func() []crashed {
		mu.Lock()
		defer mu.Unlock()
		return append(left, picture(t, img, path, rnd))
	}
}

// resume checks what a crash left, and lands another disk on it.
func resume(t *testing.T, c crashed, rnd *rand.Rand) {
	t.Helper()
	log, path := openCopy(t, c.manifest)
	defer log.Close()
	wantListed(t, log, c.image)
	img := newImage(t, int64(len(c.image)))
	copy(img.now, c.image)
	copy(img.safe, c.image)
	r := openRig(t, img, log, path, NewPool(MinBudget), Options{Size: img.Size()})
	p := &player{rig: r, model: model{bytes: make([]byte, img.Size()), size: img.Size()}, rnd: rnd}
	for n := range log.Chunks() {
		if at := log.Info().Chunk(n); log.Has(n) {
			copy(p.bytes[at.Off:], c.image[at.Off:at.End()])
		}
	}
	for range 20 {
		r.must(p.step())
	}
	r.must(r.Finish(t.Context()))
	r.wantImage(p.bytes)
	r.must(r.Close())
}

// A checkpoint that was torn by an error must not list what it did not sync.
func TestFailedSyncListsNothing(t *testing.T) {
	r := newRig(t, 2<<20, Options{})
	r.img.before = func(op string, _ disk.Range) error {
		if op == "sync" {
			return errBroken
		}
		return nil
	}
	r.mustWrite(fill(2<<20, 1), 0)
	if err := r.Commit(t.Context()); err == nil {
		t.Error("commit gave no error")
	}
	if r.log.Missing() != 2 {
		t.Error("the manifest lists what was not synced")
	}
}
