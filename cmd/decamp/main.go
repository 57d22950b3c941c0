// Command decamp moves virtual machines off VMware ESXi and vCenter onto KVM.
//
// Each command has a file of its own with its help text at the top. wire.go is the one
// place that names concrete types: which session, transport and target the packages
// below are given. Everything else here speaks in their words.
//
// Results go to the standard output, everything meant for eyes (progress, questions,
// warnings, errors) to the standard error. With --json the standard output is one JSON
// object per line, the last of them the result or the error. Exit codes come from
// fault.ExitCode and nowhere else.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
)

// garbagePercent keeps what the collector lets pile up to a quarter of what is in use.
// Nearly all of that are windows and tables without pointers: looking at it often is
// cheap, letting it double is not.
const garbagePercent = 25

func main() {
	debug.SetGCPercent(garbagePercent)
	ctx, stop := signal.NotifyContext(context.Background(), ending()...)
	context.AfterFunc(ctx, stop) // gives signals their default action back: a second one ends the process at once
	a := &app{out: os.Stdout, err: newScreen(os.Stderr), env: os.Getenv, tty: openTerminal, argv: os.Args}
	os.Exit(a.run(ctx, os.Args[1:]))
}

// ending are the signals that stop a command in good order. A terminal that closes sends
// SIGHUP; under nohup it is ignored, and stays so.
func ending() []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}
