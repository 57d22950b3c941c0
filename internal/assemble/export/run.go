package export

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/childenv"
	"github.com/decamp/decamp/internal/fault"
)

// Run serves the disks until ctx ends, and then returns nil. If Options.Command is set, it runs that
// program and serves until the program has ended; see runCommand. When it returns, no client is connected.
func (e *Export) Run(ctx context.Context) error {
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	failed := make(chan error, 1)
	go func() { failed <- e.server.Serve(serving, e.place.listener) }()
	var err error
	if len(e.options.Command) > 0 {
		err = e.runCommand(ctx)
	} else {
		select {
		case <-ctx.Done():
		case err = <-failed: // the listener failed
			return err
		}
	}
	stop()
	if serveErr := <-failed; serveErr != nil {
		err = errors.Join(err, serveErr)
	}
	return err
}

// ExitStatus is the exit status of a command that failed. It is that of decamp, too.
type ExitStatus int

// Error implements error.
func (s ExitStatus) Error() string { return fmt.Sprintf("the command ended with exit code %d", int(s)) }

// ExitStatus implements the interface of fault.ExitCode.
func (s ExitStatus) ExitStatus() int { return int(s) }

// signaled is added to the number of the signal that ended a command, as shells do.
const signaled = 128

// runCommand runs the program and returns its exit status as an ExitStatus, or nil for 0. Signals that
// would end decamp are passed to the program, which decides when it ends.
func (e *Export) runCommand(ctx context.Context) error {
	words := e.options.Command
	if len(words) == 1 {
		words = []string{"/bin/sh", "-c", words[0]}
	}
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(childenv.Of(os.Environ(), "TERM", "LIBGUESTFS_*"), e.variables()...)
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, passedSignals()...)
	defer signal.Stop(signals)
	if err := ctx.Err(); err != nil { // a signal came before
		return err
	}
	if err := cmd.Start(); err != nil {
		return fault.New(fault.NotFound, "run the command: %w", err).WithHint("name a program that exists after --, or one text for the shell")
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			if s != os.Interrupt || !isForeground() { // a terminal sends Ctrl-C to the program as well
				_ = cmd.Process.Signal(s) // it may have ended
			}
		case err := <-ended:
			return exitStatus(err)
		}
	}
}

// variables are the variables that name the exports: NBD_URI for the first one, and NBD_URI_2000 for that
// of disk 2000.
func (e *Export) variables() []string {
	f := e.Facts()
	list := []string{"NBD_URI=" + f.URI}
	for _, x := range f.Exports {
		list = append(list, fmt.Sprintf("NBD_URI_%d=%s", x.Disk, x.URI))
	}
	return list
}

// passedSignals are the signals that end decamp, except an ignored SIGHUP.
func passedSignals() []os.Signal {
	list := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		list = append(list, syscall.SIGHUP)
	}
	return list
}

// isForeground reports whether the terminal of this process sends signals of its keys to its process
// group.
func isForeground() bool {
	terminal, err := os.Open("/dev/tty")
	if err != nil {
		return false // no terminal
	}
	defer terminal.Close()
	group, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// exitStatus converts the result of a program.
func exitStatus(err error) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	status, _ := exit.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return ExitStatus(signaled + int(status.Signal()))
	}
	return ExitStatus(exit.ExitCode())
}
