package libvirt

import (
	"bufio"
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
	"testing"
	"time"

	"github.com/decamp/decamp/internal/targets/libvirt/rpc"
)

// patience is for a machine that has much else to do.
const patience = 5 * time.Minute

// A daemon is a real libvirtd in namespaces of its own. It needs root, and what scripts/setup.sh test
// installs.
type daemon struct {
	folder string
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Scanner
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
	folder, err := os.MkdirTemp("", "libvirtd")
	if err != nil {
		return nil, err
	}
	script := []string{"--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "testdata/libvirtd.sh", folder}
	d := &daemon{folder: folder, cmd: exec.Command("unshare", script...)}
	d.cmd.Stderr = os.Stderr
	if d.in, err = d.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	d.out = bufio.NewScanner(out)
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	return d, d.say("start")
}

// say has the script do something, and waits until it is done.
func (d *daemon) say(word string, args ...any) error {
	if _, err := fmt.Fprintln(d.in, append([]any{word}, args...)...); err != nil {
		return err
	}
	for d.out.Scan() {
		if d.out.Text() == word {
			return nil
		}
	}
	return fmt.Errorf("libvirtd.sh ended at %q: %v", word, d.out.Err())
}

// end closes the script's input, as the end of this process would: all that runs there ends with it.
func (d *daemon) end() {
	_ = d.in.Close()
	impatience := time.AfterFunc(patience, func() { _ = d.cmd.Process.Kill() })
	defer impatience.Stop()
	_ = d.cmd.Wait() // what it says of its end is of no interest
	_ = os.RemoveAll(d.folder)
}

func (d *daemon) socket() string { return filepath.Join(d.folder, "sock", "libvirt-sock") }

// virsh runs a command of libvirt's own client, and returns what it says.
func (d *daemon) virsh(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	args = append([]string{"-q", "-c", "qemu:///system?socket=" + d.socket()}, args...)
	out, err := exec.CommandContext(ctx, "virsh", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("virsh %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
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
	pid := d.cmd.Process.Pid // of unshare; its child has the mounts
	child, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		entries, err := os.ReadDir(filepath.Join("/proc", strings.TrimSpace(string(child)), "root/var/lib/libvirt", folder))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, filepath.Join(folder, e.Name()))
		}
	}
	return names
}
