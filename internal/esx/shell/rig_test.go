package shell_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/esx/shell"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/lab"
)

// pollEvery is short, since the events that tests wait for happen on this machine.
const pollEvery = 5 * time.Millisecond

// fromLab returns the configuration of a client of the lab's first host.
func fromLab(l *lab.Lab) shell.Config {
	key, err := shell.FingerprintOf([]byte(l.SSHHostKey("")))
	if err != nil {
		panic(err)
	}
	return shell.Config{
		Addr: l.SSHAddr(""), User: "root", HostKey: key.Fingerprint, Poll: pollEvery,
		Password: func(context.Context) (esx.Secret, error) { return esx.Secret(l.Password()), nil },
	}
}

func startLab(t *testing.T, cfg lab.Config) *lab.Lab {
	t.Helper()
	cfg.SSH.Enabled = true
	l, err := lab.Start(context.Background(), cfg)
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	return l
}

func dial(t *testing.T, cfg shell.Config) *shell.Shell {
	t.Helper()
	s, err := shell.Dial(t.Context(), cfg)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v (remedy: %s)", err, fault.HintOf(err))
	}
}

// eventually waits for an event in another process or goroutine.
func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for !happened() {
		select {
		case <-time.After(pollEvery):
		case <-t.Context().Done():
			t.Fatalf("did not happen: %s", what)
		}
	}
}

// realHost is an SSH server that runs commands in a real shell of this machine, such as
// busybox. It shows differences from the lab's shell. Commands affect only the files that a
// test names.
type realHost struct {
	*testing.T
	addr  string
	key   ssh.Signer
	shell []string // command and arguments before the script
	mark  string   // variable in the environment of all commands

	serving sync.WaitGroup
	mu      sync.Mutex
	conns   map[net.Conn]bool
}

// testShells returns the shells to test with: sh, and busybox, which ESXi has.
func testShells(t *testing.T) map[string][]string {
	all := map[string][]string{"sh": {"sh", "-c"}}
	if path, err := exec.LookPath("busybox"); err == nil {
		all["busybox"] = []string{path, "sh", "-c"}
	} else {
		t.Log("busybox is not installed: skipping its shell")
	}
	return all
}

func startRealHost(t *testing.T, sh []string) *realHost {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	r := &realHost{T: t, shell: sh, mark: "DECAMP_TEST_HOST=" + t.TempDir(), conns: map[net.Conn]bool{}}
	r.killProcessesAtEnd()
	r.key, err = ssh.NewSignerFromKey(private)
	must(t, err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	r.addr = ln.Addr().String()
	r.serving.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			r.mu.Lock()
			r.conns[c] = true
			r.mu.Unlock()
			r.serving.Go(func() { r.serve(c) })
		}
	})
	t.Cleanup(func() {
		must(t, ln.Close())
		r.drop()
		r.serving.Wait()
	})
	return r
}

// watchScript waits for the end of its input and kills the processes with $1 in their environment. It
// ignores the failure of kill for a process that ended after grep found it.
const watchScript = `read _
while marked=$(grep -lszxF -e "$1" /proc/[0-9]*/environ); test -n "$marked"; do
	for p in $marked; do
		p=${p#/proc/}
		kill -9 "${p%/environ}" 2>/dev/null || true
	done
done`

// killProcessesAtEnd starts a script that kills all processes of the host's commands at the end of
// the test. This includes jobs, which leave the session of their parent. The script also runs if
// the test is killed, because that closes the pipe.
func (r *realHost) killProcessesAtEnd() {
	r.Helper()
	watch := exec.Command("sh", "-c", watchScript, "sh", r.mark)
	watch.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // not killed with the test; same session, so reapOrphans ignores it
	alive, err := watch.StdinPipe()
	must(r.T, err)
	must(r.T, watch.Start())
	r.Cleanup(func() {
		must(r.T, alive.Close())
		must(r.T, watch.Wait())
	})
}

// hangUp is a password after which realHost closes the connection.
const hangUp = "hang up"

func (r *realHost) config() shell.Config {
	return shell.Config{
		Addr: r.addr, User: "root", HostKey: ssh.FingerprintSHA256(r.key.PublicKey()), Poll: pollEvery, Jobs: r.TempDir(),
		Password: func(context.Context) (esx.Secret, error) { return "secret", nil },
	}
}

// drop closes all connections.
func (r *realHost) drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		c.Close()
	}
	clear(r.conns)
}

func (r *realHost) serve(c net.Conn) {
	defer c.Close()
	cfg := &ssh.ServerConfig{PasswordCallback: func(_ ssh.ConnMetadata, p []byte) (*ssh.Permissions, error) {
		if string(p) == hangUp {
			c.Close()
		}
		if string(p) != "secret" {
			return nil, errors.New("no")
		}
		return nil, nil
	}}
	cfg.AddHostKey(r.key)
	_, channels, requests, err := ssh.NewServerConn(c, cfg)
	if err != nil {
		return
	}
	go ssh.DiscardRequests(requests)
	for n := range channels {
		ch, requests, err := n.Accept()
		if err != nil {
			return
		}
		r.serving.Go(func() { r.session(ch, requests) })
	}
}

func (r *realHost) session(ch ssh.Channel, requests <-chan *ssh.Request) {
	defer ch.Close()
	for q := range requests {
		var cmd struct{ Command string }
		if q.Type != "exec" || ssh.Unmarshal(q.Payload, &cmd) != nil {
			_ = q.Reply(false, nil)
			continue
		}
		_ = q.Reply(true, nil)
		run := exec.Command(r.shell[0], append(r.shell[1:], cmd.Command)...)
		run.Stdout, run.Stderr = ch, ch.Stderr()
		run.Env = append(os.Environ(), r.mark)
		var status struct{ Status uint32 }
		var exit *exec.ExitError
		if err := run.Run(); errors.As(err, &exit) {
			status.Status = uint32(exit.ExitCode())
		} else if err != nil && !errors.Is(err, io.EOF) {
			status.Status = 255
		}
		_, _ = ch.SendRequest("exit-status", false, ssh.Marshal(&status))
		return
	}
}
