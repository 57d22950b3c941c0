package main

import (
	"context"
	"slices"
	"time"

	"github.com/decamp/decamp/internal/leftover"
	"github.com/decamp/decamp/internal/roster"
)

// sharedRecords keeps what was changed on hosts where machines meet.
type sharedRecords struct{ roster *roster.Roster }

var _ leftover.Keeper = sharedRecords{}

// leftoverKind is what the roster calls such records.
const leftoverKind = "leftover"

func (s sharedRecords) Put(ctx context.Context, id leftover.ID, doc []byte) error {
	return s.roster.PutRecord(ctx, leftoverKind, string(id), doc)
}

func (s sharedRecords) Drop(ctx context.Context, id leftover.ID) error {
	return s.roster.DropRecord(ctx, leftoverKind, string(id))
}

func (s sharedRecords) All(ctx context.Context) (map[leftover.ID][]byte, error) {
	records, err := s.roster.Records(ctx, leftoverKind)
	if err != nil {
		return nil, err
	}
	all := map[leftover.ID][]byte{}
	for _, r := range records {
		all[leftover.ID(r.ID)] = r.Doc
	}
	return all, nil
}

func (s sharedRecords) Where(id leftover.ID) string {
	return "record " + string(id) + " of the database"
}

// goneWait bounds the question whether a worker is there.
const goneWait = 10 * time.Second

// gone reports whether a worker is known to be gone: what it left is anybody's to put back.
func (m *mover) gone(worker string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), goneWait)
	defer cancel()
	workers, err := m.roster.Workers(ctx)
	i := slices.IndexFunc(workers, func(w roster.Worker) bool { return w.Name == worker })
	return err == nil && i >= 0 && !workers[i].Alive
}
