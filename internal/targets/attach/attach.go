// Package attach joins keys and a screen with the serial console of a VM.
package attach

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"time"
)

// detachKey is Ctrl-], as telnet and virsh have it.
const detachKey = 0x1d

const (
	keysAtOnce = 4 << 10 // bytes
	keysAhead  = 64      // of those that a guest has not read yet

	// typedLast is how long what was typed before the detachKey may take to reach the guest.
	typedLast = time.Second
)

// ErrLeft is how an attachment ends that a person left with the detach key.
var ErrLeft = errors.New("the console was left")

// errNoEnd is how a side of an attachment ends that is not to end the others.
var errNoEnd = errors.New("the others go on")

// Terminal is a terminal that a person types at.
type Terminal interface {
	io.Reader
	Raw() (restore func() error, err error) // each key is passed on as it is typed, until restore
	SetReadDeadline(time.Time) error
}

// Attachment passes keys on to a console, and what that says to a screen. It serves for one Run or RunTyped.
type Attachment struct {
	console io.ReadWriteCloser
	keys    io.Reader
	screen  io.Writer
	typed   bool   // by a person: the detachKey leaves, and keys that are too many are dropped
	leave   func() // called as soon as it is to end, before the console is closed

	queue chan []byte   // of keys; closed by listen
	sent  chan struct{} // closed by pass, once all keys are passed on
	stop  chan struct{} // closed by Run
	ends  chan parting  // has room for one of each side
	sides sync.WaitGroup
}

// A parting is how one side of an attachment ended.
type parting struct {
	err      error
	panicked any
}

// New returns the attachment of keys and a screen to a console, which it closes in the end.
func New(console io.ReadWriteCloser, keys io.Reader, screen io.Writer) *Attachment {
	return &Attachment{
		console: console, keys: keys, screen: screen, leave: func() {},
		queue: make(chan []byte, keysAhead), sent: make(chan struct{}), stop: make(chan struct{}), ends: make(chan parting, 3),
	}
}

// RunTyped is Run with the keys of a terminal, each passed on as it is typed. The terminal is as before when it
// returns, however that comes.
func (t *Attachment) RunTyped(ctx context.Context, tty Terminal) (err error) {
	restore, err := tty.Raw()
	if err != nil {
		return errors.Join(fmt.Errorf("set the terminal up: %w", err), t.console.Close())
	}
	restore = sync.OnceValue(restore)
	defer func() { err = errors.Join(err, restore()) }() // also after a panic
	t.typed, t.keys = true, tty
	t.leave = func() {
		_ = restore() // its error is told in the end
		_ = tty.SetReadDeadline(time.Unix(1, 0))
	}
	return t.Run(ctx)
}

// Run returns nil once the VM is off, and ErrLeft once a person has left. The end of an input that nobody types ends
// nothing. A reader of keys that cannot be woken stays behind.
func (t *Attachment) Run(ctx context.Context) error {
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
	if errors.Is(end.err, ErrLeft) {
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

// side tells how f ended. It panics in Run, which has a terminal to restore.
func (t *Attachment) side(f func() error) {
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
func (t *Attachment) show() error {
	_, err := io.Copy(t.screen, t.console)
	return err
}

// pass passes keys on. Why that cannot be done any more is told by show.
func (t *Attachment) pass() error {
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
func (t *Attachment) listen() error {
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
			return ErrLeft
		case err == io.EOF:
			return errNoEnd
		case err != nil:
			return fmt.Errorf("read what is typed: %w", err)
		}
	}
}

// enqueue has keys wait for the guest to read them. A person whose guest does not hears a bell: the detachKey has to be
// seen whatever the guest does.
func (t *Attachment) enqueue(p []byte) {
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

// Harmless writes a ? in place of each control character but newlines and tabs: nothing of it is an order to
// the terminal that shows it some day.
type Harmless struct {
	To    io.Writer
	c1Led bool // the last byte may begin one of the control characters that UTF-8 has in two
}

func (h *Harmless) Write(p []byte) (int, error) {
	clean := bytes.Clone(p)
	for i, b := range clean {
		switch {
		case b == '\n' || b == '\r' || b == '\t':
		case b < ' ' || b == 0x7f || h.c1Led && b >= 0x80 && b < 0xa0:
			clean[i] = '?'
		}
		h.c1Led = b == 0xc2
	}
	return h.To.Write(clean)
}
