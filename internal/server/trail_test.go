package server

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
)

// The server logs an error for a refusal or a failed change only if the audit trail cannot record it.
func TestFailuresOutsideTheAuditTrailAreLogged(t *testing.T) {
	database, err := fleetdb.Open(t.Context(), fleetdb.Config{URL: "sqlite:" + filepath.Join(t.TempDir(), "fleet.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer database.Close()
	var out bytes.Buffer
	trail := &auditTrail{entries: database.Audit, strangers: newThrottle(time.Now), metrics: newMetrics("test"), log: slog.New(slog.NewTextHandler(&out, nil))}
	ann, failed := User{Name: "ann", Role: Operate, From: "192.0.2.1"}, errors.New("no such plan")
	ctx, cancel := context.WithCancel(withWho(t.Context(), ann))
	cancel() // the request of a client that disconnected is recorded

	trail.noteRefusal(ctx, ann, "drop a plan", "wave-1", failed)
	if err := trail.recordChange(ctx, "command pause", "wave-1", func() error { return failed }); !errors.Is(err, failed) {
		t.Errorf("recordChange returned %v, want the error of the change", err)
	}
	if entries, err := database.Audit.List(t.Context(), 0, 9); err != nil || len(entries) != 3 || out.Len() > 0 {
		t.Errorf("got %d entries, error %v, log %q; want 3 entries and an empty log", len(entries), err, out.String())
	}

	// The database closes during the change.
	if err := trail.recordChange(ctx, "command pause", "wave-1", func() error { return errors.Join(database.Close(), failed) }); !errors.Is(err, failed) {
		t.Errorf("recordChange without a database returned %v, want the error of the change", err)
	}
	trail.noteRefusal(ctx, ann, "drop a plan", "wave-2", failed)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "command pause") || !strings.Contains(lines[1], "wave-2") {
		t.Errorf("got log %q, want one line for each of two actions", lines)
	}
	for _, line := range lines {
		if !strings.Contains(line, "level=ERROR") || !strings.Contains(line, "user=ann") {
			t.Errorf("log line %s is not an error of user ann", line)
		}
	}
}
