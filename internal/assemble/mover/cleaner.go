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

// tidier reverts changes on hosts from which no VM is migrated any more: a process that was killed with
// the last VMs of a plan has no further work there after its restart, and would not log in.
type cleaner struct {
	m      *Mover
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// Pause between checks. A process that migrates VMs from a source reverts leftovers when it logs in;
// this one handles unused sources. After a failure the pause doubles.
// for what nobody comes by. Where it fails, the pause doubles.
const (
	firstCleanPause = 5 * time.Second
	cleanPause      = 30 * time.Second
	maxCleanPause   = 30 * time.Minute
)

func newCleaner(m *Mover) *cleaner {
	ctx, end := context.WithCancel(context.Background())
	t := &cleaner{m: m, cancel: end}
	t.done.Go(func() { t.cleanLoop(ctx) })
	return t
}

func (t *cleaner) close() {
	t.cancel()
	t.done.Wait()
}

func (t *cleaner) cleanLoop(ctx context.Context) {
	for pause := firstCleanPause; sleep.For(ctx, pause) == nil; {
		if err := t.cleanUnused(ctx); err != nil {
			t.m.a.Log.Warn("leftover changes on hosts stay for now", "err", err)
			pause = min(2*pause, maxCleanPause)
			continue
		}
		pause = cleanPause
	}
}

// cleanUnused reverts the changes on each unused source that has any.
func (t *cleaner) cleanUnused(ctx context.Context) error {
	servers, err := t.m.leftovers.Abandoned(ctx)
	if len(servers) == 0 {
		return err
	}
	plans, listed := t.m.roster.Plans.List(ctx)
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

// cleanServer logs in to a server by the newest plan of it. What was moved by no plan is for decamp clean.
func (t *cleaner) cleanServer(ctx context.Context, server string, plans []fleetdb.Plan) error {
	for _, p := range plans {
		whole, err := t.m.roster.Plans.Get(ctx, p.Name)
		if fault.Is(err, fault.NotFound) {
			continue
		}
		if err != nil {
			return err
		}
		s, err := t.m.Known(whole)
		if err != nil || assemble.ServerOf(s.URL) != server {
			continue // the plan cannot be read, and its own commands report that
		}
		return s.cleanUp(ctx)
	}
	return nil
}

// cleanUp logs in if necessary, and reverts changes.
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
// determine changes on hosts, such as the removal of a snapshot.
type sharedRecords struct{ records *fleetdb.Records }

var _ cleanup.Keeper = sharedRecords{}

// leftoverKind is what the roster calls such records.
const leftoverKind = "leftover"

func (s sharedRecords) Put(ctx context.Context, id cleanup.ID, doc []byte) error {
	return s.records.PutSigned(ctx, leftoverKind, string(id), doc)
}

func (s sharedRecords) Drop(ctx context.Context, id cleanup.ID) error {
	return s.records.Drop(ctx, leftoverKind, string(id))
}

func (s sharedRecords) All(ctx context.Context) (map[cleanup.ID][]byte, error) {
	docs, err := s.records.ListSigned(ctx, leftoverKind)
	all := map[cleanup.ID][]byte{}
	for id, doc := range docs {
		all[cleanup.ID(id)] = doc
	}
	return all, err
}

func (s sharedRecords) Where(id cleanup.ID) string {
	return "record " + string(id) + " of the database"
}

// workerListTimeout bounds the question whether a worker is there.
const workerListTimeout = 10 * time.Second

// workerEnded reports whether a worker is known to have ended: any worker may revert its changes.
func (m *Mover) workerEnded(worker string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), workerListTimeout)
	defer cancel()
	workers, err := m.roster.Workers.List(ctx)
	i := slices.IndexFunc(workers, func(w fleetdb.Worker) bool { return w.Name == worker })
	return err == nil && i >= 0 && !workers[i].Alive
}
