package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/roster"
)

// refusals is the kind of the records of refused logins.
const refusals = "refused-login"

// A Refusal is a login that was refused. As long as it is on record nobody logs in there.
type Refusal struct {
	Source string    `json:"source"`         // host:port
	Host   string    `json:"host,omitempty"` // of the source, that refused an account of its own, by SSH
	Text   string    `json:"text"`
	Hint   string    `json:"hint,omitempty"`
	At     time.Time `json:"at"`
}

// placeOf is what logins are counted by: the id of the record, and what the lease is called by.
func placeOf(source, host string) string {
	if host == "" {
		return source
	}
	return source + " " + host
}

// Err is the refusal as those are told who have to wait for its end.
func (r Refusal) Err() error {
	return fault.New(fault.Denied, "%s: %s", r.at(), r.Text).OfLogin().
		WithHint("correct the password, then decamp resume PLAN: until then nobody logs in there, so that the account is not locked")
}

func (r Refusal) at() string {
	if r.Host != "" {
		return "login to host " + r.Host + " by SSH was refused"
	}
	return refusedAt(r.Source)
}

func refusedAt(source string) string { return "login to " + source + " was refused" }

// isRefusal reports whether err is a login that was refused, now or to another one before: more
// of them make it worse.
func isRefusal(err error) bool { return errors.Is(err, fault.ErrLogin) }

func putRefusal(ctx context.Context, records *roster.Records, refused Refusal) error {
	text, _ := json.Marshal(refused) // strings and a time
	return records.Put(ctx, refusals, placeOf(refused.Source, refused.Host), text)
}

// readRefusals returns the refusals on record, by place.
func readRefusals(ctx context.Context, records *roster.Records) (map[string]Refusal, error) {
	all, err := records.List(ctx, refusals)
	if err != nil {
		return nil, err
	}
	by := map[string]Refusal{}
	for _, rec := range all {
		var r Refusal
		if err := json.Unmarshal(rec.Doc, &r); err != nil {
			return nil, fault.New(fault.Corrupt, "the record of a refused login at %s: %w", rec.ID, err)
		}
		by[rec.ID] = r
	}
	return by, nil
}
