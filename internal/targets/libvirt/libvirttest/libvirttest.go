// Package libvirttest runs a real libvirtd for tests.
package libvirttest

import (
	"bufio"
	"context"
	_ "embed" // the scripts
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Patience is the longest time that a test waits for the daemon on a loaded machine.
const Patience = 5 * time.Minute

//go:embed libvirtd.sh
var daemonScript []byte

//go:embed lvm.sh
var lvmScript []byte

// A Daemon is a real libvirtd in separate namespaces. It requires root and the packages that scripts/setup.sh test
// installs.
type Daemon struct {
	Folder string // folder with the socket, the log and the console

	cmd *exec.Cmd      // libvirtd.sh
	in  io.WriteCloser // commands of libvirtd.sh
	out *bufio.Scanner // completed commands
}

// Start starts a daemon. The caller must call End.
func Start() (*Daemon, error) {
	folder, err := os.MkdirTemp("", "libvirtd")
	if err != nil {
		return nil, err
	}
	d := &Daemon{Folder: folder}
	if err := d.start(); err != nil {
		d.End()
		return nil, err
	}
	return d, nil
}

func (d *Daemon) start() error {
	script := filepath.Join(d.Folder, "libvirtd.sh")
	if err := os.WriteFile(script, daemonScript, 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(d.Folder, "lvm.sh"), lvmScript, 0o600); err != nil {
		return err
	}
	args := []string{"--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", script, d.Folder}
	cmd := exec.Command("unshare", args...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	d.cmd, d.in, d.out = cmd, in, bufio.NewScanner(out)
	return d.Run("start")
}

// Run runs a command of libvirtd.sh and waits until it is complete.
func (d *Daemon) Run(command string, args ...any) error {
	if _, err := fmt.Fprintln(d.in, append([]any{command}, args...)...); err != nil {
		return err
	}
	for d.out.Scan() {
		if d.out.Text() == command {
			return nil
		}
	}
	return fmt.Errorf("libvirtd.sh ended at %q: %v", command, d.out.Err())
}

// End closes the script's input, which also happens when this process ends. All processes of the script end.
func (d *Daemon) End() {
	if d.cmd != nil {
		_ = d.in.Close()
		limit := time.AfterFunc(Patience, func() { _ = d.cmd.Process.Kill() })
		defer limit.Stop()
		_ = d.cmd.Wait() // the exit code of a script that ends with its input
	}
	_ = os.RemoveAll(d.Folder)
}

// Socket returns the path of the daemon's socket.
func (d *Daemon) Socket() string { return filepath.Join(d.Folder, "sock", "libvirt-sock") }

// Virsh runs a command of virsh and returns its output.
func (d *Daemon) Virsh(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), Patience)
	defer cancel()
	args = append([]string{"-q", "-c", "qemu:///system?socket=" + d.Socket()}, args...)
	out, err := exec.CommandContext(ctx, "virsh", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("virsh %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// Root returns the path of the daemon's root folder, as this process can open it.
func (d *Daemon) Root() (string, error) {
	pid := d.cmd.Process.Pid // process of unshare; its child has the mounts
	child, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return "", err
	}
	return filepath.Join("/proc", strings.TrimSpace(string(child)), "root"), nil
}
