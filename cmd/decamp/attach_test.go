package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/test/pty"
)

// fakeConsole is a console with the guest at the other end of the connection.
type fakeConsole struct {
	net.Conn
	readErr error // error of Read in place of EOF
	closed  chan struct{}
}

func newConsolePair() (*fakeConsole, net.Conn) {
	ours, guest := net.Pipe()
	return &fakeConsole{Conn: ours, closed: make(chan struct{})}, guest
}

func (f *fakeConsole) Read(p []byte) (int, error) {
	n, err := f.Conn.Read(p)
	if err == io.EOF && f.readErr != nil {
		err = f.readErr
	}
	return n, err
}

func (f *fakeConsole) Close() error {
	close(f.closed) // panics at a second call
	return f.Conn.Close()
}

// wantInput checks the next input of the guest.
func wantInput(t *testing.T, guest io.Reader, text string) {
	t.Helper()
	p := make([]byte, len(text))
	if _, err := io.ReadFull(guest, p); err != nil || string(p) != text {
		t.Errorf("the guest received %q, %v, want %q", p, err, text)
	}
}

// terminalSettings returns the settings of a terminal.
func terminalSettings(t *testing.T, f *os.File) unix.Termios {
	t.Helper()
	got, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *got
}

// newTerminalProgram returns a program whose input and output are a terminal.
func newTerminalProgram(t *testing.T) (*testProgram, *pty.Person, *os.File) {
	t.Helper()
	r, p := newTestProgram(t), pty.New(t)
	near := p.Open()
	r.in, r.program.out.Writer, r.terminal = near, near, terminalOf(p)
	return r, p, near
}

// newConsoleCommand returns a console command with the streams of r.
func newConsoleCommand(r *testProgram) *consoleCommand {
	return &consoleCommand{in: r.in, out: r.program.out, terminal: r.terminal}
}

// The guest receives each key except Ctrl-], which detaches. The terminal shows the output of the guest. Keys before
// Ctrl-] are not lost.
func TestConsoleDetachKey(t *testing.T) {
	r, p, near := newTerminalProgram(t)
	before := terminalSettings(t, near)
	console, guest := newConsolePair()
	ended := make(chan error)
	go func() { ended <- newConsoleCommand(r).attachTerminal(t.Context(), "web\x1b01", console) }()
	fmt.Fprint(guest, "\x1b[31mlogin: ")
	p.Sees("\x1b[31mlogin: ")
	const keys = "root\r\x03\x1a\x04\x1c\x1b[A\n" // Ctrl-C, Ctrl-Z, Ctrl-D, Ctrl-\ and an arrow key
	p.Types(keys)
	wantInput(t, guest, keys)
	if now := terminalSettings(t, near); now.Lflag&(unix.ECHO|unix.ISIG|unix.ICANON) != 0 {
		t.Errorf("got local flags %x, want a raw terminal", now.Lflag)
	}
	received := make(chan struct{})
	go func() { // the keys are sent for a second after Ctrl-]
		defer close(received)
		wantInput(t, guest, "last")
	}()
	p.Types("last\x1dnot this")
	<-received
	if err := <-ended; err != nil {
		t.Error(err)
	}
	<-console.closed
	if left, err := io.ReadAll(guest); err != nil || len(left) > 0 {
		t.Errorf("the guest received %q after Ctrl-], %v", left, err)
	}
	if now := terminalSettings(t, near); now != before {
		t.Errorf("got terminal settings %+v, want %+v", now, before)
	}
	mustContain(t, r.stderr(), "Connected to the console of web?01. Press Ctrl-] to detach.\n", "Detached from")
}

// The terminal gets its settings back after each end of the connection.
func TestTerminalIsRestored(t *testing.T) {
	broken := fault.New(fault.Transient, "the connection broke")
	for name, test := range map[string]struct {
		end     func(*fakeConsole, net.Conn, context.CancelFunc)
		wantErr func(error) bool
		message string
	}{
		"the VM is off": {func(_ *fakeConsole, guest net.Conn, _ context.CancelFunc) { guest.Close() }, func(err error) bool { return err == nil }, "web01 is off"},
		"an error": {func(c *fakeConsole, guest net.Conn, _ context.CancelFunc) { c.readErr = broken; guest.Close() },
			func(err error) bool { return errors.Is(err, broken) }, ""},
		"a signal": {func(_ *fakeConsole, _ net.Conn, cancel context.CancelFunc) { cancel() }, func(err error) bool { return fault.Is(err, fault.Canceled) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r, p, near := newTerminalProgram(t)
			before := terminalSettings(t, near)
			console, guest := newConsolePair()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error)
			go func() { ended <- newConsoleCommand(r).attachTerminal(ctx, "web01", console) }()
			p.Types("x")
			wantInput(t, guest, "x")
			test.end(console, guest, cancel)
			if err := <-ended; !test.wantErr(err) {
				t.Error(err)
			}
			if now := terminalSettings(t, near); now != before {
				t.Errorf("got terminal settings %+v, want %+v", now, before)
			}
			mustContain(t, r.stderr(), test.message)
		})
	}
}

// panickingConsole is a console whose Read panics.
type panickingConsole struct{ *fakeConsole }

func (panickingConsole) Read([]byte) (int, error) { panic("panic of the test") }

func TestTerminalIsRestoredAfterAPanic(t *testing.T) {
	r, _, near := newTerminalProgram(t)
	before := terminalSettings(t, near)
	console, _ := newConsolePair()
	func() {
		defer func() {
			if r := recover(); !strings.Contains(fmt.Sprint(r), "panic of the test") {
				t.Errorf("recovered %v", r)
			}
		}()
		_ = newConsoleCommand(r).attachTerminal(t.Context(), "web01", panickingConsole{console})
	}()
	if now := terminalSettings(t, near); now != before {
		t.Errorf("got terminal settings %+v, want %+v", now, before)
	}
}

// Without a terminal, the guest receives each byte of the standard input. The end of the input does not detach. Control
// characters of the guest are replaced in the output.
func TestConsoleWithoutATerminal(t *testing.T) {
	r := newTestProgram(t)
	in, typed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	r.in = in
	console, guest := newConsolePair()
	ended := make(chan error)
	go func() { ended <- newConsoleCommand(r).attachTerminal(t.Context(), "web01", console) }()
	text := "a\x1db" + strings.Repeat("long ", 8<<10)
	go func() {
		defer typed.Close()
		fmt.Fprint(typed, text)
	}()
	wantInput(t, guest, text)
	fmt.Fprint(guest, "caf\xc3\xa9\t\x1b[2J\x07\x7f\r\n")
	fmt.Fprint(guest, "\xc2")
	fmt.Fprint(guest, "\x9b31m \xe2\x80\x93 end\n") // a control sequence in UTF-8, and a dash
	guest.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if want := "café\t?[2J??\r\n\xc2?31m – end\n"; r.out.String() != want {
		t.Errorf("got output %q, want %q", r.out, want)
	}
	mustContain(t, r.stderr(), "web01 is off")
}
