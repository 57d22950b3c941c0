package mover

import (
	"context"
	"slices"
	"time"

	"github.com/decamp/decamp/internal/leftover"
	"github.com/decamp/decamp/internal/roster"
)

// sharedRecords keeps what was changed on hosts in the database that machines share. The records are
// signed: they say what is undone on hosts, which snapshot is removed.
type sharedRecords struct{ roster *roster.Roster }

var _ leftover.Keeper = sharedRecords{}

// leftoverKind is what the roster calls such records.
const leftoverKind = "leftover"

func (s sharedRecords) Put(ctx context.Context, id leftover.ID, doc []byte) error {
	return s.roster.PutSigned(ctx, leftoverKind, string(id), doc)
}

func (s sharedRecords) Drop(ctx context.Context, id leftover.ID) error {
	return s.roster.DropRecord(ctx, leftoverKind, string(id))
}

func (s sharedRecords) All(ctx context.Context) (map[leftover.ID][]byte, error) {
	docs, err := s.roster.SignedRecords(ctx, leftoverKind)
	all := map[leftover.ID][]byte{}
	for id, doc := range docs {
		all[leftover.ID(id)] = doc
	}
	return all, err
}

func (s sharedRecords) Where(id leftover.ID) string {
	return "record " + string(id) + " of the database"
}

// goneWait bounds the question whether a worker is there.
const goneWait = 10 * time.Second

// gone reports whether a worker is known to be gone: what it left is anybody's to put back.
func (m *Mover) gone(worker string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), goneWait)
	defer cancel()
	workers, err := m.roster.Workers(ctx)
	i := slices.IndexFunc(workers, func(w roster.Worker) bool { return w.Name == worker })
	return err == nil && i >= 0 && !workers[i].Alive
}
