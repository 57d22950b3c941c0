package mover

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/cleanup"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/sleep"
)

// A cleaner reverts changes on hosts from which no VM is migrated any more. A process that was killed
// with the last VMs of a plan has no further work on those hosts after its restart, and would not log
// in to them.
type cleaner struct {
	m      *Mover             // the mover, with the plans and the records of changes
	cancel context.CancelFunc // ends cleanLoop
	done   sync.WaitGroup     // waits for cleanLoop
}

// Pauses of the cleaner. A process that migrates VMs from a source reverts changes when it logs
// in, so the cleaner has work only on unused sources.
const (
	firstCleanPause = 5 * time.Second  // after the start of the process
	cleanPause      = 30 * time.Second // between checks
	maxCleanPause   = 30 * time.Minute // limit of the pause, which doubles after each failure
)

// newCleaner returns a cleaner and starts its loop.
func newCleaner(m *Mover) *cleaner {
	ctx, end := context.WithCancel(context.Background())
	t := &cleaner{m: m, cancel: end}
	t.done.Go(func() { t.cleanLoop(ctx) })
	return t
}

// close ends the loop and waits for it.
func (t *cleaner) close() {
	t.cancel()
	t.done.Wait()
}

// cleanLoop calls cleanUnused until ctx ends.
func (t *cleaner) cleanLoop(ctx context.Context) {
	for pause := firstCleanPause; sleep.For(ctx, pause) == nil; {
		if err := t.cleanUnused(ctx); err != nil {
			t.m.a.Log.Warn("changes on hosts not reverted", "err", err)
			pause = min(2*pause, maxCleanPause)
			continue
		}
		pause = cleanPause
	}
}

// cleanUnused reverts the changes on each source that no worker uses. It logs in with the newest plan
// of the source, whose password is most likely valid.
func (t *cleaner) cleanUnused(ctx context.Context) error {
	servers, err := t.m.leftovers.Abandoned(ctx)
	if len(servers) == 0 {
		return err
	}
	plans, listed := t.m.database.Plans.List(ctx)
	if listed != nil {
		return errors.Join(err, listed)
	}
	slices.SortFunc(plans, func(a, b fleetdb.Plan) int { return b.Created.Compare(a.Created) }) // the newest password is the right one
	errs := []error{err}
	for _, server := range servers {
		errs = append(errs, t.cleanServer(ctx, server, plans))
	}
	return errors.Join(errs...)
}

// cleanServer logs in to a server with the newest plan that has it as its source. Without such a plan
// the changes stay: decamp clean reverts them.
func (t *cleaner) cleanServer(ctx context.Context, server string, plans []fleetdb.Plan) error {
	for _, p := range plans {
		whole, err := t.m.database.Plans.Get(ctx, p.Name)
		if fault.Is(err, fault.NotFound) {
			continue
		}
		if err != nil {
			return err
		}
		s, err := t.m.KnownSource(whole)
		if err != nil || assemble.ServerOf(s.URL) != server {
			continue // the plan cannot be read, and its own commands report that
		}
		return s.cleanUp(ctx)
	}
	return nil
}

// cleanUp logs in if necessary, and starts a cleanup in the background.
func (s *planSource) cleanUp(ctx context.Context) error {
	leave, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	defer leave()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.startCleanup()
	return nil
}

// sharedRecords stores changes on hosts in the shared database. The records are signed, because they
// cause changes on hosts, such as the removal of a snapshot.
type sharedRecords struct{ records *fleetdb.Records }

var _ cleanup.Keeper = sharedRecords{}

// leftoverKind is the kind of these records in the fleet database.
const leftoverKind = "leftover"

// Put stores a record. It implements cleanup.Keeper, as the methods below do.
func (s sharedRecords) Put(ctx context.Context, id cleanup.ID, doc []byte) error {
	return s.records.PutSigned(ctx, leftoverKind, string(id), doc)
}

// Drop removes a record.
func (s sharedRecords) Drop(ctx context.Context, id cleanup.ID) error {
	return s.records.Drop(ctx, leftoverKind, string(id))
}

// All returns the records with a valid signature.
func (s sharedRecords) All(ctx context.Context) (map[cleanup.ID][]byte, error) {
	docs, err := s.records.ListSigned(ctx, leftoverKind)
	all := map[cleanup.ID][]byte{}
	for id, doc := range docs {
		all[cleanup.ID(id)] = doc
	}
	return all, err
}

// Where returns the location of a record for messages.
func (s sharedRecords) Where(id cleanup.ID) string {
	return "record " + string(id) + " of the database"
}

// workerListTimeout limits the query of the workers.
const workerListTimeout = 10 * time.Second

// workerEnded reports whether a worker is known to have ended. Any worker may then revert its changes.
// It is false if the workers cannot be read.
func (m *Mover) workerEnded(worker string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), workerListTimeout)
	defer cancel()
	workers, err := m.database.Workers.List(ctx)
	i := slices.IndexFunc(workers, func(w fleetdb.Worker) bool { return w.Name == worker })
	return err == nil && i >= 0 && !workers[i].Alive
}
