package workflow

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
)

func TestOnlyErrorsOfTheEngineAreLogged(t *testing.T) {
	var screen strings.Builder
	var closing atomic.Bool
	log := slog.New(quietHandler{slog.NewTextHandler(&screen, &slog.HandlerOptions{Level: slog.LevelWarn}), &closing, nil})
	log.Info("hello")
	log.Warn("no longer owned by this execution")
	if screen.String() != "" {
		t.Errorf("the operator's log is %q, want nothing", screen.String())
	}
	log.Error("disk on fire")
	if !strings.Contains(screen.String(), "disk on fire") {
		t.Error("an error was not logged")
	}
}
