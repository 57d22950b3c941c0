package assemble

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/fault"
)

// Prompts are the functions for questions and messages to the user.
type Prompts struct {
	Terminal func() (Terminal, error)         // returns the terminal for questions; an error if there is none
	Command  func(more ...string) string      // the command as it was typed, with more flags: a remedy to paste
	Warn     func(format string, args ...any) // prints a problem that does not stop the command
	Tell     func(format string, args ...any) // prints a choice that was made, with the reason
	Found    func([]doctor.Finding)           // reports problems that will fail or slow a migration, before it begins
	Log      *slog.Logger
}

// Terminal is a person who is asked.
type Terminal interface {
	Ask(ctx context.Context, prompt string) (string, error)
	AskSecret(ctx context.Context, prompt string) (string, error) // without echo
	Close() error
}

// Assembler opens what migrations need, with the state directory and the access file of this machine.
type Assembler struct {
	Prompts
	Version    string // decamp's
	Env        func(string) string
	State      string   // state directory; empty: the default
	AccessFile string   // value of --access; if empty see accessPath
	secrets    sync.Map // passwords that were given, by account: SSH takes the same one
}

// StateDir returns where decamp remembers things between commands, and makes it.
func (a *Assembler) StateDir() (string, error) {
	dir := a.State
	if dir == "" {
		dir = a.DefaultState()
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fault.New(fault.Denied, "make state directory: %w", err).
			WithHint("name a directory you may write with --state DIR")
	}
	return dir, nil
}

// DefaultState returns the state directory that is used where none is stated.
func (a *Assembler) DefaultState() string {
	if os.Geteuid() == 0 {
		return "/var/lib/decamp"
	}
	base := a.Env("XDG_STATE_HOME")
	if !filepath.IsAbs(base) { // the XDG specification requires ignoring relative paths
		base = filepath.Join(a.Env("HOME"), ".local", "state")
	}
	return filepath.Join(base, "decamp")
}
