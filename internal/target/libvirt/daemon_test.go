package libvirt

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/target/libvirt/rpc"
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

// shared is the daemon of all tests that leave it running.
var shared = sync.OnceValues(func() (*daemon, error) { return startDaemon() })

func TestMain(m *testing.M) {
	code := m.Run()
	if d, err := shared(); err == nil {
		d.end()
	}
	os.Exit(code)
}

func sharedDaemon(t *testing.T) *daemon {
	t.Helper()
	d, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func ownDaemon(t *testing.T) *daemon {
	t.Helper()
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
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
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

func (d *daemon) end() {
	_ = d.in.Close()           // it ends by itself
	_ = d.cmd.Process.Kill()   // or so
	_ = d.cmd.Wait()           // by our signal
	_ = os.RemoveAll(d.folder) // a test's leftovers in /tmp
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
