package server

import (
	"context"
	"log/slog"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/decamp/decamp/internal/fleetdb"
)

// auditTrail records changes and refusals. It is safe for concurrent use.
type auditTrail struct {
	entries   *fleetdb.AuditTrail // audit trail of the fleet database
	strangers *throttle           // limits recorded refusals of unauthenticated clients
	metrics   *metrics            // counts refusals
	log       *slog.Logger        // receives entries that could not be written
}

// noteRefusal records a refusal. Refusals of unauthenticated clients are recorded only while they are
// few: otherwise they could fill the database.
func (t *auditTrail) noteRefusal(ctx context.Context, who User, what, on string, err error) {
	t.metrics.refused.Add(1)
	if who.Role == Nobody && !t.strangers.spendGuess(who.From) {
		return
	}
	if noted := t.addEntry(ctx, who, what, on, err); noted != nil {
		t.log.Error("refusal not noted", "user", who.Name, "from", who.From, "action", what, "on", on, "err", noted)
	}
}

// noteTime is the time limit of an entry, also if the client has canceled its request.
const noteTime = 10 * time.Second

// addEntry appends an entry. Long texts of clients are shortened. err is the error of the request; nil
// before a change.
func (t *auditTrail) addEntry(ctx context.Context, who User, what, on string, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTime)
	defer cancel()
	e := fleetdb.Entry{User: who.Name, Role: string(who.Role), From: who.From, Action: what, On: shortenText(on)}
	if err != nil {
		e.Err = shortenText(err.Error())
	}
	return t.entries.Add(ctx, e)
}

// maxNote bounds texts of clients in the audit trail, in bytes.
const maxNote = 500

// shortenText returns a text of a client that is safe in one line: at most maxNote bytes, and without
// control characters, which a database or a terminal may interpret.
func shortenText(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '.'
		}
		return r
	}, s[:min(len(s), maxNote)])
	return s
}

// recordChange records a change, makes it, and records its error if it fails. If the change cannot be
// recorded, it is not made.
func (t *auditTrail) recordChange(ctx context.Context, what, on string, do func() error) error {
	who := whoIn(ctx)
	if err := t.addEntry(ctx, who, what, on, nil); err != nil {
		return err
	}
	err := do()
	if err != nil {
		if noted := t.addEntry(ctx, who, what, on, err); noted != nil {
			t.log.Error("failure not noted", "user", who.Name, "action", what, "on", on, "err", noted)
		}
		return err
	}
	t.log.Info("changed by an operator", "user", who.Name, "action", what, "on", on)
	return nil
}
