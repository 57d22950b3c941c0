package fleetdb

import (
	"context"
	"database/sql"
	"time"
)

// Entry is one line of the audit trail: a change or a refused request, with its user.
type Entry struct {
	ID     int64     `json:"id"`            // number of the entry, from 1; set by Add
	Time   time.Time `json:"time"`          // time by the database's clock
	User   string    `json:"user"`          // name of the token or the certificate, or the local user
	Role   string    `json:"role"`          // role of the user: view, operate or admin
	From   string    `json:"from"`          // address of the client, or "local"
	Action string    `json:"action"`        // kind of the change: "cutover", "plan submit", "set limit"
	On     string    `json:"on"`            // changed object: plan, VM or limit
	Err    string    `json:"err,omitempty"` // error of a refused or failed request; "" for a change that is about to be made
}

// AuditTrail is the list of users' changes and refused requests.
type AuditTrail struct{ db *database }

// Add appends an entry; the database sets ID and Time. It uses no revision.
func (s *AuditTrail) Add(ctx context.Context, e Entry) error {
	return s.db.write(ctx, "write the audit trail", 0, func(x *tx) error {
		if err := x.scanRow(`UPDATE meta SET entry = entry + 1 WHERE id = 1 RETURNING entry`, nil, &e.ID); err != nil {
			return err
		}
		e.Time = fromMicros(x.now)
		_, err := x.exec(`INSERT INTO audit (id, at, doc) VALUES ($1, $2, $3)`, e.ID, x.now, toJSON(e))
		return err
	})
}

// scanEntry reads an entry from its document.
func scanEntry(row scanner) (Entry, error) {
	var doc string
	if err := row.Scan(&doc); err != nil {
		return Entry{}, err
	}
	return parseJSON[Entry](doc)
}

// List returns at most limit entries with smaller IDs than before, the newest first. If before is 0, it
// begins with the newest entry.
func (s *AuditTrail) List(ctx context.Context, before int64, limit int) ([]Entry, error) {
	var all []Entry
	err := s.db.readTx(ctx, "read the audit trail", func(ctx context.Context, t *sql.Tx) (err error) {
		all, err = queryAll(ctx, t, scanEntry, `SELECT doc FROM audit WHERE id < $1 OR $1 = 0 ORDER BY id DESC LIMIT $2`, before, limit)
		return err
	})
	return all, err
}
