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
	closing    *atomic.Bool                 // Engine.closing
	unrecorded func(id string, cause error) // Engine.endUnrecorded
}

// unrecordedMessage is the engine's message if it cannot record an outcome. Nothing else reports the cause.
const unrecordedMessage = "Error recording workflow outcome"

// Enabled implements slog.Handler. Handle needs the errors, even if they are not logged.
func (q quietHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelError || q.Handler.Enabled(ctx, q.demotedLevel(l))
}

// Handle implements slog.Handler: it passes r on with its demoted level.
func (q quietHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == unrecordedMessage {
		q.reportUnrecorded(r)
	}
	r.Level = q.demotedLevel(r.Level)
	if !q.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return q.Handler.Handle(ctx, r)
}

// reportUnrecorded calls unrecorded with the attributes of the engine's message.
func (q quietHandler) reportUnrecorded(r slog.Record) {
	var id string
	var cause error
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "workflow_id":
			id = a.Value.String()
		case "error":
			cause, _ = a.Value.Any().(error)
		}
		return true
	})
	if id != "" && cause != nil {
		q.unrecorded(id, cause)
	}
}

// WithAttrs implements slog.Handler.
func (q quietHandler) WithAttrs(a []slog.Attr) slog.Handler {
	return quietHandler{q.Handler.WithAttrs(a), q.closing, q.unrecorded}
}

// WithGroup implements slog.Handler.
func (q quietHandler) WithGroup(name string) slog.Handler {
	return quietHandler{q.Handler.WithGroup(name), q.closing, q.unrecorded}
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
