// Package ssh runs a program on another machine through the user's ssh command. ssh uses the user's keys,
// agent, jump hosts and known hosts. It never prompts for a password.
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

// Login contains the address and the account. ssh has defaults for the empty fields except Host.
type Login struct {
	Host, Port, User string // as in: ssh -p Port -l User Host
	KeyFile          string // private key; if set, ssh tries no other key
	KnownHosts       string // path of the known_hosts file; the user's file if empty

	// Patience is the time that Close waits for the remote program to end before it kills ssh.
	Patience time.Duration

	// Exit returns the error for an exit status of the remote program. ssh uses status 255 for its own
	// failures. If Exit is nil, the error is fault.Unreachable.
	Exit func(status int, err error) error
}

// Conn is a connection with the standard input and output of a remote program.
type Conn struct {
	net.Conn
	login   Login        // login that Start was called on
	program *exec.Cmd    // the ssh process
	end     func() error // waits for ssh and returns its result; can be called several times
	stderr  *stderrHead  // error output of ssh, for messages
}

// envVariables are passed to ssh in addition to the common variables. They locate its agent,
// its Kerberos tickets and its configuration.
var envVariables = []string{"LOGNAME", "LC_*", "TERM", "SSH_AUTH_SOCK", "KRB5CCNAME", "KRB5_CONFIG", "XDG_RUNTIME_DIR"}

// Start runs ssh, which runs command in the shell of the remote user. ssh gets its own process group,
// so
// that Ctrl-C reaches only this process.
func (l Login) Start(command string) (*Conn, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	said := &stderrHead{}
	cmd := exec.Command("ssh", l.Arguments(command)...)
	cmd.Env = childenv.Of(os.Environ(), envVariables...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // ^C is for us to deal with
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fault.New(fault.Unsupported, "start ssh: %w", err).WithHint("install it: apt install openssh-client"), ours.Close())
	}
	return &Conn{Conn: ours, login: l, program: cmd, end: sync.OnceValue(cmd.Wait), stderr: said}, nil
}

// socketPair returns the two ends of a connection: one for this process, and a file to pass to a child.
// Both are closed on exec.
func socketPair() (net.Conn, *os.File, error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "ssh"), os.NewFile(uintptr(fds[1]), "ssh")
	conn, err := net.FileConn(ours)
	_ = ours.Close() // conn has a duplicate of the descriptor
	if err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return conn, theirs, nil
}

// Arguments returns the arguments of the ssh command. BatchMode disables password prompts.
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

// Read reads from the remote program. If ssh has failed, the error contains its message.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	return n, c.explainError(err)
}

// Write writes to the remote program. If ssh has failed, the error contains its message.
func (c *Conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	return n, c.explainError(err)
}

// explainError waits for ssh after a failed read or write, and returns the error of ssh if there is
// one. It
// returns err unchanged if err is a deadline or if the connection was closed here.
func (c *Conn) explainError(err error) error {
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed) {
		return err
	}
	if ended := c.end(); ended != nil {
		return c.login.exitFault(c.stderr.trimmedText(), ended)
	}
	return err
}

// Close closes the connection and waits for ssh. It kills ssh after Login.Patience.
func (c *Conn) Close() error {
	err := c.Conn.Close()
	late := time.AfterFunc(c.login.Patience, func() { _ = c.program.Process.Kill() }) // fails harmlessly if ssh has ended
	defer late.Stop()
	_ = c.end() // ends by the signal, or because its output is closed
	return err
}

// stderrHead is a writer that keeps the first stderrMax bytes. It is safe for concurrent use.
type stderrHead struct {
	mu   sync.Mutex   // guards text
	text bytes.Buffer // at most stderrMax bytes
}

// stderrMax is the maximum number of bytes kept for a message.
const stderrMax = 4096

// Write implements io.Writer. It never fails and discards further bytes.
func (c *stderrHead) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text.Write(p[:min(len(p), stderrMax-c.text.Len())])
	return len(p), nil
}

// trimmedText returns the text without surrounding white space.
func (c *stderrHead) trimmedText() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.TrimSpace(c.text.String())
}

// exitFault converts the exit of ssh to an error. The exit status is 255 if ssh itself failed; then
// only its
// error output contains the cause. Otherwise it is the status of the remote program.
func (l Login) exitFault(said string, ended error) error {
	lines := strings.Split(said, "\n")
	last := strings.TrimSpace(lines[len(lines)-1])
	err := fmt.Errorf("ssh: %s (%w)", last, ended)
	var exit *exec.ExitError
	switch {
	case errors.As(ended, &exit) && exit.ExitCode() != 255 && l.Exit != nil:
		return l.Exit(exit.ExitCode(), err)
	case strings.Contains(said, "IDENTIFICATION HAS CHANGED"):
		return fault.New(fault.Denied, "the host key differs from the known one: %w", err).OfLogin().
			WithHint("if the machine was reinstalled, remove its old key (ssh-keygen -R HOST) and check the new one before ssh-keyscan; otherwise another machine may be intercepting the connection")
	case strings.Contains(last, "Permission denied") || strings.Contains(said, "Host key verification failed"):
		return fault.New(fault.Denied, "%w", err).OfLogin().WithHint("set up a login without a password, with a readable key and a known host: ssh-copy-id, ssh-keyscan; then try: ssh -o BatchMode=yes HOST true")
	}
	return fault.New(fault.Unreachable, "%w", err).WithHint("find the cause: ssh -v -o BatchMode=yes HOST true")
}
