package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/fault"
)

// person is the far end of a pseudo terminal: it types, and sees what is shown.
type person struct {
	t    *testing.T
	far  *os.File
	near string // path of the near end
	seen []byte
}

func newPerson(t *testing.T) *person {
	t.Helper()
	far, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	p := &person{t: t, far: far}
	conn, err := far.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = conn.Control(func(fd uintptr) {
		if err := unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err != nil {
			t.Error(err)
		}
		n, err := unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		if err != nil {
			t.Error(err)
		}
		if err := unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 120}); err != nil {
			t.Error(err)
		}
		p.near = fmt.Sprintf("/dev/pts/%d", n)
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// terminal opens the near end, as openTerminal opens /dev/tty.
func (p *person) terminal() (*terminal, error) {
	f, err := os.OpenFile(p.near, os.O_RDWR|unix.O_NOCTTY, 0)
	return &terminal{f}, err
}

// sees reads what is shown until it ends in text.
func (p *person) sees(text string) {
	p.t.Helper()
	for !strings.HasSuffix(string(p.seen), text) {
		var b [1]byte
		if _, err := p.far.Read(b[:]); err != nil {
			p.t.Fatalf("waiting for %q, seen %q: %v", text, p.seen, err)
		}
		p.seen = append(p.seen, b[0])
	}
}

func (p *person) types(text string) {
	p.t.Helper()
	if _, err := io.WriteString(p.far, text); err != nil {
		p.t.Fatal(err)
	}
}

// answer runs f while the person waits for prompt and types.
func (p *person) answer(prompt, typed string, f func()) {
	p.t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	p.sees(prompt)
	p.types(typed)
	<-done
}

func TestPasswordIsAskedForWithoutEcho(t *testing.T) {
	r, p := newRig(t), newPerson(t)
	hold, err := p.terminal() // keeps the near end there between two openings
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Close()
	r.tty = p.terminal
	p.answer("Password for root@esx1: ", " open sesame \n", func() {
		if got, err := r.password(t.Context(), "root@esx1", ""); err != nil || got != " open sesame " {
			t.Errorf("got %q, %v", got, err)
		}
	})
	fmt.Fprint(hold.f, "end")
	p.sees("end")
	if strings.Contains(string(p.seen), "sesame") {
		t.Errorf("the password was echoed: %q", p.seen)
	}
	p.types("visible\n")
	p.sees("visible\r\n") // echo is on again
}

func TestQuestionEndsWithItsContext(t *testing.T) {
	p := newPerson(t)
	term, err := p.terminal()
	if err != nil {
		t.Fatal(err)
	}
	defer term.Close()
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan error, 1)
	go func() {
		_, err := term.askSecret(ctx, "Password: ")
		asked <- err
	}()
	p.sees("Password: ")
	cancel()
	if err := <-asked; !fault.Is(err, fault.Canceled) {
		t.Errorf("got %v", err)
	}
}
