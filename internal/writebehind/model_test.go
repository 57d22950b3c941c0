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

// A model is the expected content and size of a disk.
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

// A modelTest performs random operations on a testFile and on a model.
type modelTest struct {
	*testFile
	model
	rnd *rand.Rand
}

// doStep performs one random operation.
func (p *modelTest) doStep() error {
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
		return p.truncateBoth(p.rnd.Int64N(int64(len(p.bytes)) + 1))
	}
	p.checkpoints.onTimer()
	return nil
}

func (p *modelTest) writeSome() error {
	n := p.randomLength()
	off := p.rnd.Int64N(int64(len(p.bytes)) - n + 1)
	if p.rnd.IntN(3) > 0 {
		off &^= 4095
	}
	b := bytes.Repeat([]byte{byte(p.rnd.IntN(5))}, int(n)) // a fifth of the writes are zeros
	p.model.write(b, off)
	return p.testFile.writeBytes(b, off)
}

// randomLength returns the length of a write: often that of a stream, sometimes short or unaligned.
func (p *modelTest) randomLength() int64 {
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

func (p *modelTest) readSome() error {
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

// truncateSome mostly grows the disk, because a truncated disk would soon have only zeros.
func (p *modelTest) truncateSome() error {
	size := p.model.size + p.rnd.Int64N(int64(len(p.bytes))-p.model.size+1)
	if p.rnd.IntN(3) == 0 {
		size = p.rnd.Int64N(int64(len(p.bytes)) + 1)
	}
	return p.truncateBoth(size)
}

func (p *modelTest) truncateBoth(size int64) error {
	p.truncate(size)
	return p.Truncate(p.t.Context(), size)
}

// reorderCalls makes calls of an image overtake each other.
func reorderCalls(seed uint64) func(string, disk.Range) error {
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

func TestFileAgreesWithModel(t *testing.T) {
	seeds := uint64(4)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { runModelTest(t, seed) })
	}
}

func runModelTest(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 3))
	size := 3<<20 + rnd.Int64N(4<<20)
	img := newImage(t, size)
	img.before = reorderCalls(seed)
	img.fillWithGarbage()
	log, path := newLog(t, size)
	timer := newManualTimer()
	r := openTestFile(t, img, log, path, NewPool(MinBudget), Options{CheckpointBytes: 6 << 20, AfterFunc: timer.AfterFunc})
	p := &modelTest{testFile: r, model: model{bytes: make([]byte, size)}, rnd: rnd}
	for i := range 200 {
		if err := p.doStep(); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
	}
	r.noError(r.Finish(t.Context()))
	r.wantImage(p.bytes)
}

// Concurrent writers write different stripes of the same chunks, and each reads its own data back.
func TestConcurrentWritesToTheSameChunks(t *testing.T) {
	const size, stripe, writers = 4 << 20, 24 << 10, 4
	r := newTestFile(t, size, Options{CheckpointBytes: 2 << 20})
	r.img.before = reorderCalls(1)
	r.noError(r.Truncate(t.Context(), size))
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
					t.Errorf("stripe %d differs from the data that was written: %v", n, err)
					return
				}
				copy(own, repeatByte(stripe, byte(rnd.IntN(255)+1)))
				if err := r.writeBytes(own, int64(n)*stripe); err != nil {
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
	r.noError(r.Finish(t.Context()))
	r.wantImage(want)
}

// All writes cover the same bytes of two chunks. A read returns the data of one of the writes, and never of an older
// one than the read before.
func TestReadsSeeWholeWrites(t *testing.T) {
	const size, off, n = 2 << 20, 1<<20 - 100<<10, 200 << 10
	r := newTestFile(t, size, Options{})
	r.img.before = reorderCalls(2)
	r.mustWrite(repeatByte(n, 1), off)
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
				if !bytes.Equal(p, repeatByte(n, p[0])) || p[0] < last {
					t.Errorf("a read returned parts of several writes, or %d after %d", p[0], last)
					return
				}
			}
		})
	}
	for i := range 50 {
		r.mustWrite(repeatByte(n, byte(i+2)), off)
		if i%3 == 0 {
			r.noError(r.Commit(t.Context())) // the readers also read the target
		}
	}
	close(done)
	readers.Wait()
}

// A crashState is the content of an image and its manifest after a crash.
type crashState struct {
	image    []byte
	manifest []byte
}

// After a crash at any time, the image has all chunks that the manifest lists. The landing can continue from that
// state, and the final image is correct.
func TestCrashKeepsChunksInManifest(t *testing.T) {
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
	left := recordCrashStates(t, img, path, seed)
	r := openTestFile(t, img, log, path, NewPool(MinBudget), Options{Fresh: true, CheckpointBytes: 2 << 20})
	p := &modelTest{testFile: r, model: model{bytes: make([]byte, size)}, rnd: rnd}
	for range 120 {
		if p.doStep() != nil {
			break // the target failed
		}
	}
	r.noError(r.Close())
	for _, c := range left() {
		resumeAfterCrash(t, c, rnd)
	}
}

// recordCrashStates records possible states after a crash at some of the image's calls, and lets a later call fail. It
// returns a function that returns the states.
//
// The manifest is read while no call of the target can end. Therefore the chunks that it lists are synced, and the
// chunks that it will drop are not changed yet.
func recordCrashStates(t *testing.T, img *memoryImage, path string, seed uint64) func() []crashState {
	var mu sync.Mutex
	var left []crashState
	rnd := rand.New(rand.NewPCG(seed, 11))
	shuffle := reorderCalls(seed)
	fails := 100 + rnd.IntN(400)
	calls := 0
	img.before = func(op string, r disk.Range) error {
		mu.Lock()
		calls++
		if rnd.IntN(20) == 0 && len(left) < 12 {
			left = append(left, takeCrashState(t, img, path, rnd))
		}
		failed := calls >= fails && rnd.IntN(10) == 0
		mu.Unlock()
		if failed {
			return errBroken
		}
		return shuffle(op, r)
	}
	return func() []crashState {
		mu.Lock()
		defer mu.Unlock()
		return append(left, takeCrashState(t, img, path, rnd))
	}
}

// resumeAfterCrash checks the state after a crash, and performs more random operations on it.
func resumeAfterCrash(t *testing.T, c crashState, rnd *rand.Rand) {
	t.Helper()
	log, path := openCopy(t, c.manifest)
	defer log.Close()
	wantListed(t, log, c.image)
	img := newImage(t, int64(len(c.image)))
	copy(img.now, c.image)
	copy(img.durable, c.image)
	r := openTestFile(t, img, log, path, NewPool(MinBudget), Options{Size: img.Size()})
	p := &modelTest{testFile: r, model: model{bytes: make([]byte, img.Size()), size: img.Size()}, rnd: rnd}
	for n := range log.Chunks() {
		if at := log.Info().Chunk(n); log.Has(n) {
			copy(p.bytes[at.Off:], c.image[at.Off:at.End()])
		}
	}
	for range 20 {
		r.noError(p.doStep())
	}
	r.noError(r.Finish(t.Context()))
	r.wantImage(p.bytes)
	r.noError(r.Close())
}

// A checkpoint whose sync fails lists no chunk.
func TestFailedSyncListsNothing(t *testing.T) {
	r := newTestFile(t, 2<<20, Options{})
	r.img.before = func(op string, _ disk.Range) error {
		if op == "sync" {
			return errBroken
		}
		return nil
	}
	r.mustWrite(repeatByte(2<<20, 1), 0)
	if err := r.Commit(t.Context()); err == nil {
		t.Error("Commit returned no error")
	}
	if r.log.Missing() != 2 {
		t.Error("the manifest lists chunks that were not synced")
	}
}
