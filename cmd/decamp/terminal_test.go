package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/terminal"
	"github.com/decamp/decamp/test/pty"
)

// terminalOf returns a function that opens the terminal of p, as terminal.Open opens /dev/tty.
func terminalOf(p *pty.Person) func() (*terminal.Terminal, error) {
	return func() (*terminal.Terminal, error) {
		f, err := os.OpenFile(p.Near, os.O_RDWR|unix.O_NOCTTY, 0)
		return terminal.New(f), err
	}
}

// typeAnswer runs f. When the prompt appears, it types the text.
func typeAnswer(p *pty.Person, prompt, typed string, f func()) {
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	p.Sees(prompt)
	p.Types(typed)
	<-done
}

func TestPasswordPromptWithoutEcho(t *testing.T) {
	r, p := newTestProgram(t), pty.New(t)
	hold := p.Open() // keeps the terminal open
	r.terminal = terminalOf(p)
	typeAnswer(p, "Password for root@esx1: ", " open sesame \n", func() {
		if got, err := r.assembler.Password("root@esx1", "")(t.Context()); err != nil || got != " open sesame " {
			t.Errorf("got %q, %v", got, err)
		}
	})
	fmt.Fprint(hold, "end")
	p.Sees("end")
	if strings.Contains(p.Seen(), "sesame") {
		t.Errorf("the password was echoed: %q", p.Seen())
	}
	p.Types("visible\n")
	p.Sees("visible\r\n") // echo is enabled again
}

func TestEmptyPasswordIsRefused(t *testing.T) {
	for name, typed := range map[string]string{"nothing": "\n", "Ctrl-D": "\x04"} {
		r, p := newTestProgram(t), pty.New(t)
		p.Open() // keeps the terminal open
		r.terminal = terminalOf(p)
		typeAnswer(p, "Password for root@esx1: ", typed, func() {
			if got, err := r.assembler.Password("root@esx1", "")(t.Context()); !fault.Is(err, fault.Invalid) {
				t.Errorf("%s: got password %q, %v; want an error", name, got, err)
			}
		})
	}
}
