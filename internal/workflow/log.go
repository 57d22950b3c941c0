package workflow

import (
	"context"
	"log/slog"
	"sync/atomic"
)

// quietHandler is a log handler for the engine. It demotes Info messages to Debug: they report starts, counts
// and ends. Warnings become Info: they concern the engine's bookkeeping, with one at each Ctrl-C, and
// their consequences are returned as errors. Once closing is set, all messages are demoted: the
// engine's loops report the end of their context, and Close returns real errors.
type quietHandler struct {
	slog.Handler
	closing *atomic.Bool // Engine.closing
}

// Enabled implements slog.Handler.
func (q quietHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return q.Handler.Enabled(ctx, q.demotedLevel(l))
}

// Handle implements slog.Handler: it passes r on with its demoted level.
func (q quietHandler) Handle(ctx context.Context, r slog.Record) error {
	r.Level = q.demotedLevel(r.Level)
	return q.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (q quietHandler) WithAttrs(a []slog.Attr) slog.Handler {
	return quietHandler{q.Handler.WithAttrs(a), q.closing}
}

// WithGroup implements slog.Handler.
func (q quietHandler) WithGroup(name string) slog.Handler {
	return quietHandler{q.Handler.WithGroup(name), q.closing}
}

// demotedLevel returns the level at which a message of level l is logged.
func (q quietHandler) demotedLevel(l slog.Level) slog.Level {
	switch {
	case l == slog.LevelInfo || q.closing.Load():
		return slog.LevelDebug
	case l == slog.LevelWarn:
		return slog.LevelInfo
	}
	return l
}
