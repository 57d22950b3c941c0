package blockcopy

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/manifest"
)

// checkpointer keeps the written chunks and makes them durable.
type checkpointer struct {
	o     Options
	dst   disk.Target
	times *times

	read, written atomic.Int64 // bytes asked of the source, given to the target

	syncing sync.Mutex // held by the one writer that checkpoints; never waited for in hold

	mu       sync.Mutex
	held     []manifest.Run // chunks in the image that no sync covers yet
	unsynced int64          // their bytes
	synced   time.Time      // when the last checkpoint began
	total    Progress
	syncs    int
	syncTime time.Duration
}

func newCheckpointer(o Options, dst disk.Target, size int64, t *times) *checkpointer {
	return &checkpointer{o: o, dst: dst, times: t, synced: o.Now(), total: Progress{Size: size}}
}

// skip books n bytes that were safe before, and reports progress.
func (l *checkpointer) skip(n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total.Skipped += n
	l.report()
}

// hold records those parts of the window as written, all of it as done, reports progress, and makes a
// checkpoint if one is due and none is running.
func (l *checkpointer) hold(ctx context.Context, w *window, parts []disk.Range) error {
	if !l.book(w, parts) || !l.syncing.TryLock() {
		return nil
	}
	defer l.syncing.Unlock()
	return l.makeSafe(ctx)
}

// book reports whether a checkpoint is due.
func (l *checkpointer) book(w *window, parts []disk.Range) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total.Done += w.Len
	for _, r := range parts {
		l.unsynced += r.Len
		if l.o.Manifest != nil {
			l.held = append(l.held, runOf(w, r))
		}
	}
	l.report()
	return l.o.Manifest != nil &&
		(l.unsynced >= l.o.CheckpointBytes || l.o.Now().Sub(l.synced) >= l.o.CheckpointEvery)
}

// report calls Options.Progress. The caller holds mu.
func (l *checkpointer) report() {
	if l.o.Progress != nil {
		l.o.Progress(l.progress())
	}
}

// progress needs mu.
func (l *checkpointer) progress() Progress {
	p := l.total
	p.Read, p.Written = l.read.Load(), l.written.Load()
	p.Times = l.times.soFar(l.o.Writers)
	return p
}

// runOf describes chunks of the window for the manifest.
func runOf(w *window, r disk.Range) manifest.Run {
	first, n := r.Off/manifest.ChunkSize, (r.Len+manifest.ChunkSize-1)/manifest.ChunkSize
	if len(w.data) > 0 {
		at := first - w.Off/manifest.ChunkSize
		return manifest.Run{First: first, Hashes: slices.Clone(w.hashes[at : at+n])}
	}
	return manifest.Run{First: first, Zeros: n}
}

// checkpoint makes all that is held safe, waiting for one under way.
func (l *checkpointer) checkpoint(ctx context.Context) error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	return l.makeSafe(ctx)
}

// makeSafe syncs the image, then lists the chunks that were written before the sync. syncing must be
// held.
func (l *checkpointer) makeSafe(ctx context.Context) error {
	runs, began := l.takeHeld()
	if len(runs) == 0 {
		return nil
	}
	if err := l.dst.Sync(ctx); err != nil {
		return fmt.Errorf("sync image: %w", err)
	}
	if err := l.o.Manifest.Append(ctx, runs); err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.syncs++
	l.syncTime += l.o.Now().Sub(began)
	return nil
}

func (l *checkpointer) takeHeld() ([]manifest.Run, time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	runs := l.held
	l.held, l.unsynced, l.synced = nil, 0, l.o.Now()
	return runs, l.synced
}

func (l *checkpointer) result() Result {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Result{Progress: l.progress(), Checkpoints: l.syncs, SyncTime: l.syncTime}
}
