package main

import (
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

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

func (a *app) asker() (assemble.Terminal, error) {
	t, err := a.terminal()
	if err != nil {
		return nil, err // not a nil *terminal in an interface
	}
	return t, nil
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

// logged gives a command its log for as long as it runs.
func (a *app) logged(run func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) (err error) {
		stop, err := a.startLog()
		if err != nil {
			return err
		}
		defer closing(&err, stop)
		return run(cmd, args)
	}
}

// version is set by the build (-ldflags "-X main.version=…"). It goes into vm.json.
var version = "unknown"
