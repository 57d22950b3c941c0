package login

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
)

// recordKind is the kind of the records of refused logins in the fleet database.
const recordKind = "refused-login"

// A Refusal is a login that was refused. While it is on record no process logs in there.
type Refusal struct {
	Source string    `json:"source"`         // host:port of the source
	Host   string    `json:"host,omitempty"` // host of the source that refused a login by SSH; "": the source refused
	Text   string    `json:"text"`           // error of the login
	Hint   string    `json:"hint,omitempty"` // remedy of that error
	At     time.Time `json:"at"`             // time of the refusal
}

// RecordID returns the id of the record of a refusal. The lease of logins has the same name.
func RecordID(source, host string) string {
	if host == "" {
		return source
	}
	return source + " " + host
}

// Err returns the refusal as the error of every login that is not permitted because of it.
func (r Refusal) Err() error {
	return fault.New(fault.Denied, "%s: %s", r.placeText(), r.Text).OfLogin().
		WithHint("correct the password, then decamp resume PLAN: until then decamp does not log in there, because that could lock the account")
}

// placeText returns the beginning of the error text, with the place of the refused login.
func (r Refusal) placeText() string {
	if r.Host != "" {
		return "login to host " + r.Host + " by SSH was refused"
	}
	return RefusedAt(r.Source)
}

// RefusedAt returns the beginning of the text of a refusal by a source.
func RefusedAt(source string) string { return "login to " + source + " was refused" }

// IsRefusal reports whether err is a refused login, or one that was not permitted because of an earlier refusal.
func IsRefusal(err error) bool { return errors.Is(err, fault.ErrLogin) }

// putRefusal records a refusal. It replaces an earlier one of the same place.
func putRefusal(ctx context.Context, r *fleetdb.Database, refused Refusal) error {
	text, _ := json.Marshal(refused) // strings and a time
	return r.Records.Put(ctx, recordKind, RecordID(refused.Source, refused.Host), text)
}

// Refusals returns the refusals on record, by RecordID.
func Refusals(ctx context.Context, r *fleetdb.Database) (map[string]Refusal, error) {
	records, err := r.Records.List(ctx, recordKind)
	if err != nil {
		return nil, err
	}
	refusals := map[string]Refusal{}
	for _, rec := range records {
		var refused Refusal
		if err := json.Unmarshal(rec.Doc, &refused); err != nil {
			return nil, fault.New(fault.Corrupt, "the record of a refused login at %s: %w", rec.ID, err)
		}
		refusals[rec.ID] = refused
	}
	return refusals, nil
}

// DropRefusals drops the refusals of a source and of its hosts, so that logins there are permitted again.
func DropRefusals(ctx context.Context, r *fleetdb.Database, source string) error {
	records, err := r.Records.List(ctx, recordKind)
	for _, rec := range records {
		if rec.ID == source || strings.HasPrefix(rec.ID, source+" ") {
			err = errors.Join(err, r.Records.Drop(ctx, recordKind, rec.ID))
		}
	}
	return err
}
