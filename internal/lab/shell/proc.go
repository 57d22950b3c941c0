package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Signal is the number of a signal.
type Signal int

// The signals processes meet.
const (
	HUP  Signal = 1
	INT  Signal = 2
	KILL Signal = 9
	PIPE Signal = 13
	TERM Signal = 15
)

// signalStatus is added to the signal that ended a process.
const signalStatus = 128

// errSignal is why a process's context ended.
type errSignal struct{ signal Signal }

func (e *errSignal) Error() string { return fmt.Sprintf("signal %d", e.signal) }

// ErrNoProcess is a signal to a process that is not there.
var ErrNoProcess = errors.New("no such process")

// firstPID is near those of a real host's processes.
const firstPID = 2_098_000

// Command is a program. It returns its exit status and should end when Ctx does.
type Command func(c *Call) int

// Call is one run of a command.
type Call struct {
	*Proc
	Args []string // Args[0] is its name
	In   io.Reader
	Out  io.Writer
	Err  io.Writer
	Dir  string // the working directory
}

// Mode is how a file is opened.
type Mode int

// The modes.
const (
	Read Mode = iota
	Write
	Append
)

// Machine is what commands run on. Its fields must be set before the first Start.
type Machine struct {
	Open     func(name string, mode Mode) (io.ReadWriteCloser, error)
	Commands map[string]Command
	IsDir    func(name string) bool     // reports folders for cd; nil treats all names as folders
	Files    func(name string) []string // lists the names in a folder for patterns; nil lists none

	mu      sync.Mutex
	procs   map[int]*Proc
	lastPID int
	running sync.WaitGroup
}

// Proc is one process.
type Proc struct {
	Ctx context.Context
	PID int

	m           *Machine
	name        string
	kill        context.CancelCauseFunc
	done        chan struct{} // closed when the process has ended
	status      int           // then
	dropOutputs func()        // lets go of the outputs; only the process itself calls it
	group       int           // guarded by m.mu, as is what follows
	session     int
	nohup       bool
}

// A Holder is an output that must be known to be in use: a session's.
type Holder interface {
	Hold()
	Drop()
}

// spawn starts a process that runs body. parent nil begins a session.
func (m *Machine) spawn(parent *Proc, name string, std std, body func(p *Proc) int) *Proc {
	p := &Proc{m: m, name: name, done: make(chan struct{})}
	p.Ctx, p.kill = context.WithCancelCause(context.Background())
	m.mu.Lock()
	if m.procs == nil {
		m.procs, m.lastPID = map[int]*Proc{}, firstPID
	}
	m.lastPID++
	p.PID = m.lastPID
	p.group, p.session = p.PID, p.PID
	if parent != nil {
		p.group, p.session, p.nohup = parent.group, parent.session, parent.nohup
	}
	m.procs[p.PID] = p
	if parent != nil && parent.Ctx.Err() != nil {
		p.kill(context.Cause(parent.Ctx)) // the parent was signaled before: a dead process has no children
	}
	m.mu.Unlock()
	p.dropOutputs = std.holdOutputs()
	m.running.Go(func() {
		status := body(p)
		var sig *errSignal
		if errors.As(context.Cause(p.Ctx), &sig) {
			status = signalStatus + int(sig.signal)
		}
		m.mu.Lock()
		p.status = status
		delete(m.procs, p.PID)
		m.mu.Unlock()
		p.kill(nil)
		p.dropOutputs()
		close(p.done)
	})
	return p
}

// switchOutputs makes the process hold other outputs than it was started with: it was redirected.
func (p *Proc) switchOutputs(s std) {
	before := p.dropOutputs
	p.dropOutputs = s.holdOutputs()
	before()
}

// waitFor returns the status of child, or p's own end if that comes first.
func (p *Proc) waitFor(child *Proc) int {
	select {
	case <-child.done:
		return child.status
	case <-p.Ctx.Done():
		return signalStatus
	}
}

// Done is closed when the process has ended.
func (p *Proc) Done() <-chan struct{} { return p.done }

// Status is the exit status after Done.
func (p *Proc) Status() int { return p.status }

// Signal sends a signal to a process, or to a group if pid is negative. Signal 0 only tests for
// existence.
func (m *Machine) Signal(pid int, s Signal) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := false
	for _, p := range m.procs {
		if p.PID == pid || p.group == -pid {
			found = true
			p.signalLocked(s)
		}
	}
	if !found {
		return ErrNoProcess
	}
	return nil
}

// signalLocked is called with m.mu held.
func (p *Proc) signalLocked(s Signal) {
	if s != 0 && !(s == HUP && p.nohup) {
		p.kill(&errSignal{s})
	}
}

// Hangup ends the rest of the session that p began, except processes under setsid or nohup.
func (p *Proc) Hangup() {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	for _, o := range p.m.procs {
		if o.session == p.session {
			o.signalLocked(HUP)
		}
	}
}

// Detach implements setsid: a new session and group.
func (p *Proc) Detach() {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	p.session, p.group = p.PID, p.PID
}

// IgnoreHangup is nohup.
func (p *Proc) IgnoreHangup() {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	p.nohup = true
}

// Listing is one process.
type Listing struct {
	PID  int
	Name string
}

// List returns the processes there are, in no order.
func (m *Machine) List() (all []Listing) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.procs {
		all = append(all, Listing{p.PID, p.name})
	}
	return all
}

// KillAll kills every process.
func (m *Machine) KillAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.procs {
		p.signalLocked(KILL)
	}
}

// Close kills every process and waits for them.
func (m *Machine) Close() {
	m.KillAll()
	m.running.Wait()
}

// Exec runs another command in this process, as exec(3) does.
func (c *Call) Exec(args []string) int {
	next := *c
	next.Args = args
	return c.m.runCommand(&next)
}

// runCommand runs a command in the process of the call.
func (m *Machine) runCommand(c *Call) int {
	if f := m.Commands[baseName(c.Args[0])]; f != nil {
		return f(c)
	}
	fmt.Fprintf(c.Err, "sh: %s: not found\n", c.Args[0])
	return statusNotFound
}

const statusNotFound = 127

// brokenPipe kills a process that writes to a pipe without readers.
type brokenPipe struct {
	io.Writer
	p *Proc
}

func (b *brokenPipe) Write(p []byte) (int, error) {
	n, err := b.Writer.Write(p)
	if err != nil {
		b.p.kill(&errSignal{PIPE})
	}
	return n, err
}

// unwrapOutput returns the output for separate processes, which handle broken pipes themselves.
func unwrapOutput(w io.Writer) io.Writer {
	if b, ok := w.(*brokenPipe); ok {
		return b.Writer
	}
	return w
}
