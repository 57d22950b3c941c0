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

// fakeConsole is the console of a guest that is at the other end of it.
type fakeConsole struct {
	net.Conn
	fails  error // in place of the end
	closed chan struct{}
}

func newConsolePair() (*fakeConsole, net.Conn) {
	ours, guest := net.Pipe()
	return &fakeConsole{Conn: ours, closed: make(chan struct{})}, guest
}

func (f *fakeConsole) Read(p []byte) (int, error) {
	n, err := f.Conn.Read(p)
	if err == io.EOF && f.fails != nil {
		err = f.fails
	}
	return n, err
}

func (f *fakeConsole) Close() error {
	close(f.closed) // twice is a panic
	return f.Conn.Close()
}

// hears reads what is typed to the guest.
func hears(t *testing.T, guest io.Reader, text string) {
	t.Helper()
	p := make([]byte, len(text))
	if _, err := io.ReadFull(guest, p); err != nil || string(p) != text {
		t.Errorf("the guest heard %q, %v, want %q", p, err, text)
	}
}

// settings of a terminal, to compare.
func settings(t *testing.T, f *os.File) unix.Termios {
	t.Helper()
	got, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *got
}

// seated is a rig whose person sits at a terminal, which shows all there is.
func seated(t *testing.T) (*rig, *pty.Person, *os.File) {
	t.Helper()
	r, p := newRig(t), pty.New(t)
	near := p.Open()
	r.in, r.program.out.Writer, r.terminal = near, near, terminalOf(p)
	return r, p, near
}

// consoleOf returns the command that attaches with the streams of a rig.
func consoleOf(r *rig) *consoleCommand {
	return &consoleCommand{in: r.in, out: r.program.out, terminal: r.terminal}
}

// Every key but one is the guest's, and all that it says the terminal's; what was typed before the one is not lost.
func TestConsoleIsLeftByItsKeyOnly(t *testing.T) {
	r, p, near := seated(t)
	before := settings(t, near)
	console, guest := newConsolePair()
	ended := make(chan error)
	go func() { ended <- consoleOf(r).attachTerminal(t.Context(), "web\x1b01", console) }()
	fmt.Fprint(guest, "\x1b[31mlogin: ")
	p.Sees("\x1b[31mlogin: ")
	const keys = "root\r\x03\x1a\x04\x1c\x1b[A\n" // an interrupt, a stop, an end, a quit, an arrow
	p.Types(keys)
	hears(t, guest, keys)
	if now := settings(t, near); now.Lflag&(unix.ECHO|unix.ISIG|unix.ICANON) != 0 {
		t.Errorf("flags %x", now.Lflag)
	}
	p.Types("last\x1dnot this")
	hears(t, guest, "last")
	if err := <-ended; err != nil {
		t.Error(err)
	}
	<-console.closed
	if left, err := io.ReadAll(guest); err != nil || len(left) > 0 {
		t.Errorf("the guest heard %q after the key, %v", left, err)
	}
	if now := settings(t, near); now != before {
		t.Errorf("the terminal is %+v and was %+v", now, before)
	}
	mustContain(t, r.stderr(), "Connected to the console of web?01. Press Ctrl-] to detach.\n", "Detached from")
}

// However it ends, the terminal is as before.
func TestTerminalIsRestored(t *testing.T) {
	broken := fault.New(fault.Transient, "the connection broke")
	for name, test := range map[string]struct {
		end  func(*fakeConsole, net.Conn, context.CancelFunc)
		good func(error) bool
		says string
	}{
		"the VM is off": {func(_ *fakeConsole, guest net.Conn, _ context.CancelFunc) { guest.Close() }, func(err error) bool { return err == nil }, "web01 is off"},
		"an error": {func(c *fakeConsole, guest net.Conn, _ context.CancelFunc) { c.fails = broken; guest.Close() },
			func(err error) bool { return errors.Is(err, broken) }, ""},
		"a signal": {func(_ *fakeConsole, _ net.Conn, cancel context.CancelFunc) { cancel() }, func(err error) bool { return fault.Is(err, fault.Canceled) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r, p, near := seated(t)
			before := settings(t, near)
			console, guest := newConsolePair()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error)
			go func() { ended <- consoleOf(r).attachTerminal(ctx, "web01", console) }()
			p.Types("x")
			hears(t, guest, "x")
			test.end(console, guest, cancel)
			if err := <-ended; !test.good(err) {
				t.Error(err)
			}
			if now := settings(t, near); now != before {
				t.Errorf("the terminal is %+v and was %+v", now, before)
			}
			mustContain(t, r.stderr(), test.says)
		})
	}
}

// mad panics where it is read.
type mad struct{ *fakeConsole }

func (mad) Read([]byte) (int, error) { panic("out of its mind") }

func TestTerminalIsRestoredAfterAPanic(t *testing.T) {
	r, _, near := seated(t)
	before := settings(t, near)
	console, _ := newConsolePair()
	func() {
		defer func() {
			if r := recover(); !strings.Contains(fmt.Sprint(r), "out of its mind") {
				t.Errorf("recovered %v", r)
			}
		}()
		_ = consoleOf(r).attachTerminal(t.Context(), "web01", mad{console})
	}()
	if now := settings(t, near); now != before {
		t.Errorf("the terminal is %+v and was %+v", now, before)
	}
}

// What is no terminal is typed to its end, which ends nothing, with every byte of it; what is said becomes harmless.
func TestConsoleWithoutATerminal(t *testing.T) {
	r := newRig(t)
	in, typed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	r.in = in
	console, guest := newConsolePair()
	ended := make(chan error)
	go func() { ended <- consoleOf(r).attachTerminal(t.Context(), "web01", console) }()
	text := "a\x1db" + strings.Repeat("long ", 8<<10)
	go func() {
		defer typed.Close()
		fmt.Fprint(typed, text)
	}()
	hears(t, guest, text)
	fmt.Fprint(guest, "caf\xc3\xa9\t\x1b[2J\x07\x7f\r\n")
	fmt.Fprint(guest, "\xc2")
	fmt.Fprint(guest, "\x9b31m \xe2\x80\x93 end\n") // a control sequence in UTF-8, and a dash
	guest.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if want := "café\t?[2J??\r\n\xc2?31m – end\n"; r.out.String() != want {
		t.Errorf("%q, want %q", r.out, want)
	}
	mustContain(t, r.stderr(), "web01 is off")
}
