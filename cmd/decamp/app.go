package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/term"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/fault"
)

// app is what every command stands on: the streams, the global flags and the log.
type app struct {
	in       *os.File                  // the standard input, for commands that read a disk from it
	out      io.Writer                 // results
	err      *screen                   // everything for eyes
	argv     []string                  // the command as typed, for remedies that repeat it
	terminal func() (*terminal, error) // whom to ask; an error if nobody is there

	assemble.Assembler

	json    bool
	verbose bool
	logFile string
}

// newApp returns an app that asks at tty, if somebody is there.
func newApp(in *os.File, out io.Writer, screen *screen, env func(string) string, tty func() (*terminal, error)) *app {
	a := &app{in: in, out: out, err: screen, argv: os.Args, terminal: tty}
	a.Version, a.Env = version, env
	a.Prompts = assemble.Prompts{Terminal: a.asker, Command: a.commandWith, Warn: a.warning, Tell: a.note, Found: a.tellFound, Log: slog.New(slog.DiscardHandler)}
	return a
}

// run executes one command and returns the process's exit code.
func (a *app) run(ctx context.Context, args []string) int {
	a.Log = slog.New(slog.DiscardHandler)
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
	return problem{fault.KindOf(err).String(), fault.OneLine(err.Error()), fault.OneLine(fault.HintOf(err))}
}

// print writes v as one line of JSON.
func (a *app) print(v any) error {
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// warning tells something that does not stop the command. With --json only the log has it.
func (a *app) warning(format string, args ...any) {
	text := plain(fault.OneLine(fmt.Sprintf(format, args...)))
	if a.json {
		a.Log.Warn(text)
		return
	}
	fmt.Fprintf(a.err, "Warning: %s\n", text)
}

func (a *app) asker() (assemble.Terminal, error) {
	t, err := a.terminal()
	if err != nil {
		return nil, err // not a nil *terminal in an interface
	}
	return t, nil
}

// note tells of something for eyes. With --json the log has it alone.
func (a *app) note(format string, args ...any) {
	if !a.json {
		fmt.Fprintln(a.err, plain(fault.OneLine(fmt.Sprintf(format, args...))))
	}
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
	a.Log = slog.New(handler)
	return stop, nil
}

// closing joins what close returns to err: for defer, where an error would be lost.
func closing(err *error, close func() error) {
	if also := close(); also != nil {
		*err = errors.Join(*err, also)
	}
}

// shellArgument is fault.Quote for a word that a program must not take for a flag.
func shellArgument(s string) string {
	if strings.HasPrefix(s, "-") {
		return "-- " + fault.Quote(s)
	}
	return fault.Quote(s)
}

// commandWith is the command as it was typed, with more flags: a remedy to paste.
func (a *app) commandWith(more ...string) string {
	end := slices.Index(a.argv, "--") // no flags behind it
	if end < 0 {
		end = len(a.argv)
	}
	words := slices.Insert(slices.Clone(a.argv), end, more...)
	for i, w := range words {
		words[i] = fault.Quote(w)
	}
	return strings.Join(words, " ")
}

// screen is the standard error. While progress bars are drawn, what is written goes
// above them.
type screen struct {
	file *os.File

	mu    sync.Mutex
	above io.Writer // nil: no bars
}

func newScreen(f *os.File) *screen { return &screen{file: f} }

// isTerminal reports whether bars can be drawn.
func (s *screen) isTerminal() bool { return term.IsTerminal(int(s.file.Fd())) }

// Write writes whole lines, or they would mix with the bars.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.above != nil {
		return s.above.Write(p)
	}
	return s.file.Write(p)
}

// divert sends what is written to w from now on; nil ends that.
func (s *screen) divert(w io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.above = w
}
