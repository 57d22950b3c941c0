package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/decamp/decamp/internal/fault"
)

// app is what every command stands on: the streams, the global flags and the log.
type app struct {
	in   *os.File  // the standard input, for commands that read a disk from it
	out  io.Writer // results
	err  *screen   // everything for eyes
	env  func(string) string
	tty  func() (*terminal, error) // whom to ask; an error if nobody is there
	argv []string                  // the command as typed, for remedies that repeat it

	secrets sync.Map // passwords that were given, by account: SSH takes the same one

	state      string
	accessFile string // of --access; empty: see accessPath
	json       bool
	verbose    bool
	logFile    string
	log        *slog.Logger
}

// run executes one command and returns the process's exit code.
func (a *app) run(ctx context.Context, args []string) int {
	a.log = slog.New(slog.DiscardHandler)
	results := &results{w: a.out}
	a.out = results
	root := newRoot(a)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = results.failed()
	}
	if slices.Contains(args, "--json") {
		a.json = true // also if an error kept the flags from being read
	}
	a.report(err)
	return fault.ExitCode(err)
}

// results is the standard output. It remembers the first failure: a list that was cut
// short by a full disk must not end with exit code 0. VMs of a plan write to it side by side: each
// object with one Write, so that lines stay whole.
type results struct {
	w io.Writer

	mu  sync.Mutex
	err error
}

func (r *results) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, err := r.w.Write(p)
	if r.err == nil && err != nil {
		r.err = err
	}
	return n, err
}

// failed is the first failure.
func (r *results) failed() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// outFile is the file that is the standard output; nil where it is none.
func (a *app) outFile() *os.File {
	w := a.out
	if r, is := w.(*results); is {
		w = r.w
	}
	f, _ := w.(*os.File)
	return f
}

// report tells the error and what to do about it: one line each, or one JSON object.
func (a *app) report(err error) {
	switch {
	case err == nil:
	case a.json:
		if _, is := err.(inResult); is {
			return
		}
		a.print(struct {
			Error problem `json:"error"`
		}{problemOf(err)})
	default:
		p := problemOf(err)
		fmt.Fprintf(a.err, "decamp: %s\n", plain(p.Message))
		if p.Remedy != "" {
			fmt.Fprintf(a.err, "Remedy: %s\n", plain(p.Remedy))
		}
	}
}

// inResult is an error that the command's result has already.
type inResult struct{ error }

func (e inResult) Unwrap() error { return e.error }

// problem is an error as --json prints it.
type problem struct {
	Kind    string `json:"kind"` // fault.Kind
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"`
}

func problemOf(err error) problem {
	return problem{fault.KindOf(err).String(), oneLine(err.Error()), oneLine(fault.HintOf(err))}
}

// oneLine joins the lines that errors.Join puts between errors.
func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' }), "; ")
}

// print writes v as one line of JSON.
func (a *app) print(v any) error {
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// warn tells something that does not stop the command. With --json only the log has it.
func (a *app) warn(format string, args ...any) {
	text := plain(oneLine(fmt.Sprintf(format, args...)))
	if a.json {
		a.log.Warn(text)
		return
	}
	fmt.Fprintf(a.err, "Warning: %s\n", text)
}

// stateDir returns where decamp remembers things between commands, and makes it.
func (a *app) stateDir() (string, error) {
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

func (a *app) defaultState() string {
	if os.Geteuid() == 0 {
		return "/var/lib/decamp"
	}
	base := a.env("XDG_STATE_HOME")
	if !filepath.IsAbs(base) { // the XDG specification: a relative one is to be ignored
		base = filepath.Join(a.env("HOME"), ".local", "state")
	}
	return filepath.Join(base, "decamp")
}

// startLog opens the log: warnings on the screen, with -v everything; everything also in
// the file, if there is one.
func (a *app) startLog() (stop func() error, err error) {
	level := slog.LevelWarn
	if a.verbose {
		level = slog.LevelDebug
	}
	handler := slog.Handler(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: level}))
	stop = func() error { return nil }
	if a.logFile != "" {
		f, err := os.OpenFile(a.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, fault.New(fault.Invalid, "open log file: %w", err)
		}
		handler = slog.NewMultiHandler(handler, slog.NewTextHandler(f, &slog.HandlerOptions{Level: slog.LevelDebug}))
		stop = f.Close
	}
	a.log = slog.New(handler)
	return stop, nil
}

// closing joins what close returns to err: for defer, where an error would be lost.
func closing(err *error, close func() error) {
	if also := close(); also != nil {
		*err = errors.Join(*err, also)
	}
}
