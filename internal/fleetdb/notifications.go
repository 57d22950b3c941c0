package fleetdb

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Notification is a message to one receiver.
type Notification struct {
	Receiver string          // name in the notification file
	ID       string          // identifier of the event; the same for all receivers
	Doc      json.RawMessage // event, in the form of package notify

	State     NotificationState // current state
	Created   time.Time         // time by the database's clock
	Attempts  int               // failed attempts
	NotBefore time.Time         // earliest time of the next attempt
	Failure   string            // error of the last attempt; "" if it had none
}

// NotificationState is the state of a Notification.
type NotificationState string

// The states of a notification.
const (
	Pending   NotificationState = "pending"   // not delivered yet
	Delivered NotificationState = "delivered" // the receiver has accepted it
	Abandoned NotificationState = "abandoned" // it was not delivered in time
)

const (
	// maxPending is the maximum number of pending notifications of a receiver.
	maxPending = 10_000

	// notificationAge is the age at which notifications are removed. Until then an event that is found
	// again is not sent again.
	notificationAge = 90 * 24 * time.Hour

	// notifiedKind is the kind of the record with the revision up to which events were queued. Its id is
	// notifiedID.
	notifiedKind, notifiedID = "notify", "revision"
)

// notificationTables creates the table of notifications.
var notificationTables = []string{
	`CREATE TABLE notifications (
		receiver   TEXT   NOT NULL,
		id         TEXT   NOT NULL,
		doc        TEXT   NOT NULL,
		state      TEXT   NOT NULL,
		created    BIGINT NOT NULL,
		attempts   BIGINT NOT NULL DEFAULT 0,
		not_before BIGINT NOT NULL DEFAULT 0,
		failure    TEXT   NOT NULL DEFAULT '',
		PRIMARY KEY (receiver, id))`,
	`CREATE INDEX notifications_due ON notifications (receiver, state, not_before)`,
	`CREATE INDEX notifications_created ON notifications (created)`,
}

// Notifications is the queue of messages to receivers. Writes require a lease, so that one process at a
// time sends. Notifications use no revision.
type Notifications struct{ db *database }

// Revision returns the revision up to which events were queued; false if none were queued yet.
func (s *Notifications) Revision(ctx context.Context) (rev int64, known bool, err error) {
	doc, err := (&Records{db: s.db}).Get(ctx, notifiedKind, notifiedID)
	if err != nil || doc == nil {
		return 0, false, err
	}
	rev, err = strconv.ParseInt(string(doc), 10, 64)
	return rev, err == nil, err
}

// Add queues notifications and records the revision up to which events are queued. Notifications that
// exist already stay unchanged. It returns the number of notifications that were not queued, because too
// many of their receiver are pending.
func (s *Notifications) Add(ctx context.Context, l Lease, rev int64, all []Notification) (refused int, err error) {
	err = s.db.write(ctx, "queue notifications", 0, func(x *tx) error {
		refused = 0
		if err := x.checkLease(l); err != nil {
			return err
		}
		if _, err := x.exec(`DELETE FROM notifications WHERE created < $1`, x.now-notificationAge.Microseconds()); err != nil {
			return err
		}
		for _, n := range all {
			var pending int
			if err := x.scanRow(`SELECT count(*) FROM notifications WHERE receiver = $1 AND state = 'pending'`, []any{n.Receiver}, &pending); err != nil {
				return err
			}
			if pending >= maxPending {
				refused++
				continue
			}
			_, err := x.exec(`INSERT INTO notifications (receiver, id, doc, state, created) VALUES ($1, $2, $3, 'pending', $4) ON CONFLICT (receiver, id) DO NOTHING`,
				n.Receiver, n.ID, string(n.Doc), x.now)
			if err != nil {
				return err
			}
		}
		return x.putRecord(notifiedKind, notifiedID, strconv.FormatInt(rev, 10))
	})
	return refused, err
}

// notificationColumns are the columns that scanNotification reads.
const notificationColumns = `receiver, id, doc, state, created, attempts, not_before, failure`

// scanNotification reads a notification from notificationColumns.
func scanNotification(row scanner) (n Notification, err error) {
	var doc string
	var created, notBefore int64
	err = row.Scan(&n.Receiver, &n.ID, &doc, &n.State, &created, &n.Attempts, &notBefore, &n.Failure)
	n.Doc, n.Created, n.NotBefore = json.RawMessage(doc), fromMicros(created), fromMicros(notBefore)
	return n, err
}

// Next returns the pending notification of a receiver that is to be sent next, and the time until it is
// due; not positive if it is due now. It returns false if none is pending.
func (s *Notifications) Next(ctx context.Context, receiver string) (n Notification, due time.Duration, found bool, err error) {
	err = s.db.readTx(ctx, "read notifications", func(ctx context.Context, t *sql.Tx) error {
		now, err := s.db.readClock(ctx, t)
		if err != nil {
			return err
		}
		n, err = scanNotification(t.QueryRowContext(ctx, `SELECT `+notificationColumns+` FROM notifications
			WHERE receiver = $1 AND state = 'pending' ORDER BY not_before, created, id LIMIT 1`, receiver))
		due, found = n.NotBefore.Sub(fromMicros(now)), err == nil
		if n.NotBefore.IsZero() {
			due = 0
		}
		if errors.Is(err, sql.ErrNoRows) {
			err = nil
		}
		return err
	})
	return n, due, found, err
}

// Settle records the result of an attempt: delivered if failure is empty, else pending with the next
// attempt after pause. A notification that is giveUp old by then is Abandoned.
func (s *Notifications) Settle(ctx context.Context, l Lease, n Notification, failure string, pause, giveUp time.Duration) (NotificationState, error) {
	state := Delivered
	err := s.db.write(ctx, "record a notification", 0, func(x *tx) error {
		if err := x.checkLease(l); err != nil {
			return err
		}
		state, n.NotBefore = Delivered, time.Time{}
		if failure != "" {
			state, n.NotBefore = Pending, fromMicros(x.now).Add(pause)
			n.Attempts++
			if n.NotBefore.Sub(n.Created) >= giveUp {
				state = Abandoned
			}
		}
		_, err := x.exec(`UPDATE notifications SET state = $1, attempts = $2, not_before = $3, failure = $4 WHERE receiver = $5 AND id = $6`,
			state, n.Attempts, toMicros(n.NotBefore), failure, n.Receiver, n.ID)
		return err
	})
	return state, err
}

// NotificationCount is the number of notifications of a receiver in one state.
type NotificationCount struct {
	Receiver string            `json:"receiver"`          // name in the notification file
	State    NotificationState `json:"state"`             // state of the notifications
	Count    int64             `json:"count"`             // number of notifications that are not older than 90 days
	Failure  string            `json:"failure,omitempty"` // last error of the one that failed most often; "" if none failed
}

// DescribeUndelivered returns the receivers with notifications that are not delivered, for users; empty without any.
func DescribeUndelivered(counts []NotificationCount) string {
	var parts []string
	for _, c := range counts {
		if c.State == Delivered {
			continue
		}
		part := fmt.Sprintf("%s: %d %s", c.Receiver, c.Count, c.State)
		if c.Failure != "" {
			part += " (" + c.Failure + ")"
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "; ")
}

// Counts returns the numbers of notifications, by receiver and state.
func (s *Notifications) Counts(ctx context.Context) ([]NotificationCount, error) {
	scan := func(row scanner) (c NotificationCount, err error) {
		return c, row.Scan(&c.Receiver, &c.State, &c.Count, &c.Failure)
	}
	var all []NotificationCount
	err := s.db.readTx(ctx, "count notifications", func(ctx context.Context, t *sql.Tx) (err error) {
		all, err = queryAll(ctx, t, scan, `SELECT receiver, state, count(*), coalesce((SELECT f.failure FROM notifications AS f
				WHERE f.receiver = n.receiver AND f.state = n.state ORDER BY f.attempts DESC, f.created DESC LIMIT 1), '')
			FROM notifications AS n GROUP BY receiver, state ORDER BY receiver, state`)
		return err
	})
	return all, err
}

// OutageOfVM is the kind of the records of outages. Their id is a Key, and Plans.Drop removes them with
// their plan.
const OutageOfVM = "vm-outage"

// Outage is the measured outage of a warm VM, with its expectation.
type Outage struct {
	Began    time.Time     `json:"began"`              // when the guest was requested to shut down
	Took     time.Duration `json:"took"`               // time until the VM was defined at its target, or ran there
	Boot     time.Duration `json:"boot,omitempty"`     // boot time of the guest, as the operator entered it; not part of Took
	Estimate time.Duration `json:"estimate,omitempty"` // last estimate before the cutover, with Boot; 0 if there was none
	Limit    time.Duration `json:"limit,omitempty"`    // downtime budget of the plan, with Boot; 0 if it has none
}
