package server

import (
	"context"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/sleep"
)

// Bounds and times of the event stream.
const (
	stateInterval = 500 * time.Millisecond // interval of states without a revision, such as progress
	retryTime     = time.Second            // pause before a database that does not respond is queried again
	knownTime     = 10 * time.Second       // time without an answer of the fleet database after which clients are informed
	maxClients    = 4000                   // maximum number of listeners
	maxQueued     = 32                     // events that a client may have unread: some seconds
	ringFrames    = 256                    // frames that a returning client gets without a query to the fleet database
	ringRows      = 20_000                 // limit of the VMs in these frames
)

// hub reads the fleet database once for all listeners of the event stream. It is safe for concurrent
// use.
type hub struct {
	feed    *fleetdb.Feed    // changes of the database
	plans   *fleetdb.Plans   // plans, for their counts
	workers *fleetdb.Workers // workers, for their leases
	cache   *fleetCache      // progress and scheduler state
	metrics *metrics         // counts dropped clients
	log     *slog.Logger     // receives outages of the database

	closing chan struct{} // closed by close
	known   chan struct{} // closed by lastSent when the newest revision is known

	mu      sync.Mutex             // guards the fields below, except broken
	clients map[*listener]struct{} // listeners
	rev     int64                  // revision of the last change that was sent; negative if none is known yet
	from    int64                  // revision after which the ring has all changes
	ring    []*frame               // frames with revisions, the newest last
	rows    []int                  // number of VMs in each frame of ring
	stale   bool                   // the plans' counts changed since they were sent
	closed  bool                   // close was called; no listener is added

	broken bool // the database does not respond; used only by followChanges
}

// A listener is one client of the stream.
type listener struct {
	plan  string        // plan of the events; "" for all plans
	queue chan []*frame // events to send; never closed
	lost  chan struct{} // closed when the hub drops the listener, because it did not read
}

// newHub returns a hub that does not run.
func newHub(r *fleetdb.Database, cache *fleetCache, m *metrics, log *slog.Logger) *hub {
	return &hub{
		feed: r.Feed, plans: r.Plans, workers: r.Workers, cache: cache, metrics: m, log: log,
		closing: make(chan struct{}), known: make(chan struct{}), clients: map[*listener]struct{}{}, rev: -1,
	}
}

// run reads the fleet database until ctx ends.
func (h *hub) run(ctx context.Context) error {
	var g errgroup.Group
	g.Go(func() error { h.followChanges(ctx); return nil })
	g.Go(func() error { h.stateLoop(ctx); return nil })
	return g.Wait()
}

// followChanges sends changes until ctx ends. If the fleet database does not respond, it retries and
// informs the listeners.
func (h *hub) followChanges(ctx context.Context) {
	for ctx.Err() == nil {
		err := h.sendNext(ctx)
		if err == nil || ctx.Err() != nil {
			continue
		}
		h.reportTrouble(err)
		_ = sleep.For(ctx, retryTime) // the loop checks ctx
	}
}

// sendNext sends new changes, or waits for a newer revision.
func (h *hub) sendNext(ctx context.Context) error {
	since, err := h.lastSent(ctx)
	if err != nil {
		return err
	}
	c, err := h.feed.Changes(ctx, since)
	if err != nil {
		return err
	}
	h.reportRecovery()
	if c.Rev <= since {
		return h.feed.WaitForChange(ctx, since)
	}
	h.sendChanges(c)
	return sleep.For(ctx, gatherTime)
}

// lastSent returns the last revision that was sent. The first call reads the newest one.
func (h *hub) lastSent(ctx context.Context) (int64, error) {
	h.mu.Lock()
	rev := h.rev
	h.mu.Unlock()
	if rev >= 0 {
		return rev, nil
	}
	rev, err := h.feed.Newest(ctx)
	if err == nil {
		h.mu.Lock()
		h.rev, h.from = rev, rev
		h.mu.Unlock()
		close(h.known)
	}
	return rev, err
}

// reportTrouble informs the listeners of an error, and logs the first of several.
func (h *hub) reportTrouble(err error) {
	if !h.broken {
		h.log.Warn("fleet database does not respond", "err", err)
	}
	h.broken = true
	h.sendFrames(sameFrame(eventTrouble, trouble{err.Error()}))
}

// reportRecovery informs the listeners that the database responds again, if it did not before.
func (h *hub) reportRecovery() {
	if h.broken {
		h.log.Info("fleet database responds again")
		h.sendFrames(sameFrame(eventTrouble, trouble{}))
	}
	h.broken = false
}

// sendChanges sends changes, and keeps them for returning clients.
func (h *hub) sendChanges(c fleetdb.Changes) {
	f := changesFrame(c)
	h.mu.Lock()
	h.rev = c.Rev
	h.stale = h.stale || len(c.VMs)+len(c.Plans)+len(c.Dropped) > 0
	h.addToRing(f, len(c.VMs))
	h.mu.Unlock()
	h.sendFrames(f)
}

// addToRing adds a frame with so many VMs to the ring, and removes the oldest frames beyond its limits.
// h.mu must be held.
func (h *hub) addToRing(f *frame, rows int) {
	h.ring, h.rows = append(h.ring, f), append(h.rows, rows)
	total := 0
	for _, n := range h.rows {
		total += n
	}
	for len(h.ring) > ringFrames || total > ringRows {
		h.from = h.ring[0].rev
		total -= h.rows[0]
		h.ring, h.rows = slices.Delete(h.ring, 0, 1), slices.Delete(h.rows, 0, 1)
	}
}

// sendFrames sends frames to all listeners. A listener that does not read is dropped, so that the
// others do not wait for it.
func (h *hub) sendFrames(frames ...*frame) {
	if len(frames) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range h.clients {
		select {
		case l.queue <- frames:
		default:
			h.dropListener(l)
		}
	}
}

// dropListener removes a listener and closes its lost. h.mu must be held.
func (h *hub) dropListener(l *listener) {
	delete(h.clients, l)
	close(l.lost)
	h.metrics.lost.Add(1)
	h.log.Info("event client dropped: it does not read", "behind", maxQueued)
}

// stateLoop sends states without a revision while there are listeners: progress, counts, and resources
// in use.
func (h *hub) stateLoop(ctx context.Context) {
	var told sentState
	for sleep.For(ctx, stateInterval) == nil {
		if h.clientCount() == 0 {
			told = sentState{}
			continue
		}
		b, err := h.cache.readState(ctx)
		if err != nil {
			continue // follow reports an unreachable fleet database
		}
		frames := append(told.changedFrames(b), h.changedCounts(ctx)...)
		h.sendFrames(append(frames, told.changedWorkers(ctx, h.workers)...)...)
	}
}

// A sentState is the last state that stateLoop sent. The zero value makes it send everything.
type sentState struct {
	progress *fleetState      // progress of the last round; nil before the first one
	fleet    any              // last fleetSummary; nil before the first one
	rounds   int              // number of rounds
	workers  []fleetdb.Worker // workers that were sent last
}

// workerRounds is the number of rounds between two reads of the workers. An expired lease changes no
// row, so the feed does not show it.
const workerRounds = 4

// changedWorkers returns the event "workers" if they differ from the last ones sent. store is read in
// every fourth round.
func (t *sentState) changedWorkers(ctx context.Context, store *fleetdb.Workers) []*frame {
	t.rounds++
	if t.rounds%workerRounds != 1 {
		return nil
	}
	workers, err := store.List(ctx)
	if err != nil || slices.EqualFunc(workers, t.workers, sameWorker) {
		return nil
	}
	t.workers = workers
	return []*frame{sameFrame(eventWorkers, workers)}
}

// sameWorker compares workers without their leases, which change all the time.
func sameWorker(a, b fleetdb.Worker) bool {
	return a.Name == b.Name && a.Alive == b.Alive && a.Drains == b.Drains && a.Epoch == b.Epoch
}

// changedFrames returns the events for what changed since the last round.
func (t *sentState) changedFrames(b *fleetState) (frames []*frame) {
	if changed := t.changedProgress(b); len(changed) > 0 {
		frames = append(frames, progressFrame(changed))
	}
	if now := newSummary(b); !reflect.DeepEqual(now, t.fleet) {
		frames = append(frames, sameFrame(eventFleet, now))
		t.fleet = now
	}
	t.progress = b
	return frames
}

// changedProgress returns the progress that differs from the last one sent.
func (t *sentState) changedProgress(b *fleetState) []fleetdb.Progress {
	if t.progress == nil {
		return b.progress
	}
	var changed []fleetdb.Progress
	for _, p := range b.progress {
		i, known := t.progress.byVM[p.Key]
		if !known || t.progress.progress[i] != p {
			changed = append(changed, p)
		}
	}
	return changed
}

// changedCounts returns the event "plans" if counts may differ from those sent.
func (h *hub) changedCounts(ctx context.Context) []*frame {
	h.mu.Lock()
	stale := h.stale
	h.stale = false
	h.mu.Unlock()
	if !stale {
		return nil
	}
	plans, err := h.plans.List(ctx)
	if err != nil {
		h.mu.Lock()
		h.stale = true
		h.mu.Unlock()
		return nil
	}
	for i := range plans {
		plans[i] = withCounts(plans[i])
	}
	return []*frame{sameFrame(eventPlans, plans)}
}

// clientCount returns the number of listeners.
func (h *hub) clientCount() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.clients)
}

// waitKnown returns when the newest revision is known. It returns an error if the server stops, or if
// the database does not respond within knownTime.
func (h *hub) waitKnown(ctx context.Context) error {
	select {
	case <-h.known:
		return nil
	case <-h.closing:
		return fault.New(fault.Transient, "the server stops").WithHint("try again later")
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(knownTime):
		return errAway
	}
}

// addListener adds a listener, after waitKnown. It returns the revision after which the listener gets
// all changes, and the frames that it missed since. whole is false if the ring lacks some of them. l is
// nil if there are too many listeners, or the hub is closed.
func (h *hub) addListener(plan string, since int64) (l *listener, rev int64, missed []*frame, whole bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || len(h.clients) >= maxClients {
		return nil, 0, nil, false
	}
	l = &listener{plan: plan, queue: make(chan []*frame, maxQueued), lost: make(chan struct{})}
	h.clients[l] = struct{}{}
	for _, f := range h.ring {
		if f.rev > since {
			missed = append(missed, f)
		}
	}
	return l, h.rev, missed, since >= h.from
}

// removeListener removes a listener, unless it was dropped.
func (h *hub) removeListener(l *listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.clients, l)
}

// close makes all listeners end, and prevents further ones.
func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.closed = true
		close(h.closing)
	}
}
