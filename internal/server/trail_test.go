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

// A refusal or a failed change that the audit trail cannot record is logged; one that it records is not
// logged as an error.
func TestLogHasWhatTheAuditTrailLacks(t *testing.T) {
	database, err := fleetdb.Open(t.Context(), fleetdb.Config{URL: "sqlite:" + filepath.Join(t.TempDir(), "fleet.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer database.Close()
	var out bytes.Buffer
	trail := &auditTrail{entries: database.Audit, strangers: newThrottle(time.Now), metrics: newMetrics("test"), log: slog.New(slog.NewTextHandler(&out, nil))}
	ann, failed := User{Name: "ann", Role: Operate, From: "192.0.2.1"}, errors.New("no such plan")
	ctx, cancel := context.WithCancel(withWho(t.Context(), ann))
	cancel() // a client that hangs up is recorded, too

	trail.noteRefusal(ctx, ann, "drop a plan", "wave-1", failed)
	if err := trail.recordChange(ctx, "command pause", "wave-1", func() error { return failed }); !errors.Is(err, failed) {
		t.Errorf("a change that fails: %v", err)
	}
	if entries, err := database.Audit.List(t.Context(), 0, 9); err != nil || len(entries) != 3 || out.Len() > 0 {
		t.Errorf("%d entries, %v, want 3; the log: %s", len(entries), err, out.String())
	}

	// The database is lost during the change.
	if err := trail.recordChange(ctx, "command pause", "wave-1", func() error { return errors.Join(database.Close(), failed) }); !errors.Is(err, failed) {
		t.Errorf("a change that fails without a database: %v", err)
	}
	trail.noteRefusal(ctx, ann, "drop a plan", "wave-2", failed)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "command pause") || !strings.Contains(lines[1], "wave-2") {
		t.Errorf("the log: %q", lines)
	}
	for _, line := range lines {
		if !strings.Contains(line, "level=ERROR") || !strings.Contains(line, "user=ann") {
			t.Errorf("the log: %s", line)
		}
	}
}
