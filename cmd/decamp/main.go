// Command decamp moves virtual machines off VMware ESXi and vCenter onto KVM.
//
// Each command has a file of its own with its help text at the top. Two places name
// concrete types: wire.go says which session, transport and target the packages below
// are given, input.go how a disk's files are opened. Everything else here speaks in
// their words.
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
	"path/filepath"
	"runtime"
	"runtime/debug"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/convert/appliance/inside"
)

// garbagePercent keeps what the collector lets pile up to a quarter of what is in use.
// Nearly all of that are windows and tables without pointers: looking at it often is
// cheap, letting it double is not.
const garbagePercent = 25

// ballast counts as in use, and is never touched: it takes addresses, and no memory. Without
// it a quarter of the few MiB that a fleet of small VMs has in use is a collection every MiB:
// a third of all processor time. So it is one every 16 MiB at most.
const ballast = 64 << 20

// spareProcs are processors that Go's scheduler believes in and that are not there. Bytes
// are moved by system calls, which keep a processor of the scheduler each; with none to
// spare it takes them away and gives them back every 20 µs. On two cores that was a tenth of
// the time: with four to spare the landing takes 64 KiB writes one at a time at 850 MB/s in
// place of 690, and 1 MiB writes at 1950 in place of 1650.
const spareProcs = 4

func main() {
	if inside.Is() {
		inside.Run() // for good
	}
	debug.SetGCPercent(garbagePercent)
	unused := newBallast(ballast)
	defer runtime.KeepAlive(unused)
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + spareProcs)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ending()...)
	context.AfterFunc(ctx, stop) // gives signals their default action back: a second one ends the process at once
	a := &app{in: os.Stdin, out: os.Stdout, err: newScreen(os.Stderr), env: os.Getenv, tty: openTerminal, argv: os.Args}
	if filepath.Base(os.Args[0]) == folderFuse {
		os.Exit(a.folderFuse(ctx, os.Args[1:]))
	}
	os.Exit(a.run(ctx, os.Args[1:]))
}

// newBallast allocates n bytes, none of them resident. The runtime clears what lies in memory that was
// used before, and cleared pages are resident: whether they are depends on when the collector ran last.
func newBallast(n int) []byte {
	b := make([]byte, n)
	_ = unix.Madvise(b, unix.MADV_DONTNEED) // advice: without it more is resident
	return b
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
