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

// A checkpointer collects the written chunks and makes them durable. It is safe for concurrent use.
type checkpointer struct {
	o     Options     // options of the copy
	dst   disk.Target // image to sync
	times *times      // times of the workers, for reports

	read, written atomic.Int64 // bytes requested from the source (read) and passed to the target (written)

	syncMu sync.Mutex // held by the writer that makes a checkpoint; addWritten never waits for it. It is locked before mu.

	mu       sync.Mutex     // guards the fields below
	pending  []manifest.Run // chunks that were written after the last sync
	unsynced int64          // bytes in pending
	synced   time.Time      // time when the last checkpoint began
	total    Progress       // totals without Read, Written and Times
	syncs    int            // number of checkpoints
	syncTime time.Duration  // total duration of checkpoints
}

// newCheckpointer returns a checkpointer for a disk of size bytes.
func newCheckpointer(o Options, dst disk.Target, size int64, t *times) *checkpointer {
	return &checkpointer{o: o, dst: dst, times: t, synced: o.Now(), total: Progress{Size: size}}
}

// addSkipped counts n bytes that were durable before, and reports progress.
func (l *checkpointer) addSkipped(n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total.Skipped += n
	l.reportProgress()
}

// addWritten records that parts of window w were written, counts all of it as done, and reports
// progress. If a checkpoint is due and none is running, it makes one.
func (l *checkpointer) addWritten(ctx context.Context, w *window, parts []disk.Range) error {
	if !l.countWindow(w, parts) || !l.syncMu.TryLock() {
		return nil
	}
	defer l.syncMu.Unlock()
	return l.syncPending(ctx)
}

// countWindow counts window w, and reports whether a checkpoint is due.
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

// reportProgress calls Options.Progress. mu must be held.
func (l *checkpointer) reportProgress() {
	if l.o.Progress != nil {
		l.o.Progress(l.progressLocked())
	}
}

// progressLocked returns the totals. mu must be held.
func (l *checkpointer) progressLocked() Progress {
	p := l.total
	p.Read, p.Written = l.read.Load(), l.written.Load()
	p.Times = l.times.snapshot(l.o.Writers)
	return p
}

// runOf returns the manifest's run for r, which consists of whole chunks of window w.
func runOf(w *window, r disk.Range) manifest.Run {
	first, n := r.Off/manifest.ChunkSize, (r.Len+manifest.ChunkSize-1)/manifest.ChunkSize
	if len(w.data) > 0 {
		at := first - w.Off/manifest.ChunkSize
		return manifest.Run{First: first, Hashes: slices.Clone(w.hashes[at : at+n])}
	}
	return manifest.Run{First: first, Zeros: n}
}

// syncAll makes all pending chunks durable. It waits for a running checkpoint.
func (l *checkpointer) syncAll(ctx context.Context) error {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	return l.syncPending(ctx)
}

// syncPending syncs the image, then lists the chunks that were written before the sync. syncMu must be
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

// takePending returns and clears the pending chunks, and returns the current time.
func (l *checkpointer) takePending() ([]manifest.Run, time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	runs := l.pending
	l.pending, l.unsynced, l.synced = nil, 0, l.o.Now()
	return runs, l.synced
}

// result returns the totals of the copy without its duration.
func (l *checkpointer) result() Result {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Result{Progress: l.progressLocked(), Checkpoints: l.syncs, SyncTime: l.syncTime}
}
