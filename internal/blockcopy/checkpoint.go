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

	syncMu sync.Mutex // held by the one writer that checkpoints; never waited for in hold

	mu       sync.Mutex
	pending  []manifest.Run // chunks in the image that no sync covers yet
	unsynced int64          // their bytes
	synced   time.Time      // when the last checkpoint began
	total    Progress
	syncs    int
	syncTime time.Duration
}

func newCheckpointer(o Options, dst disk.Target, size int64, t *times) *checkpointer {
	return &checkpointer{o: o, dst: dst, times: t, synced: o.Now(), total: Progress{Size: size}}
}

// addSkipped books n bytes that were safe before, and reports progress.
func (l *checkpointer) addSkipped(n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total.Skipped += n
	l.reportProgress()
}

// addWritten records those parts of the window as written, all of it as done, reports progress, and makes a
// checkpoint if one is due and none is running.
func (l *checkpointer) addWritten(ctx context.Context, w *window, parts []disk.Range) error {
	if !l.countWindow(w, parts) || !l.syncMu.TryLock() {
		return nil
	}
	defer l.syncMu.Unlock()
	return l.syncPending(ctx)
}

// countWindow reports whether a checkpoint is due.
func (l *checkpointer) countWindow(w *window, parts []disk.Range) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total.Done += w.Len
	for _, r := range parts {
		l.unsynced += r.Len
		if l.o.Manifest != nil {
			l.pending = append(l.pending, runOf(w, r))
		}
	}
	l.reportProgress()
	return l.o.Manifest != nil &&
		(l.unsynced >= l.o.CheckpointBytes || l.o.Now().Sub(l.synced) >= l.o.CheckpointEvery)
}

// reportProgress calls Options.Progress. The caller holds mu.
func (l *checkpointer) reportProgress() {
	if l.o.Progress != nil {
		l.o.Progress(l.progressLocked())
	}
}

// progressLocked needs mu.
func (l *checkpointer) progressLocked() Progress {
	p := l.total
	p.Read, p.Written = l.read.Load(), l.written.Load()
	p.Times = l.times.snapshot(l.o.Writers)
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

// syncAll makes all that is held safe, waiting for one under way.
func (l *checkpointer) syncAll(ctx context.Context) error {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	return l.syncPending(ctx)
}

// syncPending syncs the image, then lists the chunks that were written before the sync. syncing must be
// held.
func (l *checkpointer) syncPending(ctx context.Context) error {
	runs, began := l.takePending()
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

func (l *checkpointer) takePending() ([]manifest.Run, time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	runs := l.pending
	l.pending, l.unsynced, l.synced = nil, 0, l.o.Now()
	return runs, l.synced
}

func (l *checkpointer) result() Result {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Result{Progress: l.progressLocked(), Checkpoints: l.syncs, SyncTime: l.syncTime}
}
