package libvirt

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/decamp/decamp/internal/fault"
)

// sshConn is a connection through the user's own ssh, with the keys, jumps and host keys it knows.
type sshConn struct {
	net.Conn
	program *exec.Cmd
	end     func() error // waits for the program, once
	said    *complaint
}

// dialSSH starts ssh, which connects us with libvirt's socket on its machine.
func dialSSH(a address) (net.Conn, error) {
	ours, theirs, err := pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	said := &complaint{}
	cmd := exec.Command("ssh", sshArguments(a)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // ^C is for us to deal with
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fault.New(fault.Unsupported, "start ssh: %w", err).WithHint("install it: apt install openssh-client"), ours.Close())
	}
	return &sshConn{Conn: ours, program: cmd, end: sync.OnceValue(cmd.Wait), said: said}, nil
}

// pair makes two ends of a connection, one of them to hand over.
func pair() (net.Conn, *os.File, error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "ssh"), os.NewFile(uintptr(fds[1]), "ssh")
	conn, err := net.FileConn(ours)
	_ = ours.Close() // conn has its own
	if err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return conn, theirs, nil
}

// sshArguments ask nobody for a password, and have the other side join its end to libvirt's socket:
// by libvirt's own helper, or by netcat where that is missing.
func sshArguments(a address) []string {
	args := []string{"-T", "-e", "none", "-o", "BatchMode=yes", "-o", "ConnectTimeout=30", "-o", "ServerAliveInterval=15"}
	if a.port != "" {
		args = append(args, "-p", a.port)
	}
	if a.user != "" {
		args = append(args, "-l", a.user)
	}
	if a.keyFile != "" {
		args = append(args, "-i", a.keyFile, "-o", "IdentitiesOnly=yes")
	}
	if a.knownHosts != "" {
		args = append(args, "-o", "UserKnownHostsFile="+strconv.Quote(a.knownHosts))
	}
	return append(args, "--", a.host, remoteCommand(a))
}

func remoteCommand(a address) string {
	if a.socket != "" {
		return "exec nc -U " + fault.Quote(a.socket)
	}
	script := "if command -v virt-ssh-helper >/dev/null 2>&1; then exec virt-ssh-helper " + fault.Quote(a.driver) + "; fi; "
	for _, path := range []string{"/run/libvirt/libvirt-sock", "/run/libvirt/virtqemud-sock"} {
		script += "[ ! -S " + path + " ] || exec nc -U " + path + "; "
	}
	return "sh -c " + fault.Quote(script+"echo 'no libvirt listens here' >&2; exit 9")
}

// Read gives what ssh said where it gave up.
func (c *sshConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	return n, c.explain(err)
}

// Write gives the same.
func (c *sshConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	return n, c.explain(err)
}

func (c *sshConn) explain(err error) error {
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed) {
		return err
	}
	if ended := c.end(); ended != nil {
		return c.said.fault(ended)
	}
	return err
}

// Close ends ssh, too.
func (c *sshConn) Close() error {
	err := c.Conn.Close()
	_ = c.program.Process.Kill() // it may have ended by itself
	_ = c.end()                  // by our signal
	return err
}

// complaint keeps the first of what a program says, for a message.
type complaint struct {
	mu   sync.Mutex
	text bytes.Buffer
}

const complaintMost = 4096 // bytes

func (c *complaint) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text.Write(p[:min(len(p), complaintMost-c.text.Len())])
	return len(p), nil
}

// fault tells why ssh ended, which it says in words alone. Its exit status is 255 where it did not
// come through, and the other side's where it did.
func (c *complaint) fault(ended error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(c.text.String()), "\n")
	last := strings.TrimSpace(lines[len(lines)-1])
	err := fmt.Errorf("ssh: %s (%w)", last, ended)
	var exit *exec.ExitError
	switch {
	case errors.As(ended, &exit) && exit.ExitCode() != 255:
		return fault.New(fault.Unreachable, "%w", err).WithHint("start libvirt there: systemctl start libvirtd, or virtqemud.socket; without virt-ssh-helper it takes nc")
	case strings.Contains(last, "Permission denied") || strings.Contains(c.text.String(), "Host key verification failed"):
		return fault.New(fault.Denied, "%w", err).OfLogin().WithHint("have ssh get in without a password, by a key it may read, and a host it knows: ssh-copy-id, ssh-keyscan; then try: ssh -o BatchMode=yes HOST true")
	}
	return fault.New(fault.Unreachable, "%w", err).WithHint("see how far it comes: ssh -v -o BatchMode=yes HOST true")
}
