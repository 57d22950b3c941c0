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

// A monitor is QEMU's machine protocol, docs/interop/qmp-spec: JSON objects, ours and its in turn, and
// events in between.
type monitor struct {
	conn    net.Conn
	after   func(time.Duration) <-chan time.Time
	answers chan answer
	done    chan struct{} // closed when QEMU has hung up

	mu   sync.Mutex // one command at a time
	told eventLog
}

// An answer is any object that QEMU sends.
type answer struct {
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Class string `json:"class"`
		Desc  string `json:"desc"`
	} `json:"error"`
	Event string `json:"event"`
	Data  struct {
		Guest  bool   `json:"guest"`  // whether the guest caused it
		Action string `json:"action"` // action of GUEST_PANICKED
		ID     string `json:"id"`     // VSERPORT_CHANGE: the channel that the guest has opened or closed
		Open   bool   `json:"open"`
	} `json:"data"`
}

// events are QEMU's reports about the guest.
type events struct {
	resets   int // resets by the guest
	stopped  bool
	panicked bool
	agent    bool // the guest has opened its agent's channel
}

// An eventLog records QEMU's events.
type eventLog struct {
	sync.Mutex
	events
}

// maxTold bounds what QEMU sends in one trial, in bytes. A QEMU that a guest has taken over may send forever.
const maxTold = 64 << 20

var errHungUp = errors.New("QEMU has hung up")

// answerLimit is the time that QEMU has to carry out one command. A trial takes at most this much longer
// than its deadline.
const answerLimit = time.Minute

func newMonitor(conn net.Conn, after func(time.Duration) <-chan time.Time) *monitor {
	m := &monitor{conn: conn, after: after, answers: make(chan answer, 1), done: make(chan struct{})}
	go m.read()
	return m
}

// read sorts answers from events until QEMU hangs up.
func (m *monitor) read() {
	defer close(m.done)
	defer m.conn.Close() // pending output is not needed any more
	for in := json.NewDecoder(io.LimitReader(m.conn, maxTold)); ; {
		var a answer
		if in.Decode(&a) != nil {
			return
		}
		switch {
		case a.Event != "":
			m.told.note(a)
		case a.Return != nil || a.Error != nil:
			select {
			case m.answers <- a:
			default: // an answer after its time limit
			}
		}
	}
}

func (l *eventLog) note(a answer) {
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

func (l *eventLog) seen() events {
	l.Lock()
	defer l.Unlock()
	return l.events
}

// do has QEMU carry out a command. The error is fault.Transient if QEMU does not answer in time; the
// caller then kills it.
func (m *monitor) do(ctx context.Context, command string, args any) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	text, err := json.Marshal(map[string]any{"execute": command, "arguments": args})
	if err != nil {
		return err
	}
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
			WithHint("give the command again; if QEMU hangs again, look for errors of this machine and its storage (dmesg), or update QEMU")
	case <-ctx.Done():
		return ctx.Err()
	}
}
