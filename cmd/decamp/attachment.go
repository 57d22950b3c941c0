package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// detachKey is Ctrl-], as telnet and virsh have it.
const detachKey = 0x1d

const (
	keysAtOnce = 4 << 10 // bytes
	keysAhead  = 64      // of those that a guest has not read yet

	// typedLast is how long what was typed before the detachKey may take to reach the guest.
	typedLast = time.Second
)

// errLeft is how an attachment ends that somebody left.
var errLeft = errors.New("the console was left")

// errNoEnd is how a side of an attachment ends that is not to end the others.
var errNoEnd = errors.New("the others go on")

// attach joins this process's terminal, or its input and output, with the console of the VM called name, and closes
// that. The terminal is as before when it returns, however that comes.
func (a *app) attach(ctx context.Context, name string, console io.ReadWriteCloser) error {
	t := newAttachment(console, a.in, a.out)
	if !isTerminal(a.outFile()) {
		t.screen = &harmless{to: a.out}
	}
	if isTerminal(a.in) {
		tty, err := a.terminal()
		if err != nil {
			return errors.Join(fmt.Errorf("open the terminal: %w", err), console.Close())
		}
		fmt.Fprintf(a.err, "Connected to the console of %s. Ctrl-] leaves it.\n", plain(name))
		err = errors.Join(t.runTyped(ctx, tty), tty.Close())
		return a.tellEnd(ctx, name, err)
	}
	return a.tellEnd(ctx, name, t.run(ctx))
}

// tellEnd says how an attachment ended. That a person left it is no error.
func (a *app) tellEnd(ctx context.Context, name string, err error) error {
	switch {
	case ctx.Err() != nil:
		return fault.Wrap(fault.Canceled, errLeft)
	case errors.Is(err, errLeft):
		fmt.Fprintf(a.err, "\nThe console of %s is left.\n", plain(name))
		return nil
	case err == nil:
		fmt.Fprintf(a.err, "\n%s is off.\n", plain(name))
	}
	return err
}

// An attachment passes keys on to a console, and what that says to a screen.
type attachment struct {
	console io.ReadWriteCloser
	keys    io.Reader
	screen  io.Writer
	typed   bool   // by a person: the detachKey leaves, and keys that are too many are dropped
	leave   func() // called as soon as it is to end, before the console is closed

	queue chan []byte   // of keys; closed by listen
	sent  chan struct{} // closed by pass, once all keys are passed on
	stop  chan struct{} // closed by run
	ends  chan parting  // has room for one of each side
	sides sync.WaitGroup
}

// A parting is how one side of an attachment ended.
type parting struct {
	err      error
	panicked any
}

func newAttachment(console io.ReadWriteCloser, keys io.Reader, screen io.Writer) *attachment {
	return &attachment{
		console: console, keys: keys, screen: screen, leave: func() {},
		queue: make(chan []byte, keysAhead), sent: make(chan struct{}), stop: make(chan struct{}), ends: make(chan parting, 3),
	}
}

// runTyped is run with the keys of a terminal, each passed on as it is typed.
func (t *attachment) runTyped(ctx context.Context, tty *terminal) (err error) {
	restore, err := tty.raw()
	if err != nil {
		return errors.Join(fmt.Errorf("set the terminal up: %w", err), t.console.Close())
	}
	restore = sync.OnceValue(restore)
	defer closing(&err, restore) // also after a panic
	t.typed, t.keys = true, tty.f
	t.leave = func() {
		_ = restore() // its error is told in the end
		_ = tty.f.SetReadDeadline(time.Unix(1, 0))
	}
	return t.run(ctx)
}

// run returns nil once the VM is off, and errLeft once a person has left. The end of an input that nobody types ends
// nothing. A reader of keys that cannot be woken stays behind.
func (t *attachment) run(ctx context.Context) error {
	t.sides.Go(func() { t.side(t.show) })
	t.sides.Go(func() { t.side(t.pass) })
	go t.side(t.listen)
	end := parting{}
	select {
	case <-ctx.Done():
		end.err = ctx.Err()
	case end = <-t.ends:
	}
	t.leave()
	if errors.Is(end.err, errLeft) {
		select {
		case <-t.sent:
		case <-time.After(typedLast):
		}
	}
	close(t.stop)
	err := t.console.Close()
	t.sides.Wait()
	if end.panicked != nil {
		panic(end.panicked)
	}
	return errors.Join(end.err, err)
}

// side tells how f ended. It panics in run, which has a terminal to restore.
func (t *attachment) side(f func() error) {
	defer func() {
		if r := recover(); r != nil {
			t.ends <- parting{panicked: fmt.Sprintf("%v\n%s", r, debug.Stack())}
		}
	}()
	if err := f(); err != errNoEnd {
		t.ends <- parting{err: err}
	}
}

// show has the screen show what the guest says.
func (t *attachment) show() error {
	_, err := io.Copy(t.screen, t.console)
	return err
}

// pass passes keys on. Why that cannot be done any more is told by show.
func (t *attachment) pass() error {
	defer close(t.sent)
	for {
		select {
		case p, more := <-t.queue:
			if !more {
				return errNoEnd
			}
			if _, err := t.console.Write(p); err != nil {
				return errNoEnd
			}
		case <-t.stop:
			return errNoEnd
		}
	}
}

// listen reads keys.
func (t *attachment) listen() error {
	defer close(t.queue)
	for {
		p := make([]byte, keysAtOnce)
		n, err := t.keys.Read(p)
		left := t.typed && bytes.IndexByte(p[:n], detachKey) >= 0
		if left {
			n = bytes.IndexByte(p[:n], detachKey)
		}
		t.enqueue(p[:n])
		switch {
		case left, t.typed && err == io.EOF:
			return errLeft
		case err == io.EOF:
			return errNoEnd
		case err != nil:
			return fmt.Errorf("read what is typed: %w", err)
		}
	}
}

// enqueue has keys wait for the guest to read them. A person whose guest does not hears a bell: the detachKey has to be
// seen whatever the guest does.
func (t *attachment) enqueue(p []byte) {
	if len(p) == 0 {
		return
	}
	if t.typed {
		select {
		case t.queue <- p:
		default:
			_, _ = io.WriteString(t.screen, "\a")
		}
		return
	}
	select {
	case t.queue <- p:
	case <-t.stop:
	case <-t.sent:
	}
}

// harmless writes a ? in place of each control character but newlines and tabs: nothing of it is an order to
// the terminal that shows it some day.
type harmless struct {
	to    io.Writer
	c1Led bool // the last byte may begin one of the control characters that UTF-8 has in two
}

func (h *harmless) Write(p []byte) (int, error) {
	clean := bytes.Clone(p)
	for i, b := range clean {
		switch {
		case b == '\n' || b == '\r' || b == '\t':
		case b < ' ' || b == 0x7f || h.c1Led && b >= 0x80 && b < 0xa0:
			clean[i] = '?'
		}
		h.c1Led = b == 0xc2
	}
	return h.to.Write(clean)
}
