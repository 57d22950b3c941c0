package workflow

import (
	"context"
	"log/slog"
	"sync/atomic"
)

// quiet demotes the engine's Info to Debug: it greets, counts and says goodbye at Info,
// which here is kept for what an operator wants to read in the morning. Its warnings
// become Info: they are about its own bookkeeping, one of them at every Ctrl-C, and what
// comes of them is returned. Once closing is
// set it demotes everything: the engine's loops complain that their context has ended,
// and what really went wrong is returned by Close.
type quiet struct {
	slog.Handler
	closing *atomic.Bool
}

func (q quiet) Enabled(ctx context.Context, l slog.Level) bool {
	return q.Handler.Enabled(ctx, q.demoted(l))
}

func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	r.Level = q.demoted(r.Level)
	return q.Handler.Handle(ctx, r)
}

func (q quiet) WithAttrs(a []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(a), q.closing} }
func (q quiet) WithGroup(name string) slog.Handler {
	return quiet{q.Handler.WithGroup(name), q.closing}
}

func (q quiet) demoted(l slog.Level) slog.Level {
	switch {
	case l == slog.LevelInfo || q.closing.Load():
		return slog.LevelDebug
	case l == slog.LevelWarn:
		return slog.LevelInfo
	}
	return l
}
