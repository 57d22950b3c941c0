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

// patience is for a machine that has much else to do.
const patience = libvirttest.Patience

// A daemon is a real libvirtd, with the names that the tests use.
type daemon struct {
	*libvirttest.Daemon
	folder string
}

const (
	wide    = 4 // number of parallel tests, which mostly wait for libvirtd and the programs that it starts
	daemons = 3 // number of daemons that tests take over from each other
)

// idle has the daemons that no test uses; nil is one that is not started yet.
var idle = make(chan *daemon, daemons)

func TestMain(m *testing.M) {
	program.Wide(wide)
	for range daemons {
		idle <- nil
	}
	code := m.Run()
	for range daemons {
		if d := <-idle; d != nil {
			d.end()
		}
	}
	os.Exit(code)
}

// sharedDaemon returns a daemon that only the test uses until it ends, and that it has to leave running.
func sharedDaemon(t *testing.T) *daemon {
	t.Helper()
	if testing.Short() {
		t.Skip("starts libvirtd")
	}
	d := <-idle
	t.Cleanup(func() { idle <- d })
	if d == nil {
		var err error
		if d, err = startDaemon(); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

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

func (d *daemon) say(word string, args ...any) error { return d.Run(word, args...) }
func (d *daemon) end()                               { d.End() }
func (d *daemon) socket() string                     { return d.Socket() }

func (d *daemon) virsh(t *testing.T, args ...string) string {
	t.Helper()
	return d.Virsh(t, args...)
}

// client is a connection to look at things.
func (d *daemon) client(t *testing.T) *rpc.Client {
	t.Helper()
	conn, err := net.Dial("unix", d.socket())
	if err != nil {
		t.Fatal(err)
	}
	c := rpc.New(conn, patience)
	if err := c.Open(context.WithoutCancel(t.Context()), "qemu:///system"); err != nil {
		t.Fatal(err)
	}
	return c
}

// keeps lists what is in some of libvirt's own folders.
func (d *daemon) keeps(t *testing.T, folders ...string) (names []string) {
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
