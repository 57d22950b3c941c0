package nfsclient

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
)

// commitEvery is how many bytes of UNSTABLE data are kept until they are committed.
const commitEvery = 16 << 20

// maxResends bounds how often UNSTABLE data is written again because the server lost it.
const maxResends = 5

// A Writer writes one file with many WRITEs in flight, as vmkfstools does: in ascending
// order but for a few that overtake each other. It is for one goroutine.
type Writer struct {
	ctx   context.Context
	f     *File
	size  int // bytes in one WRITE
	rng   *rand.Rand
	slots chan struct{} // one for each WRITE that may be in flight
	held  []chunk       // written by the caller and not sent yet

	kept      []chunk // UNSTABLE only: sent and not committed
	keptBytes int

	inFlight sync.WaitGroup

	mu       sync.Mutex
	err      error
	verf     verifier // of the WRITEs since the last COMMIT
	verfSet  bool
	restarts bool // their verifiers differed: the server lost some
}

type chunk struct {
	p   []byte
	off int64
}

// NewWriter begins to write f. inFlight 0 is a number of 11 to 30 chosen by the seed.
func (f *File) NewWriter(ctx context.Context, inFlight int) *Writer {
	rng := rand.New(rand.NewPCG(f.d.cfg.Seed, 0))
	if inFlight == 0 {
		inFlight = minInFlight + rng.IntN(maxInFlight-minInFlight+1)
	}
	return &Writer{ctx: ctx, f: f, size: f.d.writeSize(), rng: rng, slots: make(chan struct{}, inFlight)}
}

// WriteAt takes a copy of p. It blocks while as many WRITEs as may be are in flight, and
// returns the first error of any WRITE so far.
func (w *Writer) WriteAt(p []byte, off int64) error {
	for len(p) > 0 {
		n := min(len(p), w.size)
		w.held = append(w.held, chunk{append([]byte(nil), p[:n]...), off})
		p, off = p[n:], off+int64(n)
		if len(w.held) > reorderDepth {
			w.sendHeld()
		}
	}
	if w.f.d.cfg.Unstable && w.keptBytes >= commitEvery {
		w.commitAll()
	}
	return w.firstError()
}

// sendHeld sends one of those held, not always the oldest.
func (w *Writer) sendHeld() {
	i := 0
	if w.rng.IntN(4) == 0 { // mild: three in four stay in order
		i = w.rng.IntN(len(w.held))
	}
	c := w.held[i]
	w.held = append(w.held[:i], w.held[i+1:]...)
	w.startWrite(c)
}

func (w *Writer) startWrite(c chunk) {
	if w.f.d.cfg.Unstable {
		w.kept = append(w.kept, c)
		w.keptBytes += len(c.p)
	}
	w.slots <- struct{}{} // frees itself: every call ends
	w.inFlight.Go(func() {
		defer func() { <-w.slots }()
		if w.firstError() == nil {
			w.keepError(w.writeChunk(c))
		}
	})
}

// writeChunk makes the WRITEs of one chunk: more than one if the server takes less.
func (w *Writer) writeChunk(c chunk) error {
	how := uint32(fileSync)
	if w.f.d.cfg.Unstable {
		how = unstable
	}
	for len(c.p) > 0 {
		if err := w.f.lock.lostError(); err != nil {
			return fmt.Errorf("%s: %w", w.f.name, err)
		}
		n, verf, err := w.f.d.writeOnce(w.ctx, w.f.handle, c.p, c.off, how)
		if err != nil {
			return fmt.Errorf("%s at %d: %w", w.f.name, c.off, err)
		}
		w.noteVerifier(verf)
		c.p, c.off = c.p[n:], c.off+int64(n)
	}
	return nil
}

// noteVerifier compares the verifiers of UNSTABLE writes: another one says that the server has
// restarted and may have lost what went before (RFC 1813 section 3.3.7).
func (w *Writer) noteVerifier(v verifier) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.restarts = w.restarts || w.verfSet && v != w.verf
	w.verf, w.verfSet = v, true
}

func (w *Writer) keepError(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
}

func (w *Writer) firstError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// commitAll makes the server keep what was written, writing it again if it was lost.
func (w *Writer) commitAll() {
	for range maxResends {
		w.inFlight.Wait()
		if w.firstError() != nil {
			return
		}
		verf, err := w.f.d.commitFile(w.ctx, w.f.handle)
		if err != nil {
			w.keepError(fmt.Errorf("%s: %w", w.f.name, err))
			return
		}
		lost := w.restarts || w.verfSet && verf != w.verf
		again := w.kept
		w.kept, w.keptBytes, w.verfSet, w.restarts = nil, 0, false, false
		if !lost {
			return
		}
		for _, c := range again {
			w.startWrite(c)
		}
	}
	w.keepError(fmt.Errorf("%s: %w", w.f.name, errRestarts))
}

var errRestarts = errors.New("the write verifier changes all the time")

// Close sends what is left, waits for every answer, commits, and returns the first error.
func (w *Writer) Close() error {
	for len(w.held) > 0 {
		w.sendHeld()
	}
	w.inFlight.Wait()
	if w.f.d.cfg.Unstable && w.firstError() == nil {
		w.commitAll()
	}
	return w.firstError()
}
