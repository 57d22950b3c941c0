package assemble

import (
	"context"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

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
	ReadsState bool                // root may use the state directory of another user: no files are created there
	// a second login to an account uses the password that the user entered for the first one
	KeepPasswords bool
	secrets       sync.Map // passwords that were given, by account: SSH takes the same one
}

// StateDir returns the directory with the state of this machine: journals, known certificates, refused
// logins. It creates the directory with mode 700 if it is missing. A directory of another user is fault.Denied for
// root, unless ReadsState is set: a service of that user could not read the files that root creates.
func (a *Assembler) StateDir() (string, error) {
	dir := a.State
	if dir == "" {
		dir = a.DefaultState()
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fault.New(fault.Denied, "create the state directory: %w", err).
			WithHint("set a directory to which you may write: --state DIR")
	}
	st, err := os.Stat(dir)
	if err != nil {
		return "", err
	}
	if owner, known := st.Sys().(*syscall.Stat_t); known && !a.ReadsState {
		return dir, a.checkStateOwner(dir, os.Geteuid(), int(owner.Uid))
	}
	return dir, nil
}

// checkStateOwner returns fault.Denied if the process runs as root and the state directory belongs to another user.
func (a *Assembler) checkStateOwner(dir string, process, owner int) error {
	if process != 0 || owner == 0 {
		return nil
	}
	name := "#" + strconv.Itoa(owner) // as sudo accepts it
	if u, err := user.LookupId(strconv.Itoa(owner)); err == nil {
		name = u.Username
	}
	return fault.New(fault.Denied, "the state directory %s belongs to user %s, who cannot read files that root creates there", dir, name).
		WithHint("sudo -u %s %s", fault.Quote(name), a.Command())
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
