package workflow

import (
	"context"
	"log/slog"
	"sync/atomic"
)

// quiet demotes the engine's Info messages to Debug: they report starts, counts and ends. Its warnings
// become Info: they concern its bookkeeping, with one at each Ctrl-C, and their consequences are
// returned as errors. Once closing is set, all messages are demoted: the engine's loops report the end
// of their context, and Close returns real errors.
type quiet struct {
	slog.Handler
	closing *atomic.Bool
}

func (q quiet) Enabled(ctx context.Context, l slog.Level) bool {
	return q.Handler.Enabled(ctx, q.demotedLevel(l))
}

func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	r.Level = q.demotedLevel(r.Level)
	return q.Handler.Handle(ctx, r)
}

func (q quiet) WithAttrs(a []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(a), q.closing} }
func (q quiet) WithGroup(name string) slog.Handler {
	return quiet{q.Handler.WithGroup(name), q.closing}
}

func (q quiet) demotedLevel(l slog.Level) slog.Level {
	switch {
	case l == slog.LevelInfo || q.closing.Load():
		return slog.LevelDebug
	case l == slog.LevelWarn:
		return slog.LevelInfo
	}
	return l
}
