package writebehind

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/manifest"
)

// sourceFunc is a function that implements Reader.
type sourceFunc func(p []byte, off int64) error

func (f sourceFunc) ReadAt(_ context.Context, p []byte, off int64) error { return f(p, off) }

// A writer of a chunk waits for a reader that reads the chunk from the target.
func TestWriterWaitsForReader(t *testing.T) {
	img := newImage(t, chunkLen)
	reading, goOn := make(chan struct{}), make(chan struct{})
	source := sourceFunc(func(p []byte, off int64) error {
		half := len(p) / 2
		img.loadBytes(p[:half], off)
		reading <- struct{}{}
		<-goOn
		img.loadBytes(p[half:], off+int64(half))
		return nil
	})
	log, path := newLog(t, chunkLen)
	r := openTestFile(t, img, log, path, NewPool(MinBudget), Options{Fresh: true, Source: source})
	r.mustWrite(repeatByte(chunkLen, 1), 0)
	r.noError(r.Commit(t.Context()))

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
					t.Errorf("a read returned %d, want %d", b, want)
					return
				}
			}
		}()
		return done
	}
	first := read(1)
	<-reading
	r.mustWrite(repeatByte(chunkLen, 2), 0)
	waitForFile(t, r.File, func() bool { return r.writers.running == 0 })
	r.mu.Lock()
	wanted := r.table.chunks[0].wanted
	r.mu.Unlock()
	if !wanted {
		t.Error("the writer does not wait for the reader")
	}
	second := read(2)
	goOn <- struct{}{}
	<-first
	select { // the second read uses memory or the target
	case <-reading:
		goOn <- struct{}{}
		<-second
	case <-second:
	}
}

// A watchedContext closes doneCalled at the first call of Done.
type watchedContext struct {
	context.Context
	once       *sync.Once
	doneCalled chan struct{}
}

func (w watchedContext) Done() <-chan struct{} {
	w.once.Do(func() { close(w.doneCalled) })
	return w.Context.Done()
}

// A reader that waits for a writer continues if a checkpoint blocks the writer after the first reader has
// ended.
func TestReaderContinuesAfterACheckpoint(t *testing.T) {
	img := newImage(t, chunkLen)
	reading, goOn := make(chan struct{}), make(chan struct{})
	source := sourceFunc(func(p []byte, off int64) error {
		img.loadBytes(p, off)
		reading <- struct{}{}
		<-goOn
		return nil
	})
	log, path := newLog(t, chunkLen)
	r := openTestFile(t, img, log, path, NewPool(MinBudget), Options{Fresh: true, Source: source})
	r.mustWrite(repeatByte(chunkLen, 1), 0)
	r.noError(r.Commit(t.Context()))
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
	r.mustWrite(repeatByte(chunkLen, 2), 0)
	waitForFile(t, r.File, func() bool { return r.writers.running == 0 && r.table.chunks[0].wanted })
	ctx := watchedContext{t.Context(), &sync.Once{}, make(chan struct{})}
	second := read(ctx)
	<-ctx.doneCalled
	r.mu.Lock() // the second reader waits now
	r.hashes.listing[0], r.hashes.appending = manifest.Hash{}, true
	r.mu.Unlock()
	goOn <- struct{}{}
	r.noError(<-first)
	r.mu.Lock()
	r.hashes.endListing()
	r.writers.startWriter()
	r.mu.Unlock()
	select {
	case err := <-second:
		r.noError(err)
	case <-reading: // the second reader reads the target
		goOn <- struct{}{}
		r.noError(<-second)
	case <-time.After(2 * time.Minute):
		t.Fatal("the second reader still waits")
	}
}

// Commit waits for the data that is in memory when it starts. Later data that is written earlier does not count.
func TestCommitWaitsOnlyForEarlierWrites(t *testing.T) {
	img := newImage(t, 2*chunkLen)
	g := newGate()
	img.before = func(op string, at disk.Range) error {
		if op == "write" && at.Off == 0 {
			g.wait()
		}
		return nil
	}
	log, path := newLog(t, 2*chunkLen)
	r := openTestFile(t, img, log, path, NewPool(largeBudget), Options{Fresh: true})
	r.mustWrite(repeatByte(chunkLen, 1), 0)
	<-g.reached
	committed := make(chan error, 1)
	go func() { committed <- r.Commit(t.Context()) }()
	waitForFile(t, r.File, func() bool { return len(r.table.barriers) == 1 })
	r.mustWrite(repeatByte(chunkLen, 2), chunkLen)
	waitForFile(t, r.File, func() bool { return r.table.batches == 1 })
	r.mu.Lock()
	waiting := len(r.table.barriers)
	r.mu.Unlock()
	if waiting != 1 {
		t.Error("Commit continues before the target has the earlier data")
	}
	close(g.open)
	r.noError(<-committed)
	if !log.Has(0) {
		t.Error("the chunk of the earlier data is not listed")
	}
}

// Truncated chunks are not listed, so that they do not return after a crash, whether they were listed or pending.
func TestTruncatedChunksAreNotListed(t *testing.T) {
	const size = 4 * chunkLen
	for _, listed := range []bool{false, true} {
		r := newTestFile(t, size, Options{})
		r.mustWrite(repeatByte(size, 1), 0)
		if listed {
			r.noError(r.Commit(t.Context()))
		}
		waitForFile(t, r.File, func() bool { return r.table.batches == 0 })
		r.noError(r.Truncate(t.Context(), chunkLen))
		r.noError(r.Truncate(t.Context(), size))
		r.noError(r.Commit(t.Context()))
		if !r.log.Has(0) || r.log.Missing() != 3 {
			t.Errorf("%d of 4 chunks are missing in the manifest, want the 3 truncated ones", r.log.Missing())
		}
	}
}
