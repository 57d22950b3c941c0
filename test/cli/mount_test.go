package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/lab"
)

// mountTimeout is the time limit of each of these tests.
const mountTimeout = 5 * time.Minute

// mountRig is a lab with one VM and an empty folder as its mount point.
type mountRig struct {
	*rig
	ctx context.Context
	dir string
}

func newMountRig(t *testing.T) *mountRig {
	t.Helper()
	if f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0); err != nil || os.Geteuid() != 0 {
		t.Skipf("needs root and /dev/fuse: %v", err)
	} else {
		f.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), mountTimeout)
	t.Cleanup(cancel)
	r := newRig(t, lab.Config{VMs: []lab.VM{{Name: "web01", Disks: []lab.Disk{{Capacity: 20 << 20, Fill: 60, Seed: 3}}}}}).withFingerprint()
	m := &mountRig{rig: r, ctx: ctx, dir: filepath.Join(t.TempDir(), "a mount")}
	must(t, os.Mkdir(m.dir, 0o755))
	t.Cleanup(func() {
		for unix.Unmount(m.dir, unix.MNT_DETACH) == nil { // usually it is not mounted
		}
	})
	return m
}

func (m *mountRig) isMounted() bool {
	m.t.Helper()
	table, err := os.ReadFile("/proc/self/mountinfo")
	must(m.t, err)
	return strings.Contains(string(table), strings.ReplaceAll(m.dir, " ", `\040`))
}

func (m *mountRig) descriptorPath() string {
	return filepath.Join(m.dir, "ha-datacenter", "datastore1", "web01", "web01.vmdk")
}

// readDescriptor reads the descriptor of the disk through the mount.
func (m *mountRig) readDescriptor() {
	m.t.Helper()
	text, err := os.ReadFile(m.descriptorPath())
	must(m.t, err)
	if !bytes.HasPrefix(text, []byte("# Disk DescriptorFile")) {
		m.t.Fatalf("the descriptor reads as %.80q", text)
	}
}

// mountProcess is a decamp mount process.
type mountProcess struct {
	*exec.Cmd
	stderr bytes.Buffer
}

func (m *mountRig) startMount() *mountProcess {
	m.t.Helper()
	args := []string{"mount", m.url(), m.dir, "--json", "--password-file", m.password, "--state", m.stateDir(), "--read-timeout", "1m"}
	s := &mountProcess{Cmd: exec.CommandContext(m.ctx, binary, append(args, m.extra...)...)}
	s.Stderr = &s.stderr
	out, err := s.StdoutPipe()
	must(m.t, err)
	must(m.t, s.Start())
	m.t.Cleanup(func() { _ = s.Process.Kill(); _ = s.Wait() }) // usually it has ended
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		m.t.Fatalf("decamp mount: %v: %s", err, s.stderr.String())
	}
	var ready struct{ Mounted string }
	must(m.t, json.Unmarshal(line, &ready))
	if ready.Mounted != m.dir {
		m.t.Fatalf("mounted at %q, want %q", ready.Mounted, m.dir)
	}
	return s
}

// exitCode waits for the end of a process and returns its exit code.
func exitCode(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	err := cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode()
}

func TestMountEndsCleanlyOnASignal(t *testing.T) {
	t.Parallel()
	for _, held := range []bool{false, true} {
		t.Run("file open "+strconv.FormatBool(held), func(t *testing.T) {
			t.Parallel()
			m := newMountRig(t)
			s := m.startMount()
			m.readDescriptor()
			if held {
				f, err := os.Open(m.descriptorPath())
				must(t, err)
				defer f.Close()
			}
			must(t, s.Process.Signal(syscall.SIGTERM))
			if code := exitCode(t, s.Cmd); code != 0 {
				t.Errorf("exit code %d: %s", code, s.stderr.String())
			}
			if m.isMounted() {
				t.Error("the folder is still mounted")
			}
		})
	}
}

// unmount unmounts the folder. It retries while the mount is busy, because the kernel releases closed files with a delay.
func (m *mountRig) unmount() {
	m.t.Helper()
	for until := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		err := unix.Unmount(m.dir, 0)
		if errors.Is(err, unix.EBUSY) && time.Now().Before(until) {
			continue
		}
		must(m.t, err)
		return
	}
}

func TestMountEndsWhenUnmounted(t *testing.T) {
	t.Parallel()
	m := newMountRig(t)
	s := m.startMount()
	m.readDescriptor()
	m.unmount()
	if code := exitCode(t, s.Cmd); code != 0 {
		t.Errorf("exit code %d: %s", code, s.stderr.String())
	}
}

func TestMountReplacesStaleMount(t *testing.T) {
	t.Parallel()
	m := newMountRig(t)
	s := m.startMount()
	m.readDescriptor()
	must(t, s.Process.Kill())
	_ = s.Wait() // the process was killed
	if _, err := os.ReadDir(m.dir); err == nil || !m.isMounted() {
		t.Fatalf("want a stale mount, got %v", err)
	}
	m.startMount()
	m.readDescriptor()
	second := m.runMount()
	if second.code != 6 || !strings.Contains(second.err, "mounted there already") {
		t.Errorf("second mount at the same folder: exit code %d: %s", second.code, second.err)
	}
}

// exitStatus is the exit code and the standard error of a process that ended.
type exitStatus struct {
	code int
	err  string
}

// runMount runs decamp mount, which the test expects to fail.
func (m *mountRig) runMount(more ...string) exitStatus {
	m.t.Helper()
	args := slices.Concat([]string{"mount", m.url(), m.dir, "--password-file", m.password, "--state", m.stateDir()}, m.extra, more)
	cmd := exec.CommandContext(m.ctx, binary, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	must(m.t, cmd.Start())
	return exitStatus{exitCode(m.t, cmd), stderr.String()}
}

// folderFuse starts decamp as esxi-folder-fuse. It returns the read end of the pipe that decamp closes when it is ready.
func (m *mountRig) folderFuse(args ...string) (*mountProcess, *os.File) {
	m.t.Helper()
	link := filepath.Join(m.t.TempDir(), "esxi-folder-fuse")
	must(m.t, os.Symlink(binary, link))
	wait, ready, err := os.Pipe()
	must(m.t, err)
	s := &mountProcess{Cmd: exec.CommandContext(m.ctx, link, args...)}
	s.Stderr = &s.stderr
	s.ExtraFiles = []*os.File{ready} // descriptor 3
	must(m.t, s.Start())
	ready.Close()
	m.t.Cleanup(func() { wait.Close(); _ = s.Process.Kill(); _ = s.Wait() }) // usually it has ended
	return s, wait
}

// writeManifest writes the manifest of the lab as Proxmox's listvms.py does.
func (m *mountRig) writeManifest() string {
	return m.writeFile("manifest.json", `{"ha-datacenter": {"vms": {"web01": {"config": {"datastore": "datastore1", "path": "web01/web01.vmx", "checksum": "00"}}},
		"datastores": {"datastore1": "/vmfs/volumes/65c1f000-fd51f79c-82ae-02ffff771b50/"}}}`)
}

// proxmoxArgs returns the arguments that the storage plugin of Proxmox passes.
func (m *mountRig) proxmoxArgs(more ...string) []string {
	args := []string{"--skip-cert-verification", "--change-user", "nobody", "--change-group", "nogroup", "-o", "allow_other",
		"--ready-fd", "3", "--user", "root", "--password-file", m.password}
	return append(append(args, more...), m.lab.Addr(), m.writeManifest(), m.dir)
}

func TestFolderFuseReplacesProxmoxTool(t *testing.T) {
	t.Parallel()
	m := newMountRig(t)
	s, ready := m.folderFuse(m.proxmoxArgs("--cache-page-size", "134217728", "--cache-page-count", "16")...)
	if text, err := io.ReadAll(ready); err != nil || len(text) > 0 { // returns when decamp closes the pipe
		t.Fatalf("ready: %q, %v", text, err)
	}
	if !m.isMounted() {
		t.Fatalf("not mounted when ready: %s", s.stderr.String())
	}
	m.readDescriptor()
	status, err := os.ReadFile("/proc/" + strconv.Itoa(s.Process.Pid) + "/status")
	must(t, err)
	if !strings.Contains(string(status), "Uid:\t65534\t65534\t65534\t65534") {
		t.Errorf("the user ID is not 65534 (nobody):\n%s", status)
	}
	if _, err := os.Stat(filepath.Join(m.dir, "ha-datacenter", "datastore1", "web01", "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("stat of a missing file: %v", err)
	}
	again, ready := m.folderFuse(m.proxmoxArgs()...) // the plugin mounts again after a change
	_, err = io.ReadAll(ready)
	must(t, err)
	m.readDescriptor()
	must(t, again.Process.Signal(syscall.SIGTERM))
	if code := exitCode(t, again.Cmd); code != 0 {
		t.Errorf("exit code %d: %s", code, again.stderr.String())
	}
}

func TestFolderFuseReportsBadArguments(t *testing.T) {
	t.Parallel()
	m := newMountRig(t)
	wrong := m.writeFile("wrong", "not the password\n")
	broken := m.writeFile("broken.json", "{")
	addr, manifest := m.lab.Addr(), m.writeManifest()
	for name, args := range map[string][]string{
		"nothing":          {"--ready-fd", "3"},
		"too many":         m.proxmoxArgs("one more"),
		"unknown flag":     m.proxmoxArgs("--no-such-flag"),
		"not a number":     m.proxmoxArgs("--cache-page-size", "8M"),
		"negative":         m.proxmoxArgs("--cache-page-count", "-1"),
		"unknown option":   m.proxmoxArgs("-o", "allow_root_and_all"),
		"no password file": {"--skip-cert-verification", "--ready-fd", "3", addr, manifest, m.dir},
		"wrong password":   {"--skip-cert-verification", "--ready-fd", "3", "--password-file", wrong, addr, manifest, m.dir},
		"unverified":       {"--ready-fd", "3", "--password-file", m.password, addr, manifest, m.dir},
		"no manifest":      {"--skip-cert-verification", "--ready-fd", "3", "--password-file", m.password, addr, manifest + "x", m.dir},
		"broken manifest":  {"--skip-cert-verification", "--ready-fd", "3", "--password-file", m.password, addr, broken, m.dir},
		"no mount point":   {"--skip-cert-verification", "--ready-fd", "3", "--password-file", m.password, addr, manifest, m.dir + "x"},
		"no such user":     m.proxmoxArgs("--change-user", "no-such-user-here"),
		"no server":        {"--skip-cert-verification", "--ready-fd", "3", "--password-file", m.password, "127.0.0.1:1", manifest, m.dir},
	} {
		t.Run(name, func(t *testing.T) {
			s, ready := m.folderFuse(args...)
			if text, err := io.ReadAll(ready); err != nil || len(text) > 0 {
				t.Errorf("ready: %q, %v", text, err)
			}
			if code := exitCode(t, s.Cmd); code == 0 || !strings.HasPrefix(s.stderr.String(), "error: ") {
				t.Errorf("exit code %d: %s", code, s.stderr.String())
			}
			if m.isMounted() {
				t.Error("the folder is mounted")
			}
		})
	}
}
