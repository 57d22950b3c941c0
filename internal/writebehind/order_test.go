package writebehind

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/manifest"
)

// sourceFunc is a Reader that is a function.
type sourceFunc func(p []byte, off int64) error

func (f sourceFunc) ReadAt(_ context.Context, p []byte, off int64) error { return f(p, off) }

// A reader that is half-way through the target must not find there what was written since.
func TestNoWriterBeginsWhereAReaderIs(t *testing.T) {
	img := newImage(t, chunkLen)
	reading, goOn := make(chan struct{}), make(chan struct{})
	source := sourceFunc(func(p []byte, off int64) error {
		half := len(p) / 2
		img.load(p[:half], off)
		reading <- struct{}{}
		<-goOn
		img.load(p[half:], off+int64(half))
		return nil
	})
	log, path := newLog(t, chunkLen)
	r := openRig(t, img, log, path, NewPool(MinBudget), Options{Fresh: true, Source: source})
	r.mustWrite(fill(chunkLen, 1), 0)
	r.must(r.Commit(t.Context()))

	read := func(want byte) <-chan struct{} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			p := make([]byte, chunkLen)
			if _, err := r.ReadAt(context.Background(), p, 0); err != nil {
				t.Error(err)
			}
			for _, b := range p {
				if b != want {
					t.Errorf("a read saw %d, want %d", b, want)
					return
				}
			}
		}()
		return done
	}
	first := read(1)
	<-reading
	r.mustWrite(fill(chunkLen, 2), 0)
	waitFor(t, r.File, func() bool { return r.writers.running == 0 })
	r.mu.Lock()
	wanted := r.table.chunks[0].wanted
	r.mu.Unlock()
	if !wanted {
		t.Error("the writer does not wait for the reader, or lets others come before it")
	}
	second := read(2)
	goOn <- struct{}{}
	<-first
	select { // the second found the bytes in memory, or on the target
	case <-reading:
		goOn <- struct{}{}
		<-second
	case <-second:
	}
}

// A watched context closes asked once its Done is called.
type watched struct {
	context.Context
	once  *sync.Once
	asked chan struct{}
}

func (w watched) Done() <-chan struct{} {
	w.once.Do(func() { close(w.asked) })
	return w.Context.Done()
}

// A reader that waits for a writer goes on if a checkpoint keeps the writer from the chunk when the reader
// before it is done.
func TestReaderGoesOnAfterACheckpoint(t *testing.T) {
	img := newImage(t, chunkLen)
	reading, goOn := make(chan struct{}), make(chan struct{})
	source := sourceFunc(func(p []byte, off int64) error {
		img.load(p, off)
		reading <- struct{}{}
		<-goOn
		return nil
	})
	log, path := newLog(t, chunkLen)
	r := openRig(t, img, log, path, NewPool(MinBudget), Options{Fresh: true, Source: source})
	r.mustWrite(fill(chunkLen, 1), 0)
	r.must(r.Commit(t.Context()))
	read := func(ctx context.Context) <-chan error {
		done := make(chan error, 1)
		go func() {
			_, err := r.ReadAt(ctx, make([]byte, chunkLen), 0)
			done <- err
		}()
		return done
	}
	first := read(t.Context())
	<-reading
	r.mustWrite(fill(chunkLen, 2), 0)
	waitFor(t, r.File, func() bool { return r.writers.running == 0 && r.table.chunks[0].wanted })
	ctx := watched{t.Context(), &sync.Once{}, make(chan struct{})}
	second := read(ctx)
	<-ctx.asked
	r.mu.Lock() // the second reader waits now
	r.hashes.listing[0], r.hashes.appending = manifest.Hash{}, true
	r.mu.Unlock()
	goOn <- struct{}{}
	r.must(<-first)
	r.mu.Lock()
	r.hashes.endListing()
	r.writers.startWriter()
	r.mu.Unlock()
	select {
	case err := <-second:
		r.must(err)
	case <-reading: // it reads what was written
		goOn <- struct{}{}
		r.must(<-second)
	case <-time.After(2 * time.Minute):
		t.Fatal("the second reader waits for ever")
	}
}

// What is written after Commit began, and is done before it, is not what Commit waits for.
func TestCommitWaitsForWhatWasHeldAndNoOther(t *testing.T) {
	img := newImage(t, 2*chunkLen)
	g := newGate()
	img.before = func(op string, at disk.Range) error {
		if op == "write" && at.Off == 0 {
			g.wait()
		}
		return nil
	}
	log, path := newLog(t, 2*chunkLen)
	r := openRig(t, img, log, path, NewPool(roomy), Options{Fresh: true})
	r.mustWrite(fill(chunkLen, 1), 0)
	<-g.reached
	committed := make(chan error, 1)
	go func() { committed <- r.Commit(t.Context()) }()
	waitFor(t, r.File, func() bool { return len(r.table.barriers) == 1 })
	r.mustWrite(fill(chunkLen, 2), chunkLen)
	waitFor(t, r.File, func() bool { return r.table.batches == 1 })
	r.mu.Lock()
	waiting := len(r.table.barriers)
	r.mu.Unlock()
	if waiting != 1 {
		t.Error("Commit goes on before the target has what was held")
	}
	close(g.open)
	r.must(<-committed)
	if !log.Has(0) {
		t.Error("what was held is not listed")
	}
}

// What was cut off must not come back after a crash, whether it was listed or about to be.
func TestWhatIsCutOffIsNotListed(t *testing.T) {
	const size = 4 * chunkLen
	for _, listed := range []bool{false, true} {
		r := newRig(t, size, Options{})
		r.mustWrite(fill(size, 1), 0)
		if listed {
			r.must(r.Commit(t.Context()))
		}
		waitFor(t, r.File, func() bool { return r.table.batches == 0 })
		r.must(r.Truncate(t.Context(), chunkLen))
		r.must(r.Truncate(t.Context(), size))
		r.must(r.Commit(t.Context()))
		if !r.log.Has(0) || r.log.Missing() != 3 {
			t.Errorf("%d of 4 chunks are missing in the manifest, want the 3 that were cut off", r.log.Missing())
		}
	}
}
