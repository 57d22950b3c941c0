package fleetdb

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestNotificationsAreQueuedOnceAndSettled(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		now := newClock()
		p.now = now.Now
		ctx, r := t.Context(), p.open()
		if _, known, err := r.Notifications.Revision(ctx); known || err != nil {
			t.Fatal("an empty queue has a revision", err)
		}
		l := ok(r.Leases.Acquire(ctx, "notifier", "a", time.Hour))(t)
		n := Notification{Receiver: "ops", ID: "evt_1", Doc: json.RawMessage(`{"plan":"w"}`)}
		other := n
		other.Receiver = "team"
		for range 2 {
			if refused := ok(r.Notifications.Add(ctx, l, 7, []Notification{n, other}))(t); refused != 0 {
				t.Errorf("%d notifications were refused, want 0", refused)
			}
		}
		if rev, known, err := r.Notifications.Revision(ctx); rev != 7 || !known || err != nil {
			t.Errorf("revision %d, %v, %v", rev, known, err)
		}
		next, due, found, err := r.Notifications.Next(ctx, "ops")
		if err != nil || !found || due > 0 || string(next.Doc) != string(n.Doc) {
			t.Fatalf("next %+v, %v, %v, %v", next, due, found, err)
		}
		if state := ok(r.Notifications.Settle(ctx, l, next, "no route", time.Minute, time.Hour))(t); state != Pending {
			t.Errorf("state %s", state)
		}
		if next, due, found, err = r.Notifications.Next(ctx, "ops"); err != nil || !found || due != time.Minute || next.Attempts != 1 {
			t.Fatalf("next %+v, %v, %v, %v", next, due, found, err)
		}
		now.advance(59*time.Minute + time.Second)
		if state := ok(r.Notifications.Settle(ctx, l, next, "no route", time.Minute, time.Hour))(t); state != Abandoned {
			t.Errorf("state %s", state)
		}
		l = ok(r.Leases.Acquire(ctx, "notifier", "a", time.Hour))(t)
		next, _, _, err = r.Notifications.Next(ctx, "team")
		must(t, err)
		if state := ok(r.Notifications.Settle(ctx, l, next, "", 0, time.Hour))(t); state != Delivered {
			t.Errorf("state %s", state)
		}
		counts := ok(r.Notifications.Counts(ctx))(t)
		if want := []NotificationCount{{"ops", Abandoned, 1, "no route"}, {"team", Delivered, 1, ""}}; fmt.Sprint(counts) != fmt.Sprint(want) {
			t.Errorf("counts %v, want %v", counts, want)
		}
		if got := DescribeUndelivered(append(counts, NotificationCount{"team", Pending, 2, ""})); got != "ops: 1 abandoned (no route); team: 2 pending" {
			t.Errorf("described as %q", got)
		}

		now.advance(2 * time.Hour) // another process takes over
		ok(r.Leases.Acquire(ctx, "notifier", "b", time.Hour))(t)
		if _, err := r.Notifications.Add(ctx, l, 8, []Notification{n}); !errors.Is(err, ErrFenced) {
			t.Errorf("Add without the lease: got %v, want ErrFenced", err)
		}
		if _, err := r.Notifications.Settle(ctx, l, next, "x", 0, 0); !errors.Is(err, ErrFenced) {
			t.Errorf("Settle without the lease: got %v, want ErrFenced", err)
		}
	})
}

func TestTheQueueIsBounded(t *testing.T) {
	now := newClock()
	p := newSQLite(t)
	p.now = now.Now
	ctx, r := t.Context(), p.open()
	l := ok(r.Leases.Acquire(ctx, "notifier", "a", time.Hour))(t)
	_, err := r.db.durable.Exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)
		INSERT INTO notifications (receiver, id, doc, state, created) SELECT 'ops', i, '{}', 'pending', $2 FROM n`, maxPending-1, toMicros(now.Now()))
	must(t, err)
	all := []Notification{{Receiver: "ops", ID: "a"}, {Receiver: "ops", ID: "b"}, {Receiver: "team", ID: "b"}}
	if refused := ok(r.Notifications.Add(ctx, l, 1, all))(t); refused != 1 {
		t.Errorf("%d notifications were refused, want 1", refused)
	}
	now.advance(notificationAge + time.Hour)
	l = ok(r.Leases.Acquire(ctx, "notifier", "a", time.Hour))(t)
	ok(r.Notifications.Add(ctx, l, 2, nil))(t)
	if counts := ok(r.Notifications.Counts(ctx))(t); len(counts) != 0 {
		t.Errorf("old notifications are left: %v", counts)
	}
}
