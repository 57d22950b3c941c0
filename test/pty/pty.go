// Package pty acts as the user of a terminal in tests: it types keys and reads output. A failure ends the test.
package pty

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Person is the user of a pseudo terminal of 120 columns and 24 rows.
type Person struct {
	Near string // path of the terminal that programs open

	t    *testing.T // test that the terminal belongs to
	far  *os.File   // master side of the terminal
	seen []byte     // output that Sees has read
}

// New returns the user of a new terminal, which is closed at the end of the test.
func New(t *testing.T) *Person {
	t.Helper()
	far, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	p := &Person{t: t, far: far}
	conn, err := far.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if controlErr := conn.Control(func(fd uintptr) { err = p.setUp(int(fd)) }); controlErr != nil || err != nil {
		t.Fatal(controlErr, err)
	}
	return p
}

// setUp unlocks the terminal, finds its name and sets its size.
func (p *Person) setUp(fd int) error {
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil { // unlock, see ioctl_tty(2)
		return fmt.Errorf("unlock: %w", err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN) // number of the terminal
	if err != nil {
		return fmt.Errorf("find near end: %w", err)
	}
	p.Near = fmt.Sprintf("/dev/pts/%d", n)
	return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 120})
}

// Open opens the terminal. It is closed at the end of the test.
func (p *Person) Open() *os.File {
	p.t.Helper()
	f, err := os.OpenFile(p.Near, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { f.Close() })
	return f
}

// Sees reads output until it ends in text.
func (p *Person) Sees(text string) {
	p.t.Helper()
	for !strings.HasSuffix(string(p.seen), text) {
		var b [1]byte
		if _, err := p.far.Read(b[:]); err != nil {
			p.t.Fatalf("waiting for %q, seen %q: %v", text, p.seen, err)
		}
		p.seen = append(p.seen, b[0])
	}
}

// Seen returns the output that Sees has read.
func (p *Person) Seen() string { return string(p.seen) }

// Types sends keys; a newline is Enter.
func (p *Person) Types(keys string) {
	p.t.Helper()
	if _, err := io.WriteString(p.far, keys); err != nil {
		p.t.Fatal(err)
	}
}
