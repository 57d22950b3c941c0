package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Signal is the number of a POSIX signal.
type Signal int

// The signals processes meet.
const (
	HUP  Signal = 1  // terminal or session has ended
	INT  Signal = 2  // interrupt from the keyboard
	KILL Signal = 9  // kill; cannot be ignored
	PIPE Signal = 13 // write to a pipe without readers
	TERM Signal = 15 // termination request
)

// signalStatus is added to the number of a signal to form the exit status of a process that it ended.
const signalStatus = 128

// errSignal is the cause of a process's context after a signal.
type errSignal struct{ signal Signal }

// Error returns the number of the signal.
func (e *errSignal) Error() string { return fmt.Sprintf("signal %d", e.signal) }

// ErrNoProcess is the error of a signal to a process that does not exist.
var ErrNoProcess = errors.New("no such process")

// firstPID is in the range of PIDs on a real host.
const firstPID = 2_098_000

// Command is a program. It returns its exit status, and should return soon after Ctx has ended.
type Command func(c *Call) int

// Call is one execution of a command.
type Call struct {
	*Proc
	Args []string  // name and arguments
	In   io.Reader // standard input
	Out  io.Writer // standard output; a write error ends the process
	Err  io.Writer // standard error; a write error ends the process
	Dir  string    // working directory, absolute and clean
}

// Mode selects how Machine.Open opens a file.
type Mode int

// The modes.
const (
	Read   Mode = iota // open for reading; the file must exist
	Write              // open for writing; the file is created or truncated
	Append             // open for writing at the end; the file is created if missing
)

// Machine is the host that commands run on. Its exported fields must be set before the first Start; its
// methods may be called concurrently.
type Machine struct {
	// opens a file by its absolute name, for redirections
	Open     func(name string, mode Mode) (io.ReadWriteCloser, error)
	Commands map[string]Command         // programs by name, without a path
	IsDir    func(name string) bool     // reports folders for cd; nil treats all names as folders
	Files    func(name string) []string // lists the names in a folder for patterns; nil lists none

	mu      sync.Mutex     // guards the fields below, and those of processes where noted
	procs   map[int]*Proc  // running processes by PID
	lastPID int            // PID of the newest process
	running sync.WaitGroup // goroutines of processes and pipes
}

// Proc is one process: a shell, a subshell or a program.
type Proc struct {
	Ctx context.Context // ends when the process receives a signal or has ended
	PID int             // process ID, unique in its machine

	m           *Machine                // machine on which the process runs
	name        string                  // name of the program, guarded by m.mu
	kill        context.CancelCauseFunc // ends Ctx; the cause is an *errSignal, or nil after a normal end
	done        chan struct{}           // closed when the process has ended
	status      int                     // exit status; valid after done is closed
	dropOutputs func()                  // releases the outputs; called only by the process itself
	group       int                     // process group, guarded by m.mu
	session     int                     // session, guarded by m.mu
	nohup       bool                    // whether SIGHUP is ignored, guarded by m.mu
}

// A SharedOutput is an output that counts its users, such as that of an SSH session, which lasts while any
// process uses it.
type SharedOutput interface {
	Hold() // begins a use
	Drop() // ends a use
}

// spawn starts a process that runs body in a goroutine. A nil parent begins a new session; otherwise
// group, session and nohup are inherited.
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
		delete(m.procs, p.PID) // signals no longer reach it
		m.mu.Unlock()
		p.kill(nil) // releases the context
		p.dropOutputs()
		close(p.done) // wakes waitFor
	})
	return p
}

// switchOutputs replaces the outputs that the process uses by those of s, after a redirection.
func (p *Proc) switchOutputs(s std) {
	before := p.dropOutputs
	p.dropOutputs = s.holdOutputs()
	before()
}

// waitFor returns the status of child when it has ended. If p is signaled before, it returns 128.
func (p *Proc) waitFor(child *Proc) int {
	select {
	case <-child.done:
		return child.status
	case <-p.Ctx.Done():
		return signalStatus // p itself was signaled
	}
}

// Done returns a channel that is closed when the process has ended.
func (p *Proc) Done() <-chan struct{} { return p.done }

// Status returns the exit status. It may be called after Done is closed.
func (p *Proc) Status() int { return p.status }

// Signal sends a signal to a process, or to a process group if pid is negative. Signal 0 only tests
// whether the process exists.
func (m *Machine) Signal(pid int, s Signal) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := false
	for _, p := range m.procs {
		if p.PID == pid || p.group == -pid { // a negative pid names a group
			found = true
			p.signalLocked(s)
		}
	}
	if !found {
		return ErrNoProcess
	}
	return nil
}

// signalLocked delivers a signal, unless it is 0 or an ignored SIGHUP. m.mu must be held.
func (p *Proc) signalLocked(s Signal) {
	if s != 0 && !(s == HUP && p.nohup) {
		p.kill(&errSignal{s})
	}
}

// Hangup sends SIGHUP to all processes of p's session. Processes under setsid have another session;
// those under nohup ignore it.
func (p *Proc) Hangup() {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	for _, o := range p.m.procs {
		if o.session == p.session {
			o.signalLocked(HUP)
		}
	}
}

// Detach implements setsid: the process begins a new session and group.
func (p *Proc) Detach() {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	p.session, p.group = p.PID, p.PID
}

// IgnoreHangup implements nohup, for the process and those it starts later.
func (p *Proc) IgnoreHangup() {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	p.nohup = true
}

// Listing is one line of ps.
type Listing struct {
	PID  int    // process ID
	Name string // name of the program
}

// List returns the running processes, in no order.
func (m *Machine) List() (all []Listing) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.procs {
		all = append(all, Listing{p.PID, p.name})
	}
	return all
}

// KillAll sends SIGKILL to all processes and does not wait for them.
func (m *Machine) KillAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.procs {
		p.signalLocked(KILL)
	}
}

// Close kills all processes and waits until they have ended.
func (m *Machine) Close() {
	m.KillAll()
	m.running.Wait()
}

// Exec replaces the command in this process by another, as exec(3) does, and returns its status.
func (c *Call) Exec(args []string) int {
	next := *c
	next.Args = args
	return c.m.runCommand(&next)
}

// runCommand runs a command in the process of the call. An unknown one is reported on standard error,
// with status 127.
func (m *Machine) runCommand(c *Call) int {
	if f := m.Commands[baseName(c.Args[0])]; f != nil {
		return f(c)
	}
	fmt.Fprintf(c.Err, "sh: %s: not found\n", c.Args[0])
	return statusNotFound
}

// statusNotFound is the exit status for a command that does not exist.
const statusNotFound = 127

// brokenPipe is an output that ends its process with SIGPIPE when a write fails.
type brokenPipe struct {
	io.Writer
	p *Proc // process that writes
}

// Write implements io.Writer.
func (b *brokenPipe) Write(p []byte) (int, error) {
	n, err := b.Writer.Write(p)
	if err != nil {
		b.p.kill(&errSignal{PIPE})
	}
	return n, err
}

// unwrapOutput returns the writer inside a brokenPipe. A process that inherits the output gets its own
// brokenPipe.
func unwrapOutput(w io.Writer) io.Writer {
	if b, ok := w.(*brokenPipe); ok {
		return b.Writer
	}
	return w
}
