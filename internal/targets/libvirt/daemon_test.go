package libvirt

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/decamp/decamp/internal/targets/libvirt/libvirttest"
	"github.com/decamp/decamp/internal/targets/libvirt/rpc"
)

// patience is for a machine that has much else to do.
const patience = libvirttest.Patience

// A daemon is a real libvirtd, with the names that the tests use.
type daemon struct {
	*libvirttest.Daemon
	folder string
}

// shared starts the daemon of all tests that leave it running; it is nil until then.
var (
	running *daemon
	shared  = sync.OnceValue(func() (err error) { running, err = startDaemon(); return err })
)

func TestMain(m *testing.M) {
	code := m.Run()
	if running != nil {
		running.end()
	}
	os.Exit(code)
}

func sharedDaemon(t *testing.T) *daemon {
	t.Helper()
	if testing.Short() {
		t.Skip("starts libvirtd")
	}
	if err := shared(); err != nil {
		t.Fatal(err)
	}
	return running
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
