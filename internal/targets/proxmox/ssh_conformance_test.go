package proxmox

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab/loopback"
	"github.com/decamp/decamp/internal/lab/pve"
	"github.com/decamp/decamp/internal/sleep"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/platform"
	"github.com/decamp/decamp/internal/targets/targettest"
)

// The volumes are on LVM-thin, so they are larger than the disks.
func TestDirectConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	t.Parallel()
	targettest.Run(t, targettest.Harness{
		Parallel:   true,
		SecondMode: true, // TestConformance runs all cases
		New:        newDirectSite,
		Denied: func(t *testing.T) platform.Platform {
			s, d := startSSHServer(t, pve.Config{})
			return newDirectPlatform(t, s, d, Options{Token: "root@pam!decamp=wrong"})
		},
		Unreachable: func(t *testing.T) platform.Platform {
			s, d := startSSHServer(t, pve.Config{})
			p := newDirectPlatform(t, s, d, Options{})
			p.api.host = loopback.Reserve(t)
			return p
		},
	})
}

func newDirectSite(t *testing.T) targettest.Site {
	s, d := startSSHServer(t, pve.Config{})
	p := newDirectPlatform(t, s, d, Options{})
	callHook := &targettest.CallHook{Next: p.api.http.Transport}
	p.api.http.Transport = callHook
	p.shell.dial = hookDial(callHook, dialLocal(d))
	p.api.wait = func(ctx context.Context, d time.Duration) error {
		if d == poll {
			return s.Settle(ctx) // so that each task is polled at most twice, even on a slow machine
		}
		return sleep.For(ctx, time.Millisecond/5)
	}
	return targettest.Site{
		Platform: p, SetCallHook: callHook.SetHook, Reads: callHook.Reads,
		VMs:     func(t *testing.T) []targettest.StoredVM { return trimTails(t, storedVMs(t, s)) },
		Objects: func(t *testing.T) []string { return listObjects(t, s) },
		Occupy: func(t *testing.T, vm *inventory.VM) {
			m, err := Config(targets.Definition{VM: vm}, p.opts)
			if err != nil {
				t.Fatal(err)
			}
			s.AddGuest(150, map[string]string{"name": m.Name})
		},
	}
}

// trimTails removes the zeros that LVM appends to the suite's disks of 3 and 2 MiB, up to 4 MiB.
func trimTails(t *testing.T, seen []targettest.StoredVM) []targettest.StoredVM {
	t.Helper()
	for _, s := range seen {
		for i, data := range s.Disks {
			size := []int{3 << 20, 2 << 20}[i]
			if len(data) != 4<<20 || !bytes.Equal(data[size:], make([]byte, 4<<20-size)) {
				t.Errorf("disk %d has %d bytes, or its end is not zero", i, len(data))
			}
			s.Disks[i] = data[:size]
		}
	}
	return seen
}

// hookDial returns a dial function that calls the hook for each login.
func hookDial(p *targettest.CallHook, next func(string) (net.Conn, error)) func(string) (net.Conn, error) {
	broken := fault.New(fault.Unreachable, "the connection broke").WithHint("look at the node")
	return func(command string) (net.Conn, error) {
		outcome := p.NextOutcome(!strings.Contains(command, " write "))
		if outcome == targettest.Lost {
			return nil, broken
		}
		conn, err := next(command)
		if outcome == targettest.Unanswered && err == nil {
			_ = conn.Close()
			return nil, broken
		}
		return conn, err
	}
}

// dialLocal returns a dial function that runs the command on this machine, without the delay of a login.
func dialLocal(d *pve.SSH) func(string) (net.Conn, error) {
	return func(command string) (net.Conn, error) {
		fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
		defer ours.Close()
		defer theirs.Close()
		cmd := exec.Command("/bin/sh", "-c", command)
		cmd.Env = []string{"PATH=" + d.Tools, "PERL5LIB=" + filepath.Join(filepath.Dir(d.Tools), "perl")}
		cmd.Stdin, cmd.Stdout = theirs, theirs
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		conn, err := net.FileConn(ours)
		return &localProgram{Conn: conn, end: sync.OnceFunc(func() { _ = cmd.Wait() })}, err
	}
}

// localProgram is a connection to a program. Close waits for its end.
type localProgram struct {
	net.Conn
	end func()
}

func (p *localProgram) Close() error {
	err := p.Conn.Close()
	p.end()
	return err
}

// nodeCount counts the nodes of the tests. Their programs run on one machine and identify volumes by name, so no two
// nodes may have the same VMIDs.
var nodeCount atomic.Int64

// startSSHServer starts a node with an SSH server.
func startSSHServer(t *testing.T, c pve.Config) (*pve.Server, *pve.SSH) {
	t.Helper()
	c.NextID = 100 + (os.Getpid()%900000)*1000 + int(nodeCount.Add(1))%900
	s := startServer(t, c)
	d, err := s.StartSSH()
	if err != nil {
		t.Fatal(err)
	}
	return s, d
}

// newDirectPlatform returns a Platform at the node that writes over SSH.
func newDirectPlatform(t *testing.T, s *pve.Server, d *pve.SSH, o Options) *Platform {
	t.Helper()
	o.SSH = "root@" + d.Addr
	if o.KeyFile == "" {
		o.KeyFile = d.Key
	}
	if o.KnownHosts == "" {
		o.KnownHosts = d.KnownHosts
	}
	return newPlatform(t, s, o)
}
