// Package terminal asks questions on the controlling terminal, and keeps messages above progress bars.
package terminal

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/decamp/decamp/internal/fault"
)

// Terminal is the controlling terminal. Prompts use it instead of the standard input, which may be a
// pipe.
type Terminal struct{ file *os.File }

// New returns the terminal of an open file.
func New(f *os.File) *Terminal { return &Terminal{file: f} }

// Open opens the controlling terminal. It fails under cron, systemd and most CI systems, which
// have none.
func Open() (*Terminal, error) {
	f, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return New(f), nil
}

// Close closes the terminal.
func (t *Terminal) Close() error { return t.file.Close() }

// Ask prints the prompt and returns the line that the user enters, without the newline. It returns
// fault.Canceled when ctx ends.
func (t *Terminal) Ask(ctx context.Context, prompt string) (string, error) {
	if _, err := fmt.Fprint(t.file, prompt); err != nil {
		return "", err
	}
	stop := context.AfterFunc(ctx, func() { _ = t.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	line, err := bufio.NewReader(t.file).ReadString('\n')
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return "", fault.Wrap(fault.Canceled, ctx.Err())
	}
	if errors.Is(err, io.EOF) {
		return "", fault.New(fault.Invalid, "no answer to the question")
	}
	return strings.TrimRight(line, "\r\n"), err
}

// AskSecret is Ask without echo. It restores the settings of the terminal.
func (t *Terminal) AskSecret(ctx context.Context, prompt string) (string, error) {
	before, err := t.setEcho(nil)
	if err != nil {
		return "", fmt.Errorf("turn echo off: %w", err)
	}
	line, err := t.Ask(ctx, prompt)
	fmt.Fprintln(t.file) // the newline that was not echoed
	_, restored := t.setEcho(before)
	return line, errors.Join(err, restored)
}

// Read reads the input of the user.
func (t *Terminal) Read(p []byte) (int, error) { return t.file.Read(p) }

// SetReadDeadline ends reads at a time, including a blocked one.
func (t *Terminal) SetReadDeadline(at time.Time) error { return t.file.SetReadDeadline(at) }

// Raw sets raw mode until restore: each key is read at once, and output is not changed.
func (t *Terminal) Raw() (restore func() error, err error) {
	conn, err := t.file.SyscallConn()
	if err != nil {
		return nil, err
	}
	var before *term.State
	controlErr := conn.Control(func(fd uintptr) { before, err = term.MakeRaw(int(fd)) })
	if err = errors.Join(controlErr, err); err != nil {
		return nil, err
	}
	return func() error {
		controlErr := conn.Control(func(fd uintptr) { err = term.Restore(int(fd), before) })
		return errors.Join(controlErr, err)
	}, nil
}

// IsTerminal reports whether f is a terminal. A nil f is not.
func IsTerminal(f *os.File) bool {
	if f == nil {
		return false
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return false
	}
	is := false
	err = conn.Control(func(fd uintptr) { is = term.IsTerminal(int(fd)) })
	return err == nil && is
}

// setEcho turns echo off if settings are nil, and returns the previous settings. Otherwise it restores
// settings.
func (t *Terminal) setEcho(settings *unix.Termios) (before *unix.Termios, err error) {
	conn, err := t.file.SyscallConn()
	if err != nil {
		return nil, err
	}
	controlErr := conn.Control(func(fd uintptr) {
		if settings == nil {
			if before, err = unix.IoctlGetTermios(int(fd), unix.TCGETS); err != nil {
				return
			}
			quiet := *before
			quiet.Lflag &^= unix.ECHO
			settings = &quiet
		}
		err = unix.IoctlSetTermios(int(fd), unix.TCSETSF, settings)
	})
	return before, errors.Join(controlErr, err)
}
