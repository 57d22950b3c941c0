package trial

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/kvm"
)

// What QEMU inherits beside the standard three.
const (
	monitorFD = 3
	cardFD    = 4 // and those behind it: a pipe for each network card, a socket for each disk that is served, the agent's
)

// A qemu is a running emulator.
type qemu struct {
	cmd     *exec.Cmd
	monitor *monitor
	serial  io.Reader
	cards   []io.ReadCloser // what each network card sends, as pcap
	said    *bytes.Buffer   // its standard error; read after it has ended
	disks   []net.Conn      // our ends of those that are served
	serving sync.WaitGroup
	agent   net.Conn // to the guest's agent; nil: the VM has no channel for it
}

func (o Options) program() (string, error) {
	if o.QEMU != "" {
		return o.QEMU, nil
	}
	program, err := kvm.QEMU()
	if err != nil {
		return "", fmt.Errorf("VMs cannot be tried: %w", err)
	}
	return program, nil
}

// start runs the machine. It is killed with us, and with ctx.
func (m *machine) start(ctx context.Context) (_ *qemu, err error) {
	program, err := m.opts.program()
	if err != nil {
		return nil, err
	}
	q := &qemu{cmd: exec.CommandContext(ctx, program, m.args...), said: &bytes.Buffer{}}
	q.cmd.Stderr = q.said
	q.cmd.Env = append(os.Environ(), "TMPDIR="+m.dir) // overlays go there
	q.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdin, err := q.cmd.StdinPipe() // open and silent: nobody types
	if err != nil {
		return nil, err
	}
	if q.serial, err = q.cmd.StdoutPipe(); err != nil {
		return nil, errors.Join(err, stdin.Close())
	}
	defer func() {
		for _, f := range q.cmd.ExtraFiles {
			_ = f.Close() // QEMU has its own
		}
		if err != nil {
			q.hangUp()
		}
	}()
	if err := errors.Join(q.connect(m.cards), q.serve(m.served), q.call(m.agent)); err != nil {
		return nil, err
	}
	if err := q.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	return q, nil
}

// connect makes the monitor's socket and the cards' pipes.
func (q *qemu) connect(cards int) error {
	conn, err := q.pass("monitor")
	if err != nil {
		return err
	}
	q.monitor = newMonitor(conn)
	for range cards {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		q.cmd.ExtraFiles = append(q.cmd.ExtraFiles, w)
		q.cards = append(q.cards, r)
	}
	return nil
}

// serve has disks answer at the other ends of sockets.
func (q *qemu) serve(disks []func(io.ReadWriter)) error {
	for _, disk := range disks {
		conn, err := q.pass("disk")
		if err != nil {
			return err
		}
		q.disks = append(q.disks, conn)
		q.serving.Go(func() {
			defer conn.Close()
			disk(conn)
		})
	}
	return nil
}

// call makes the socket that leads to the guest's agent, of a VM that has a channel for it.
func (q *qemu) call(agent bool) (err error) {
	if agent {
		q.agent, err = q.pass("agent")
	}
	return err
}

// pass makes a socket of which QEMU inherits one end, and returns the other.
func (q *qemu) pass(name string) (net.Conn, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours := os.NewFile(uintptr(pair[0]), name)
	defer ours.Close()
	q.cmd.ExtraFiles = append(q.cmd.ExtraFiles, os.NewFile(uintptr(pair[1]), name))
	return net.FileConn(ours)
}

// hangUp closes what leads to QEMU, which is gone. Nobody reads a disk any more when it returns.
func (q *qemu) hangUp() {
	if q.monitor != nil {
		_ = q.monitor.conn.Close() // nobody is at the other end any more
	}
	for _, c := range q.cards {
		_ = c.Close()
	}
	for _, c := range q.disks {
		_ = c.Close() // it may have ended by itself
	}
	if q.agent != nil {
		_ = q.agent.Close()
	}
	q.serving.Wait()
}

// kill ends the emulator. What its pipes have left can be read then.
func (q *qemu) kill() {
	if err := q.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		q.said.WriteString(err.Error())
	}
}

// wait returns why QEMU ended by itself, after all its pipes were read to their ends.
func (q *qemu) wait() error {
	err := q.cmd.Wait()
	q.hangUp()
	var exit *exec.ExitError
	if err == nil || errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return nil
	}
	text := lastLines(q.said.String(), 3)
	if strings.Contains(text, "lock") {
		return fault.New(fault.Conflict, "QEMU cannot open the VM's disks: %s", text).
			WithHint("the VM runs, or somebody writes its images: shut it down first")
	}
	if strings.Contains(text, "Permission denied") {
		return fault.New(fault.Denied, "QEMU cannot open the VM's files: %s", text).WithHint("run this as root, or as the owner of the images")
	}
	return fault.New(fault.Unsupported, "QEMU does not run the VM: %s (%w)", text, err).
		WithHint("start it where it is defined: virsh start NAME")
}

// lastLines are those that say something, joined.
func lastLines(text string, n int) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-n):], "; ")
}

// readBack reads a file that QEMU wrote into the trial's folder, and removes it.
func readBack(dir, name string) ([]byte, error) {
	path := filepath.Join(dir, name)
	text, err := os.ReadFile(path)
	if rm := os.Remove(path); rm != nil && !errors.Is(rm, fs.ErrNotExist) {
		err = errors.Join(err, rm)
	}
	return text, err
}
