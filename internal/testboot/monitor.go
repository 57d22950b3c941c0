package testboot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// A monitor is a client of QEMU's machine protocol, docs/interop/qmp-spec: JSON objects
// with commands and results in turn, and events between them.
type monitor struct {
	conn    net.Conn                             // connection to QEMU
	after   func(time.Duration) <-chan time.Time // timer
	answers chan answer                          // result of the last command
	done    chan struct{}                        // closed after QEMU closed the connection

	mu   sync.Mutex // held during a command, so that one runs at a time
	told eventLog   // events so far
}

// An answer is any object that QEMU sends.
type answer struct {
	Return json.RawMessage `json:"return"` // result of a command; nil for other objects
	// error of a command; nil for other objects
	Error *struct {
		Class string `json:"class"`
		Desc  string `json:"desc"`
	} `json:"error"`
	Event string `json:"event"` // name of an event; empty for other objects
	// details of an event
	Data struct {
		Guest  bool   `json:"guest"`  // whether the guest caused it
		Action string `json:"action"` // action of GUEST_PANICKED
		ID     string `json:"id"`     // VSERPORT_CHANGE: the channel that the guest has opened or closed
		Open   bool   `json:"open"`   // whether the guest has opened the channel
	} `json:"data"`
}

// events contains QEMU's reports about the guest.
type events struct {
	resets   int  // number of resets by the guest
	stopped  bool // the guest powered itself off
	panicked bool // the guest reported a panic
	agent    bool // the guest has opened the agent's channel
}

// An eventLog collects events. Its mutex protects them.
type eventLog struct {
	sync.Mutex
	events
}

// maxTold limits the output of QEMU in one trial, in bytes. A guest that controls QEMU
// may send without end.
const maxTold = 64 << 20

// errHungUp is the cause of errors after QEMU closed its monitor.
var errHungUp = errors.New("QEMU closed the connection")

// answerLimit is the limit of one command. A trial exceeds its deadline by at most this
// time.
const answerLimit = time.Minute

// newMonitor returns a client of QEMU's monitor and starts its reader, which ends when
// QEMU or the caller closes conn. after is the timer for the limit of commands.
func newMonitor(conn net.Conn, after func(time.Duration) <-chan time.Time) *monitor {
	m := &monitor{conn: conn, after: after, answers: make(chan answer, 1), done: make(chan struct{})}
	go m.readObjects()
	return m
}

// readObjects separates results from events until QEMU closes the connection.
func (m *monitor) readObjects() {
	defer close(m.done)
	defer m.conn.Close() // pending output is not needed any more
	for in := json.NewDecoder(io.LimitReader(m.conn, maxTold)); ; {
		var a answer
		if in.Decode(&a) != nil {
			return
		}
		switch {
		case a.Event != "":
			m.told.addEvent(a)
		case a.Return != nil || a.Error != nil:
			select {
			case m.answers <- a:
			// The channel has space for one answer, and one command runs at a time.
			default: // an answer after its time limit
			}
		}
	}
}

// addEvent records an event that shows the state of the guest.
func (l *eventLog) addEvent(a answer) {
	l.Lock()
	defer l.Unlock()
	switch a.Event {
	case "RESET":
		if a.Data.Guest {
			l.resets++
		}
	case "SHUTDOWN":
		l.stopped = l.stopped || a.Data.Guest
	case "GUEST_PANICKED":
		l.panicked = true
	case "VSERPORT_CHANGE":
		if a.Data.ID == agentID {
			l.agent = a.Data.Open
		}
	}
}

// snapshot returns a copy of the events so far.
func (l *eventLog) snapshot() events {
	l.Lock()
	defer l.Unlock()
	return l.events
}

// execute runs a command in QEMU and discards its result. If QEMU does not answer in
// time, the error is fault.Transient, and the caller must kill QEMU.
func (m *monitor) execute(ctx context.Context, command string, args any) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	text, err := json.Marshal(map[string]any{"execute": command, "arguments": args})
	if err != nil {
		return err
	}
	// A command is one JSON object; QMP needs no separator.
	if _, err := m.conn.Write(text); err != nil {
		return fmt.Errorf("%s: %w", command, errHungUp)
	}
	select {
	case a := <-m.answers:
		if a.Error != nil {
			return fmt.Errorf("QEMU's %s: %s", command, a.Error.Desc)
		}
		return nil
	case <-m.done:
		return fmt.Errorf("%s: %w", command, errHungUp)
	case <-m.after(answerLimit):
		return fault.New(fault.Transient, "QEMU did not answer the command %s within %v and was killed", command, answerLimit).
			WithHint("run the command again; if QEMU hangs again, check this machine and its storage for errors (dmesg), or update QEMU")
	case <-ctx.Done():
		return ctx.Err()
	}
}
