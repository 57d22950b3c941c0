package roster

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
)

// Record is a small document that processes of the fleet share, of a kind that its writers
// know.
type Record struct {
	Kind string
	ID   string
	Doc  json.RawMessage
}

// HooksOfVM is the kind of records whose id is a Key: they go with its plan.
const HooksOfVM = "vm-hook"

// Records are the documents that processes of the fleet share. A record takes no revision.
type Records struct {
	db     *database
	signer signer
}

// Put writes a record, durably.
func (s *Records) Put(ctx context.Context, kind, id string, doc json.RawMessage) error {
	return s.db.write(ctx, "record "+kind, 0, func(x *tx) error {
		return x.record(kind, id, string(doc))
	})
}

func (x *tx) record(kind, id, doc string) error {
	_, err := x.exec(`INSERT INTO records (kind, id, doc) VALUES ($1, $2, $3) ON CONFLICT (kind, id) DO UPDATE SET doc = excluded.doc`, kind, id, doc)
	return err
}

// Drop removes a record. A missing one is no error.
func (s *Records) Drop(ctx context.Context, kind, id string) error {
	return s.db.write(ctx, "drop record of "+kind, 0, func(x *tx) error {
		_, err := x.exec(`DELETE FROM records WHERE kind = $1 AND id = $2`, kind, id)
		return err
	})
}

// Get returns the document of a record; nil if it does not exist.
func (s *Records) Get(ctx context.Context, kind, id string) (json.RawMessage, error) {
	var doc string
	err := s.db.see(ctx, "read record of "+kind, func(ctx context.Context, t *sql.Tx) error {
		return t.QueryRowContext(ctx, `SELECT doc FROM records WHERE kind = $1 AND id = $2`, kind, id).Scan(&doc)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return json.RawMessage(doc), err
}

// List returns all records of a kind, by id.
func (s *Records) List(ctx context.Context, kind string) ([]Record, error) {
	scan := func(row scanner) (rec Record, err error) {
		var doc string
		err = row.Scan(&rec.Kind, &rec.ID, &doc)
		rec.Doc = json.RawMessage(doc)
		return rec, err
	}
	var all []Record
	err := s.db.see(ctx, "read records", func(ctx context.Context, t *sql.Tx) (err error) {
		all, err = query(ctx, t, scan, `SELECT kind, id, doc FROM records WHERE kind = $1 ORDER BY id`, kind)
		return err
	})
	return all, err
}
