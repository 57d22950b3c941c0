// Command decamp migrates virtual machines from VMware ESXi and vCenter to KVM.
//
// Each command has a separate file: its help text, a type with its flags and the parts of the
// program that it uses, and the methods that run it. Functions that several commands use are in
// other files: output, help, flags of sources and fleets, and the printing of findings,
// definitions and plans. A command uses no function of another command. Package assemble opens
// sessions, transports and targets.
//
// Results go to the standard output. Messages for users go to the standard error: progress,
// prompts, warnings and errors. With --json the standard output has one JSON object per line;
// the last one is the result or the error. fault.ExitCode determines all exit codes.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/terminal"
	"github.com/decamp/decamp/internal/tuning"
)

func main() {
	unprotected := forbidCoreDumps()
	tuning.Apply()
	ctx, stop := signal.NotifyContext(context.Background(), stopSignals()...)
	context.AfterFunc(ctx, stop) // gives signals their default action back: a second one ends the process at once
	p := newProgram(os.Stdin, os.Stdout, terminal.NewScreen(os.Stderr), os.Getenv, terminal.Open)
	if unprotected != nil {
		fmt.Fprintf(p.out.screen, "Warning: %v\n", unprotected)
	}
	if filepath.Base(os.Args[0]) == folderFuse {
		os.Exit(runFolderFuse(ctx, p, os.Args[1:]))
	}
	os.Exit(runCommand(ctx, p, os.Args[1:]))
}

// stopSignals returns the signals that end a command in an orderly way. A closing terminal sends
// SIGHUP. nohup ignores SIGHUP, which then stays ignored.
func stopSignals() []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}

// forbidCoreDumps protects passwords, tokens and keys in memory from other processes of the same user,
// and from core files. A process that is not dumpable has no core dump, also not by a program in
// core_pattern. Its memory, environment and open files are hidden below /proc. Child processes inherit
// the limit of core files, but not this attribute.
func forbidCoreDumps() error {
	err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	if err := errors.Join(err, unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})); err != nil {
		return fmt.Errorf("forbid core dumps: %w", err)
	}
	return nil
}
