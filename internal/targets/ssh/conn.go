// Package ssh connects us with a program on another machine through the user's own ssh, with the keys,
// the agent, the jumps and the host keys that it knows. Nobody is asked for a password.
package ssh

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
	"time"

	"github.com/decamp/decamp/internal/childenv"
	"github.com/decamp/decamp/internal/fault"
)

// Login says where and as whom. What is empty is ssh's to choose, but for Host.
type Login struct {
	Host, Port, User string
	KeyFile          string // no other key is tried then
	KnownHosts       string // instead of the user's

	// Patience is how long Close gives the other side to end by itself.
	Patience time.Duration

	// Exit gives the error its kind by which the program ended there; ssh itself ends with 255. Nil:
	// fault.Unreachable.
	Exit func(status int, err error) error
}

// Conn is a connection with a program: what it reads and writes.
type Conn struct {
	net.Conn
	login   Login
	program *exec.Cmd
	end     func() error // waits for the program, once
	said    *complaint
}

// variables are those that ssh gets beside the common ones: for its agent, Kerberos and its configuration.
var variables = []string{"LOGNAME", "LC_*", "TERM", "SSH_AUTH_SOCK", "KRB5CCNAME", "KRB5_CONFIG", "XDG_RUNTIME_DIR"}

// Start starts ssh, which starts command by the user's shell there.
func (l Login) Start(command string) (*Conn, error) {
	ours, theirs, err := pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	said := &complaint{}
	cmd := exec.Command("ssh", l.Arguments(command)...)
	cmd.Env = childenv.Of(os.Environ(), variables...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // ^C is for us to deal with
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fault.New(fault.Unsupported, "start ssh: %w", err).WithHint("install it: apt install openssh-client"), ours.Close())
	}
	return &Conn{Conn: ours, login: l, program: cmd, end: sync.OnceValue(cmd.Wait), said: said}, nil
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

// Arguments are what ssh is started with.
func (l Login) Arguments(command string) []string {
	args := []string{"-T", "-e", "none", "-o", "BatchMode=yes", "-o", "ConnectTimeout=30", "-o", "ServerAliveInterval=15"}
	if l.Port != "" {
		args = append(args, "-p", l.Port)
	}
	if l.User != "" {
		args = append(args, "-l", l.User)
	}
	if l.KeyFile != "" {
		args = append(args, "-i", l.KeyFile, "-o", "IdentitiesOnly=yes")
	}
	if l.KnownHosts != "" {
		args = append(args, "-o", "UserKnownHostsFile="+strconv.Quote(l.KnownHosts))
	}
	return append(args, "--", l.Host, command)
}

// Read gives what ssh said where it gave up.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	return n, c.explain(err)
}

// Write gives the same.
func (c *Conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	return n, c.explain(err)
}

func (c *Conn) explain(err error) error {
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed) {
		return err
	}
	if ended := c.end(); ended != nil {
		return c.login.fault(c.said.words(), ended)
	}
	return err
}

// Close ends ssh, too.
func (c *Conn) Close() error {
	err := c.Conn.Close()
	late := time.AfterFunc(c.login.Patience, func() { _ = c.program.Process.Kill() }) // it may have ended by itself
	defer late.Stop()
	_ = c.end() // by our signal, or because nobody listens
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

func (c *complaint) words() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.TrimSpace(c.text.String())
}

// fault tells why ssh ended, which it says in words alone. Its exit status is 255 where it did not
// come through, and the other side's where it did.
func (l Login) fault(said string, ended error) error {
	lines := strings.Split(said, "\n")
	last := strings.TrimSpace(lines[len(lines)-1])
	err := fmt.Errorf("ssh: %s (%w)", last, ended)
	var exit *exec.ExitError
	switch {
	case errors.As(ended, &exit) && exit.ExitCode() != 255 && l.Exit != nil:
		return l.Exit(exit.ExitCode(), err)
	case strings.Contains(said, "IDENTIFICATION HAS CHANGED"):
		return fault.New(fault.Denied, "another host key than the known one: %w", err).OfLogin().
			WithHint("if the machine was installed anew, forget its old key (ssh-keygen -R HOST) and look at the new one before ssh-keyscan; else somebody is in between")
	case strings.Contains(last, "Permission denied") || strings.Contains(said, "Host key verification failed"):
		return fault.New(fault.Denied, "%w", err).OfLogin().WithHint("have ssh get in without a password, by a key it may read, and a host it knows: ssh-copy-id, ssh-keyscan; then try: ssh -o BatchMode=yes HOST true")
	}
	return fault.New(fault.Unreachable, "%w", err).WithHint("see how far it comes: ssh -v -o BatchMode=yes HOST true")
}
