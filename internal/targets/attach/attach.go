// Package attach connects a terminal, or any input and output, with the serial console of a VM.
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

// detachKey is Ctrl-], the escape character of telnet and virsh console.
const detachKey = 0x1d

const (
	keyReadSize = 4 << 10 // maximum bytes of input per read
	keyQueueLen = 64      // number of reads that can wait for the guest

	// sendTimeout limits the wait for input typed before the detachKey to reach the guest.
	sendTimeout = time.Second
)

// ErrLeft is returned by Run after the user pressed the detach key.
var ErrLeft = errors.New("the console was left")

// errContinue is returned by a goroutine of an attachment whose end does not end the attachment.
var errContinue = errors.New("the others go on")

// Terminal is the terminal of the user.
type Terminal interface {
	io.Reader
	// Raw sets the terminal to raw mode, in which Read returns each key when it is typed. restore undoes
	// it.
	Raw() (restore func() error, err error)
	SetReadDeadline(time.Time) error // SetReadDeadline makes pending and later reads fail after the given time.
}

// Attachment copies input to a console, and the console's output to a writer. Run or RunTyped can be
// called once.
type Attachment struct {
	console     io.ReadWriteCloser // closed by Run
	keys        io.Reader          // input for the guest
	screen      io.Writer          // receives the output of the guest
	typed       bool               // input is typed by a user: the detachKey ends Run, and input is dropped while the queue is full
	beforeClose func()             // called once when Run is about to end, before it closes the console

	queue chan []byte    // input that the guest has not read; closed by readKeys
	sent  chan struct{}  // closed by sendKeys when it returns
	stop  chan struct{}  // closed by Run to end the goroutines
	ends  chan sideEnd   // buffered, with room for one result of each goroutine
	sides sync.WaitGroup // copyOutput and sendKeys; readKeys may block in a read forever and is not waited for
}

// sideEnd is the result of one goroutine of an attachment.
type sideEnd struct {
	err      error // result; nil if the console's output ended
	panicked any   // panic value with its stack; nil if the goroutine returned
}

// New returns an attachment of keys and screen to a console. Run closes the console.
func New(console io.ReadWriteCloser, keys io.Reader, screen io.Writer) *Attachment {
	return &Attachment{
		console: console, keys: keys, screen: screen, beforeClose: func() {},
		queue: make(chan []byte, keyQueueLen), sent: make(chan struct{}), stop: make(chan struct{}), ends: make(chan sideEnd, 3),
	}
}

// RunTyped is Run with the keys of a terminal in raw mode. It restores the terminal before it returns,
// also after an error or a panic.
func (t *Attachment) RunTyped(ctx context.Context, tty Terminal) (err error) {
	restore, err := tty.Raw()
	if err != nil {
		return errors.Join(fmt.Errorf("set the terminal to raw mode: %w", err), t.console.Close())
	}
	restore = sync.OnceValue(restore)
	defer func() { err = errors.Join(err, restore()) }() // also after a panic
	t.typed, t.keys = true, tty
	t.beforeClose = func() {
		_ = restore() // the deferred call returns its error
		_ = tty.SetReadDeadline(time.Unix(1, 0))
	}
	return t.Run(ctx)
}

// Run copies until the VM is off, and then returns nil. It returns ErrLeft after the user pressed the
// detachKey, and ctx.Err() after ctx is canceled. The end of untyped input does not end Run.
// A goroutine that is blocked in keys.Read can outlive Run.
func (t *Attachment) Run(ctx context.Context) error {
	t.sides.Go(func() { t.runSide(t.copyOutput) })
	t.sides.Go(func() { t.runSide(t.sendKeys) })
	go t.runSide(t.readKeys)
	end := sideEnd{}
	select {
	case <-ctx.Done():
		end.err = ctx.Err()
	case end = <-t.ends:
	}
	t.beforeClose()
	if errors.Is(end.err, ErrLeft) {
		select {
		case <-t.sent:
		case <-time.After(sendTimeout):
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

// runSide runs f and sends its result to t.ends. It passes a panic to Run, which must first restore the
// terminal.
func (t *Attachment) runSide(f func() error) {
	defer func() {
		if r := recover(); r != nil {
			t.ends <- sideEnd{panicked: fmt.Sprintf("%v\n%s", r, debug.Stack())}
		}
	}()
	if err := f(); err != errContinue {
		t.ends <- sideEnd{err: err}
	}
}

// copyOutput copies the output of the guest to the screen until the console ends.
func (t *Attachment) copyOutput() error {
	_, err := io.Copy(t.screen, t.console)
	return err
}

// sendKeys writes queued input to the console. It returns after a failed write without the error,
// because copyOutput returns the cause.
func (t *Attachment) sendKeys() error {
	defer close(t.sent)
	for {
		select {
		case p, more := <-t.queue:
			if !more {
				return errContinue
			}
			if _, err := t.console.Write(p); err != nil {
				return errContinue
			}
		case <-t.stop:
			return errContinue
		}
	}
}

// readKeys reads input and queues it, until the input ends or the user presses the detachKey.
func (t *Attachment) readKeys() error {
	defer close(t.queue)
	for {
		p := make([]byte, keyReadSize)
		n, err := t.keys.Read(p)
		left := t.typed && bytes.IndexByte(p[:n], detachKey) >= 0
		if left {
			n = bytes.IndexByte(p[:n], detachKey)
		}
		t.queueKeys(p[:n])
		switch {
		case left, t.typed && err == io.EOF:
			return ErrLeft
		case err == io.EOF:
			return errContinue
		case err != nil:
			return fmt.Errorf("read the input: %w", err)
		}
	}
}

// queueKeys queues input for the guest. For a user it never blocks: if the queue is full, it drops the
// input and
// rings the bell, so that the detachKey works while the guest reads nothing.
func (t *Attachment) queueKeys(p []byte) {
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

// Harmless is a writer that replaces control characters by "?", except newlines and tabs. So the text
// contains no
// escape sequences for the terminal that displays it later.
type Harmless struct {
	To    io.Writer // receives the filtered text
	c1Led bool      // the last byte was 0xC2, which begins the UTF-8 form of C1 control characters
}

// Write filters p and writes it to h.To. It does not modify p.
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
