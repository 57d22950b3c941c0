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
	entries   *fleetdb.AuditTrail
	strangers *throttle // limit of recorded refusals of unauthenticated clients
	metrics   *metrics
	log       *slog.Logger
}

// noteRefusal records a refusal. Those of strangers it records only while they are few: otherwise they
// could fill the database.
func (t *auditTrail) noteRefusal(ctx context.Context, who Who, what, on string, err error) {
	t.metrics.refused.Add(1)
	if who.Role == Nobody && !t.strangers.spendGuess(who.From) {
		return
	}
	if noted := t.addEntry(ctx, who, what, on, err); noted != nil {
		t.log.Error("refusal not noted", "who", who.Name, "from", who.From, "what", what, "on", on, "err", noted)
	}
}

// noteTime is how long a line for the audit trail may take: also one of a request that its
// client gave up.
const noteTime = 10 * time.Second

func (t *auditTrail) addEntry(ctx context.Context, who Who, what, on string, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTime)
	defer cancel()
	e := fleetdb.Entry{Who: who.Name, Role: string(who.Role), From: who.From, What: what, On: shortenText(on)}
	if err != nil {
		e.Err = shortenText(err.Error())
	}
	return t.entries.Add(ctx, e)
}

// maxNote bounds what a line of the audit trail quotes, in bytes.
const maxNote = 500

// shortenText makes a text of strangers fit for a line: not long, and nothing that a database or a
// terminal takes amiss.
func shortenText(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '.'
		}
		return r
	}, s[:min(len(s), maxNote)])
	return s
}

// recordChange makes a change that is noted before, and again with its error if it fails. What
// cannot be noted is not done.
func (t *auditTrail) recordChange(ctx context.Context, what, on string, do func() error) error {
	who := whoIn(ctx)
	if err := t.addEntry(ctx, who, what, on, nil); err != nil {
		return err
	}
	err := do()
	if err != nil {
		if noted := t.addEntry(ctx, who, what, on, err); noted != nil {
			t.log.Error("failure not noted", "who", who.Name, "what", what, "on", on, "err", noted)
		}
		return err
	}
	t.log.Info("changed by an operator", "who", who.Name, "what", what, "on", on)
	return nil
}
