package nfsclient

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
)

// commitEvery is the number of UNSTABLE bytes after which the writer commits.
const commitEvery = 16 << 20

// maxResends limits how often UNSTABLE data is written again after the server lost it.
const maxResends = 5

// A Writer writes a file with many WRITEs in flight, as vmkfstools does: in ascending order, except for
// a few that overtake others. It is not safe for concurrent use.
type Writer struct {
	ctx   context.Context // context of all WRITEs
	f     *File           // file to write
	size  int             // bytes in one WRITE
	rng   *rand.Rand      // order of the WRITEs, from Config.Seed
	slots chan struct{}   // has one element for each WRITE in flight
	held  []chunk         // accepted chunks that are not sent; at most reorderDepth

	kept      []chunk // chunks that are sent and not committed; empty without UNSTABLE
	keptBytes int     // number of bytes in kept

	inFlight sync.WaitGroup // goroutines of the WRITEs in flight

	mu       sync.Mutex // guards the fields below
	err      error      // first error of any WRITE
	verf     verifier   // verifier of the last WRITE since the last COMMIT
	verfSet  bool       // whether verf is valid
	restarts bool       // whether the verifiers differed: the server has lost data
}

// A chunk is the data of one WRITE.
type chunk struct {
	p   []byte // copy of the caller's data
	off int64  // offset in the file
}

// NewWriter returns a writer of f. inFlight is the number of WRITEs in flight; 0 chooses 11 to 30 by
// the seed.
func (f *File) NewWriter(ctx context.Context, inFlight int) *Writer {
	rng := rand.New(rand.NewPCG(f.d.cfg.Seed, 0))
	if inFlight == 0 {
		inFlight = minInFlight + rng.IntN(maxInFlight-minInFlight+1)
	}
	return &Writer{ctx: ctx, f: f, size: f.d.writeSize(), rng: rng, slots: make(chan struct{}, inFlight)}
}

// WriteAt copies p and sends it later. It blocks while the limit of WRITEs in flight is reached, and
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

// sendHeld sends one of the held chunks: usually the oldest, sometimes a random one.
func (w *Writer) sendHeld() {
	i := 0
	if w.rng.IntN(4) == 0 { // mild: three in four stay in order
		i = w.rng.IntN(len(w.held))
	}
	c := w.held[i]
	w.held = append(w.held[:i], w.held[i+1:]...)
	w.startWrite(c)
}

// startWrite writes a chunk in a goroutine. It blocks until a slot is free.
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

// writeChunk writes a chunk, with several WRITEs if the server writes less than requested.
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

// noteVerifier records the verifier of an UNSTABLE WRITE. A different one means that the server has
// restarted and may have lost earlier data (RFC 1813 section 3.3.7).
func (w *Writer) noteVerifier(v verifier) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.restarts = w.restarts || w.verfSet && v != w.verf
	w.verf, w.verfSet = v, true
}

// keepError records err unless it is nil or an earlier error is recorded.
func (w *Writer) keepError(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
}

// firstError returns the first error of any WRITE.
func (w *Writer) firstError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// commitAll makes all data durable. If the server has lost data, it writes the kept chunks again, at
// most maxResends times.
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

// errRestarts is the error of a commit during which the server restarts too often.
var errRestarts = errors.New("the write verifier changes all the time")

// Close sends the remaining chunks, waits for all replies, commits, and returns the first error.
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
