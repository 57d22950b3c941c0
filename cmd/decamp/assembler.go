package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/fault"
)

// prompts ask and tell whoever runs decamp.
type prompts struct {
	tty     func() (asker, error)            // whom to ask; an error if nobody is there
	command func(more ...string) string      // the command as it was typed, with more flags: a remedy to paste
	warn    func(format string, args ...any) // what does not stop the command
	tell    func(format string, args ...any) // what was chosen, and why
	found   func([]doctor.Finding)           // what will fail or go slowly, before a move begins
	log     *slog.Logger
}

// asker is a person who is asked.
type asker interface {
	Ask(ctx context.Context, prompt string) (string, error)
	AskSecret(ctx context.Context, prompt string) (string, error) // without echo
	Close() error
}

// assembler opens what migrations need, with the state directory and the access file of this machine.
type assembler struct {
	prompts
	version    string // decamp's
	env        func(string) string
	state      string   // state directory; empty: the default
	accessFile string   // of --access; empty: see accessPath
	secrets    sync.Map // passwords that were given, by account: SSH takes the same one
}

// stateDir returns where decamp remembers things between commands, and makes it.
func (a *assembler) stateDir() (string, error) {
	dir := a.state
	if dir == "" {
		dir = a.defaultState()
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fault.New(fault.Denied, "make state directory: %w", err).
			WithHint("name a directory you may write with --state DIR")
	}
	return dir, nil
}

func (a *assembler) defaultState() string {
	if os.Geteuid() == 0 {
		return "/var/lib/decamp"
	}
	base := a.env("XDG_STATE_HOME")
	if !filepath.IsAbs(base) { // the XDG specification: a relative one is to be ignored
		base = filepath.Join(a.env("HOME"), ".local", "state")
	}
	return filepath.Join(base, "decamp")
}
