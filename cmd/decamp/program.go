package main

import (
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/assemble/complete"
	"github.com/decamp/decamp/internal/buildinfo"
	"github.com/decamp/decamp/internal/config"
	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/logging"
	"github.com/decamp/decamp/internal/terminal"
	"github.com/decamp/decamp/internal/trace"
)

// program is one execution of decamp. Commands are created with it, and keep the parts that they use.
type program struct {
	in        *os.File                           // the standard input, for commands that read a disk from it
	out       *output                            // output of all commands
	argv      []string                           // the command as typed, for remedies that repeat it
	terminal  func() (*terminal.Terminal, error) // opens the terminal that questions are asked on; an error if there is no terminal
	assembler *assemble.Assembler                // sessions, state directory and access file
	config    config.Paths                       // paths of the config files
	logFile   string                             // value of --log-file
	logFormat string                             // value of --log-format
	words     func() *complete.Cache             // words for completions
}

// newProgram returns a program that opens the terminal for prompts with tty.
func newProgram(in *os.File, out io.Writer, screen *terminal.Screen, env func(string) string, tty func() (*terminal.Terminal, error)) *program {
	log := slog.New(slog.DiscardHandler)
	p := &program{in: in, out: &output{Writer: out, screen: screen, log: log}, argv: os.Args, terminal: tty, config: config.FindPaths(env), words: complete.NewCache, logFormat: string(logging.Text)}
	p.assembler = &assemble.Assembler{Version: buildinfo.Current().Version, Env: env, Prompts: assemble.Prompts{
		Terminal: p.promptTerminal, Command: p.commandWith, Warn: p.out.warn, Notify: p.out.note, Found: func(found []doctor.Finding) { printFound(p.out, found) }, Log: log,
	}}
	return p
}

// setLog sets the log of all parts of the program.
func (p *program) setLog(log *slog.Logger) { p.out.log, p.assembler.Log = log, log }

// startLog opens the log: warnings go to the screen, with --verbose everything, and everything to the
// file of --log-file. A log for other programs has information too, and the messages for users. stop
// closes the file.
func (p *program) startLog() (stop func() error, err error) {
	format, err := logging.ParseFormat(p.logFormat)
	if err != nil {
		return nil, fault.New(fault.Invalid, "--log-format: %w", err)
	}
	p.out.structured = format.IsStructured()
	level := slog.LevelWarn
	switch {
	case p.out.verbose:
		level = slog.LevelDebug
	case p.out.structured:
		level = slog.LevelInfo
	}
	handler, err := logging.NewHandler(format, p.out.screen, level)
	if err != nil {
		return nil, fault.New(fault.Unreachable, "%w", err).WithHint("--log-format json writes to the standard error instead")
	}
	stop = func() error { return nil }
	if p.logFile != "" {
		f, err := os.OpenFile(p.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, fault.New(fault.Invalid, "open log file: %w", err)
		}
		inFile := slog.Handler(slog.NewTextHandler(f, &slog.HandlerOptions{Level: slog.LevelDebug}))
		if format == logging.JSON {
			inFile = slog.NewJSONHandler(f, &slog.HandlerOptions{Level: slog.LevelDebug})
		}
		handler, stop = slog.NewMultiHandler(handler, inFile), f.Close
	}
	p.setLog(slog.New(handler))
	if p.assembler.Traces, err = trace.New(p.assembler.Env, p.assembler.Version, p.out.log); err != nil {
		p.out.warn("no traces: %v", err)
	}
	closeLog := stop
	return func() error { p.assembler.Traces.Close(); return closeLog() }, nil
}

// commandWith returns the command as the user typed it, with more flags before a --. It is a remedy to
// copy.
func (p *program) commandWith(more ...string) string {
	end := slices.Index(p.argv, "--") // no flags behind it
	if end < 0 {
		end = len(p.argv)
	}
	words := slices.Insert(slices.Clone(p.argv), end, more...)
	for i, w := range words {
		words[i] = fault.Quote(w)
	}
	return strings.Join(words, " ")
}

// withLog returns run with the log open while it runs.
func (p *program) withLog(run func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) (err error) {
		stop, err := p.startLog()
		if err != nil {
			return err
		}
		defer joinClose(&err, stop)
		return run(cmd, args)
	}
}

// promptTerminal opens the terminal for prompts. It returns a nil interface on errors.
func (p *program) promptTerminal() (assemble.Terminal, error) {
	t, err := p.terminal()
	if err != nil {
		return nil, err // not a nil *terminal in an interface
	}
	return t, nil
}
