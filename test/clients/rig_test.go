package clients

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/test/program"
)

const (
	// secret is the password of the emulated host. Clients do not need it, because the access file has it.
	secret = "hush-5c1d20-do-not-tell"
	// tools is the folder that scripts/setup.sh creates.
	tools = "../../build/clients/bin"
)

// rig is an emulated host and a decamp serve that offers folders.
type rig struct {
	t           *testing.T
	lab         *lab.Lab
	dir         string
	source      string // URL of the emulated host
	url         string // address of the server
	fingerprint string // SHA-256 of the server's certificate
}

// newRig starts the emulated host and the server, with a token for each role in DIR/ROLE.token.
func newRig(t *testing.T, folders ...string) *rig {
	t.Helper()
	program.Requires(t, filepath.Join(tools, "python"))
	l, err := lab.Start(context.Background(), lab.Config{Password: secret, Locks: lab.LockActive, VMs: []lab.VM{
		{Name: "web01", ChangeTracking: true, NICs: []lab.NIC{{}}, Disks: []lab.Disk{{Capacity: 16 << 20, Fill: 40, Seed: 1}}},
		{Name: "web02", ChangeTracking: true, Disks: []lab.Disk{{Capacity: 8 << 20, Fill: 40, Seed: 2}}},
		{Name: "db01", ChangeTracking: true, PoweredOn: true, Disks: []lab.Disk{{Capacity: 16 << 20, Fill: 40, Seed: 3}}},
	}})
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	r := &rig{t: t, lab: l, dir: t.TempDir(), source: "esxi://root@" + l.Addr()}
	must(t, os.Mkdir(r.path("state"), 0o700))
	must(t, os.WriteFile(r.path("password"), []byte(secret+"\n"), 0o600))
	access := fmt.Sprintf("version: 1\ncredentials:\n  lab: {url: %q, fingerprint: %q, passwordFile: %q, roles: [operate]}\n"+
		"places:\n  rack1: {to: 'proxmox:https://pve1:8006/pve1?token=/etc/decamp/pve1', roles: [operate]}\n",
		r.source, l.Fingerprint(), r.path("password"))
	must(t, os.WriteFile(r.path("state", "access.yaml"), []byte(access), 0o600))
	for _, role := range []string{"view", "operate", "admin"} {
		out, err := r.command(binary, "token", "add", role, "--role", role, "--state", r.path("state")).Output()
		must(t, err)
		must(t, os.WriteFile(r.path(role+".token"), out, 0o600))
	}
	r.startServer(folders)
	return r
}

// path returns a path below the folder of the rig.
func (r *rig) path(parts ...string) string {
	return filepath.Join(append([]string{r.dir}, parts...)...)
}

// startServer starts the server. It ends with the test.
func (r *rig) startServer(folders []string) {
	r.t.Helper()
	args := []string{"serve", "--json", "--listen", "127.0.0.1:0", "--name", "server", "--state", r.path("state")}
	for _, folder := range folders {
		must(r.t, os.Mkdir(r.path(folder), 0o700))
		args = append(args, "--offer", r.path(folder))
	}
	cmd := r.command(binary, args...)
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	must(r.t, err)
	must(r.t, cmd.Start())
	lines := bufio.NewReader(out)
	line, err := lines.ReadBytes('\n')
	var ready struct{ Serving, Fingerprint string }
	if err != nil || json.Unmarshal(line, &ready) != nil {
		_ = cmd.Wait() // the log has the reason
		r.t.Fatalf("the server: %q, %v\n%s", line, err, log.String())
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, lines)
	}()
	r.url, r.fingerprint = "https://"+ready.Serving, ready.Fingerprint
	r.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // fails if the server has ended
		<-ended
		if err := cmd.Wait(); err != nil {
			r.t.Errorf("the server ended: %v\n%s", err, log.String())
		}
		if strings.Contains(log.String(), secret) {
			r.t.Error("the log of the server contains the password")
		}
	})
}

// command returns a command that ends with the test, with the addresses of the rig in its environment.
func (r *rig) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1",
		"DECAMP_TEST_URL="+r.url, "DECAMP_TEST_FINGERPRINT="+r.fingerprint, "DECAMP_TEST_DIR="+r.dir, "DECAMP_TEST_SOURCE="+r.source)
	return cmd
}

// toolPath returns the path of a program that scripts/setup.sh installed.
func toolPath(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(tools, name))
	must(t, err)
	program.Requires(t, path)
	return path
}

// checkPublished compares the first image of a VM in a folder with the source disk.
func (r *rig) checkPublished(folder, vm string) {
	r.t.Helper()
	want, err := r.lab.Disk(vm, 0)
	must(r.t, err)
	program.SameDisk(r.t, r.path(folder, vm, vm+"-disk0.raw"), want)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
