package fleetdb

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	"github.com/decamp/decamp/internal/fault"
)

// Record is a small document that processes of the fleet share. Its writers define its kind.
type Record struct {
	Kind string          // kind of the document, such as HooksOfVM
	ID   string          // identifier, unique within its kind
	Doc  json.RawMessage // document as JSON
}

// HooksOfVM is the kind of the records of VM hooks. Their id is a Key, and Plans.Drop removes them with
// their plan.
const HooksOfVM = "vm-hook"

// Records are the documents that processes of the fleet share. A record uses no revision.
type Records struct {
	db     *database // connections, shared with the other parts
	signer signer    // signs documents of PutSigned
}

// Put writes a record, durably. It replaces the record of the same kind and id.
func (s *Records) Put(ctx context.Context, kind, id string, doc json.RawMessage) error {
	return s.db.write(ctx, "record "+kind, 0, func(x *tx) error {
		return x.putRecord(kind, id, string(doc))
	})
}

// putRecord writes a record in a transaction.
func (x *tx) putRecord(kind, id, doc string) error {
	_, err := x.exec(`INSERT INTO records (kind, id, doc) VALUES ($1, $2, $3) ON CONFLICT (kind, id) DO UPDATE SET doc = excluded.doc`, kind, id, doc)
	return err
}

// Drop removes a record. A missing record is not an error.
func (s *Records) Drop(ctx context.Context, kind, id string) error {
	return s.db.write(ctx, "drop record of "+kind, 0, func(x *tx) error {
		_, err := x.exec(`DELETE FROM records WHERE kind = $1 AND id = $2`, kind, id)
		return err
	})
}

// Get returns the document of a record; nil if it does not exist.
func (s *Records) Get(ctx context.Context, kind, id string) (json.RawMessage, error) {
	var doc string
	err := s.db.readTx(ctx, "read record of "+kind, func(ctx context.Context, t *sql.Tx) error {
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
	err := s.db.readTx(ctx, "read records", func(ctx context.Context, t *sql.Tx) (err error) {
		all, err = queryAll(ctx, t, scan, `SELECT kind, id, doc FROM records WHERE kind = $1 ORDER BY id`, kind)
		return err
	})
	return all, err
}

// recordUse and the kind of a record are the use of the fleet key for records.
const recordUse = "record "

// signedRecord is a signed document as the database stores it.
type signedRecord struct {
	Doc       string `json:"doc"`       // document as text
	Signature string `json:"signature"` // signature of kind, id and Doc
}

// PutSigned writes a record with a signature. Use it for documents that other processes act on. Without
// keys it returns fault.Denied.
func (s *Records) PutSigned(ctx context.Context, kind, id string, doc []byte) error {
	if s.signer.keys == nil {
		return noKeysError()
	}
	sealed := signedRecord{Doc: string(doc), Signature: s.signer.keys.Sign(recordUse+kind, id, string(doc))}
	return s.Put(ctx, kind, id, json.RawMessage(toJSON(sealed)))
}

// ListSigned returns the documents of a kind, by id, whose signature is valid. Its error names the
// others; docs is valid with it.
func (s *Records) ListSigned(ctx context.Context, kind string) (docs map[string][]byte, err error) {
	records, err := s.List(ctx, kind)
	if err != nil {
		return nil, err
	}
	if s.signer.keys == nil {
		return nil, noKeysError()
	}
	docs = map[string][]byte{}
	var refused []error
	for _, rec := range records {
		var sealed signedRecord
		if json.Unmarshal(rec.Doc, &sealed) != nil {
			sealed = signedRecord{}
		}
		if err := s.signer.keys.Verify(sealed.Signature, recordUse+kind, rec.ID, sealed.Doc); err != nil {
			refused = append(refused, fault.New(fault.Denied, "record %s (%s) of the database is refused: %w", rec.ID, kind, err).
				WithHint("an older decamp wrote it, or it was changed: read it, revert the change manually, and delete it from the table records"))
			continue
		}
		docs[rec.ID] = []byte(sealed.Doc)
	}
	return docs, errors.Join(refused...)
}

// rehearsals is the kind of the records of answered rehearsals: the last one of each VM, by its Key.
const rehearsals = "vm-rehearsal"
