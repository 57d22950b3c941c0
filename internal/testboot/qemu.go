package testboot

import (
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
	"time"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/confine"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/kvm"
)

// The descriptors that QEMU inherits, beside the standard three. Those of its folder
// and of images follow.
const (
	monitorFD = 3 // descriptor of the monitor's socket
	cardFD    = 4 // first of the descriptors for cards, served disks and the agent
)

// A qemu is a running emulator.
type qemu struct {
	cmd     *confine.Command // confined process
	dir     string           // folder that QEMU writes to
	theirs  string           // path of that folder for QEMU
	monitor *monitor         // control connection
	serial  io.Reader        // output of the serial port
	cards   []io.ReadCloser  // packets of each network card, as pcap
	said    console          // standard error of QEMU
	disks   []net.Conn       // local ends of the served disks
	serving sync.WaitGroup   // goroutines that serve disks
	agent   net.Conn         // connection to the guest's agent; nil if the VM has no channel for it
}

// qemuProgram returns the path of QEMU. The error is fault.NotFound if it is not
// installed.
func (o Options) qemuProgram() (string, error) {
	if o.QEMU != "" {
		return o.QEMU, nil
	}
	program, err := kvm.QEMU()
	if err != nil {
		return "", fmt.Errorf("trial boots are not possible: %w", err)
	}
	return program, nil
}

// start runs the machine. QEMU is killed when ctx ends, and when this process dies. It
// takes over the open files of m.
func (m *machine) start(ctx context.Context) (_ *qemu, err error) {
	program, err := m.opts.qemuProgram()
	if err != nil {
		return nil, err
	}
	q := &qemu{}
	if q.cmd, err = confine.New(ctx, program, m.args...); err != nil {
		return nil, err
	}
	if m.accel == KVM {
		q.cmd.UseKVM()
	}
	q.cmd.Stderr = &q.said
	// The pipe stays open, so that the serial port does not get an end of file.
	stdin, err := q.cmd.StdinPipe() // open without input
	if err != nil {
		return nil, err
	}
	if q.serial, err = q.cmd.StdoutPipe(); err != nil {
		return nil, errors.Join(err, stdin.Close())
	}
	defer func() {
		q.cmd.Close()
		if err != nil {
			q.hangUp()
		}
	}()
	if err := errors.Join(q.connectMonitor(m.cards, m.opts.After), q.serveDisks(m.served), q.connectAgent(m.agent), q.makeFolder(m.dir)); err != nil {
		return nil, err
	}
	q.cmd.AddSets(m.sets)
	m.sets = nil // closed by the command
	if err := q.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	return q, nil
}

// connectMonitor creates the monitor's socket and the cards' pipes.
func (q *qemu) connectMonitor(cards int, after func(time.Duration) <-chan time.Time) error {
	conn, err := q.passSocket("monitor")
	if err != nil {
		return err
	}
	q.monitor = newMonitor(conn, after)
	for range cards {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		q.cards = append(q.cards, r)
		if _, err := q.cmd.PassOwned(w); err != nil { // QEMU opens it by its path
			return err
		}
	}
	return nil
}

// serveDisks creates a socket for each served disk and starts its function.
func (q *qemu) serveDisks(disks []func(net.Conn)) error {
	for _, disk := range disks {
		conn, err := q.passSocket("disk")
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

// connectAgent creates the socket to the guest agent if the VM has a channel for it.
func (q *qemu) connectAgent(agent bool) (err error) {
	if agent {
		q.agent, err = q.passSocket("agent")
	}
	return err
}

// passSocket creates a socket pair, passes one end to QEMU, and returns the other.
func (q *qemu) passSocket(name string) (net.Conn, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	// net.FileConn duplicates the descriptor, so ours is closed here.
	ours := os.NewFile(uintptr(pair[0]), name)
	defer ours.Close()
	q.cmd.Inherit(os.NewFile(uintptr(pair[1]), name))
	return net.FileConn(ours)
}

// makeFolder creates the folder that QEMU writes to. Its parent is not accessible to
// QEMU's user, so that QEMU cannot replace the folder.
func (q *qemu) makeFolder(dir string) (err error) {
	if q.dir, err = os.MkdirTemp(dir, "qemu-"); err != nil {
		return err
	}
	q.theirs, err = q.cmd.Folder(q.dir)
	return err
}

// hangUp closes all connections to QEMU, which must have ended. It waits for the
// functions that serve disks.
func (q *qemu) hangUp() {
	if q.monitor != nil {
		_ = q.monitor.conn.Close() // the other end is closed already
	}
	for _, c := range q.cards {
		_ = c.Close()
	}
	for _, c := range q.disks {
		_ = c.Close() // fails if it has ended
	}
	if q.agent != nil {
		_ = q.agent.Close()
	}
	q.serving.Wait()
}

// kill ends QEMU. The remaining output of its pipes can still be read.
func (q *qemu) kill() {
	if err := q.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		q.said.append([]byte(err.Error()))
	}
}

// wait waits for the end of QEMU and returns the reason, or nil if it was killed by
// kill. All pipes must have been read to their ends.
func (q *qemu) wait() error {
	err := q.cmd.Wait()
	q.hangUp()
	var exit *exec.ExitError
	if err == nil || errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return nil
	}
	text := q.cmd.Explain(lastLines(q.said.text(), 3))
	// QEMU locks images, and names the lock in its message.
	if strings.Contains(text, "lock") {
		return fault.New(fault.Conflict, "QEMU cannot open the VM's disks: %s", text).
			WithHint("the VM runs, or another process writes to its images: shut it down first")
	}
	if strings.Contains(text, "KVM") && strings.Contains(text, "Permission denied") {
		return fault.New(fault.Denied, "QEMU cannot open /dev/kvm: %s", text).
			WithHint("QEMU does not run as root: let the group kvm use the device: chgrp kvm /dev/kvm && chmod 660 /dev/kvm")
	}
	if strings.Contains(text, "Permission denied") {
		return fault.New(fault.Denied, "QEMU cannot open the VM's files: %s", text).WithHint("run this as root, or as the owner of the images")
	}
	return fault.New(fault.Unsupported, "QEMU cannot run the VM: %s (%w)", text, err).
		WithHint("start the VM on its host: virsh start NAME")
}

// lastLines returns the last n lines that are not empty, joined.
func lastLines(text string, n int) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-n):], "; ")
}

// readBack reads a file that QEMU wrote into its folder, and removes it. QEMU may have
// replaced it by a link, a pipe or an endless file: these are errors.
func (q *qemu) readBack(name string, limit int64) (text []byte, err error) {
	path := filepath.Join(q.dir, name)
	defer func() {
		if rm := os.Remove(path); rm != nil && !errors.Is(rm, fs.ErrNotExist) {
			err = errors.Join(err, rm)
		}
	}()
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() // nothing was written
	info, err := f.Stat()
	if err == nil && (!info.Mode().IsRegular() || info.Size() > limit) {
		err = fmt.Errorf("QEMU's file %s is not a regular file of at most %d bytes", name, limit)
	}
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, limit))
}
