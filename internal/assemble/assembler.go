package assemble

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/decamp/decamp/internal/config"
	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/trace"
)

// Prompts are functions for questions and messages to the user. All fields must be set.
type Prompts struct {
	Terminal func() (Terminal, error)         // returns the terminal for questions; fails without one
	Command  func(more ...string) string      // the command as it was typed, with more flags: a remedy to paste
	Warn     func(format string, args ...any) // prints a problem that does not stop the command
	Notify   func(format string, args ...any) // prints a choice that was made, with the reason
	Found    func([]doctor.Finding)           // reports problems that will fail or slow a migration, before it begins
	Log      *slog.Logger                     // log of the process
}

// Terminal is a terminal for prompts.
type Terminal interface {
	// Ask prints the prompt and returns the line that the user enters, without the newline. It ends early
	// if ctx does.
	Ask(ctx context.Context, prompt string) (string, error)
	AskSecret(ctx context.Context, prompt string) (string, error) // without echo
	Close() error                                                 // Close closes the terminal.
}

// Assembler opens the parts of migrations, with the state directory and the access file of this
// machine. It is safe for concurrent use after its fields are set.
type Assembler struct {
	Prompts
	Version    string              // decamp's
	Env        func(string) string // returns an environment variable
	State      string              // state directory; empty: the default
	AccessFile string              // value of --access; if empty see accessPath
	Traces     *trace.Tracer       // exports traces of runs; nil if traces are off
	Settings   *config.Settings    // settings of the config files; nil: none
	// a second login to an account uses the password that the user entered for the first one
	KeepPasswords bool
	secrets       sync.Map // passwords that were given, by account: SSH takes the same one
}

// StateDir returns the directory with the state of this machine: journals, known certificates, refused
// logins. It creates the directory with mode 700 if it is missing.
func (a *Assembler) StateDir() (string, error) {
	dir := a.State
	if dir == "" {
		dir = a.DefaultState()
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fault.New(fault.Denied, "create the state directory: %w", err).
			WithHint("set a directory to which you may write: --state DIR")
	}
	return dir, nil
}

// DefaultState returns the state directory if the user states none: /var/lib/decamp for root, otherwise
// a folder of the user.
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
