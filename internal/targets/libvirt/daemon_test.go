package libvirt

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/decamp/decamp/internal/targets/libvirt/libvirttest"
	"github.com/decamp/decamp/internal/targets/libvirt/rpc"
	"github.com/decamp/decamp/test/program"
)

// daemonTimeout is long enough for a loaded machine.
const daemonTimeout = libvirttest.Patience

// A daemon is a real libvirtd with helper methods for the tests.
type daemon struct {
	*libvirttest.Daemon
	folder string
}

const (
	parallelTests = 4 // number of parallel tests, which mostly wait for libvirtd and its child processes
	sharedDaemons = 3 // number of daemons that tests share, one after the other
)

// idleDaemons has the daemons that no test uses. A nil daemon is not started yet.
var idleDaemons = make(chan *daemon, sharedDaemons)

func TestMain(m *testing.M) {
	program.Wide(parallelTests)
	for range sharedDaemons {
		idleDaemons <- nil
	}
	code := m.Run()
	for range sharedDaemons {
		if d := <-idleDaemons; d != nil {
			d.end()
		}
	}
	os.Exit(code)
}

// sharedDaemon returns a daemon that only this test uses until it ends. The test must leave it running.
func sharedDaemon(t *testing.T) *daemon {
	t.Helper()
	if testing.Short() {
		t.Skip("starts libvirtd")
	}
	d := <-idleDaemons
	t.Cleanup(func() { idleDaemons <- d })
	if d == nil {
		var err error
		if d, err = startDaemon(); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// ownDaemon returns a new daemon that ends with the test.
func ownDaemon(t *testing.T) *daemon {
	t.Helper()
	if testing.Short() {
		t.Skip("starts libvirtd")
	}
	d, err := startDaemon()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.end)
	return d
}

func startDaemon() (*daemon, error) {
	d, err := libvirttest.Start()
	if err != nil {
		return nil, err
	}
	return &daemon{Daemon: d, folder: d.Folder}, nil
}

func (d *daemon) run(command string, args ...any) error { return d.Run(command, args...) }
func (d *daemon) end()                                  { d.End() }
func (d *daemon) socket() string                        { return d.Socket() }

func (d *daemon) virsh(t *testing.T, args ...string) string {
	t.Helper()
	return d.Virsh(t, args...)
}

// newClient returns a connection for assertions.
func (d *daemon) newClient(t *testing.T) *rpc.Client {
	t.Helper()
	conn, err := net.Dial("unix", d.socket())
	if err != nil {
		t.Fatal(err)
	}
	c := rpc.New(conn, daemonTimeout)
	if err := c.Open(context.WithoutCancel(t.Context()), "qemu:///system"); err != nil {
		t.Fatal(err)
	}
	return c
}

// libvirtFiles lists the files in folders of libvirt's state.
func (d *daemon) libvirtFiles(t *testing.T, folders ...string) (names []string) {
	t.Helper()
	root, err := d.Root()
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		entries, err := os.ReadDir(filepath.Join(root, "var/lib/libvirt", folder))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, filepath.Join(folder, e.Name()))
		}
	}
	return names
}
