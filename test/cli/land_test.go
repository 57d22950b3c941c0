package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/lab/loopback"
	"github.com/decamp/decamp/internal/lab/nfsclient"
	"github.com/decamp/decamp/test/program"
)

// landing is a decamp land process that is ready.
type landing struct {
	*testing.T
	cmd     *exec.Cmd
	Address string
	Port    int
	Export  string
}

// startLand starts decamp land without a port mapper. It runs until the test ends.
func startLand(t *testing.T, dir string, args ...string) *landing {
	t.Helper()
	l, _ := startLandWith(t, dir, append([]string{"--listen", "127.0.0.1:0", "--portmap", "none"}, args...)...)
	return l
}

// startLandWith starts decamp land, which runs until the test ends. It also returns the scanner of the output.
func startLandWith(t *testing.T, dir string, args ...string) (*landing, *bufio.Scanner) {
	t.Helper()
	args = append([]string{"land", "--export", dir, "--json"}, args...)
	l := &landing{T: t, cmd: exec.CommandContext(t.Context(), binary, args...)}
	l.cmd.Stderr = os.Stderr
	out, err := l.cmd.StdoutPipe()
	must(t, err)
	must(t, l.cmd.Start())
	t.Cleanup(func() { _ = l.cmd.Process.Kill(); _ = l.cmd.Wait() }) // usually it has ended
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("decamp land printed nothing")
	}
	must(t, json.Unmarshal(lines.Bytes(), l))
	return l, lines
}

// url returns the URL of a file of the export for libnfs.
func (l *landing) url(name string) string {
	path := (&url.URL{Path: filepath.Join(l.Export, name)}).EscapedPath()
	return fmt.Sprintf("nfs://127.0.0.1%s?nfsport=%d&mountport=%d", path, l.Port, l.Port)
}

func (l *landing) tryProgram(name string, args ...string) error {
	out, err := exec.CommandContext(l.Context(), name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, out)
	}
	return nil
}

func TestLandStoresFiles(t *testing.T) {
	t.Parallel()
	program.Requires(t, "nfs-cp")
	dir := t.TempDir()
	l := startLand(t, dir, "--allow", "127.0.0.1")
	if l.Address != "127.0.0.1" || l.Export != dir {
		t.Errorf("the export is %s:%s, want 127.0.0.1:%s", l.Address, l.Export, dir)
	}
	in := filepath.Join(t.TempDir(), "in")
	must(t, os.WriteFile(in, []byte(strings.Repeat("a disk ", 300_000)), 0o600))
	must(t, l.tryProgram("nfs-cp", in, l.url("web01-flat.vmdk")))
	must(t, l.tryProgram("cmp", in, filepath.Join(dir, "web01-flat.vmdk")))
	must(t, l.cmd.Process.Signal(syscall.SIGTERM))
	if code := exitCode(t, l.cmd); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestLandServesOnlyAllowedHosts(t *testing.T) {
	t.Parallel()
	program.Requires(t, "nfs-ls")
	l := startLand(t, t.TempDir(), "--allow", "192.0.2.0/24", "--advertise", "192.0.2.1")
	if err := l.tryProgram("nfs-ls", l.url("")); err == nil {
		t.Error("a host that is not allowed can mount the export")
	}
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", l.Port))
	if errors.Is(err, syscall.ECONNRESET) { // the server was quicker than Dial
		return
	}
	must(t, err)
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	answer, err := io.ReadAll(conn)
	if len(answer) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a host that is not allowed received %q, %v; want a closed connection", answer, err)
	}
}

func TestLandReadOnly(t *testing.T) {
	t.Parallel()
	program.Requires(t, "nfs-cp")
	dir := t.TempDir()
	in := filepath.Join(dir, "in")
	must(t, os.WriteFile(in, []byte("a disk"), 0o600))
	l := startLand(t, dir, "--allow", "127.0.0.1", "--read-only")
	must(t, l.tryProgram("nfs-cat", l.url("in")))
	if err := l.tryProgram("nfs-cp", in, l.url("out")); err == nil {
		t.Error("a write to a read-only export succeeded")
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 1 {
		t.Errorf("the export contains %v, %v, want one file", list, err)
	}
}

// In a migration by landing the host mounts the datastore of decamp, copies its disks to it and unmounts it.
func TestMigrateByLanding(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"raw", "qcow2"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			portmap := loopback.Reserve(t)
			cfg := smallLab()
			cfg.NFS = lab.NFS{Portmap: portmap}
			r := newRig(t, cfg).withFingerprint()
			r.migrate("web01", "--format", format, "--transport", "landing", "--landing-listen", "127.0.0.1:0", "--landing-portmap", portmap,
				"--spot", "1M,2").wantExit(0).wantOutput("is migrated and published")
			folder := filepath.Join(r.vmsDir(), "web01")
			r.compareImages(folder, format)
			r.run("verify", folder).wantExit(0).wantOutput("is identical with the copied data")
			if left := r.lab.Mounts(); len(left) > 0 {
				t.Errorf("the host still has the datastores %v", left)
			}
		})
	}
}

// A landing in RAM needs no other transport flag, and the images are correct.
func TestMigrateByLandingInRAM(t *testing.T) {
	t.Parallel()
	portmap := loopback.Reserve(t)
	cfg := smallLab()
	cfg.NFS = lab.NFS{Portmap: portmap}
	r := newRig(t, cfg).withFingerprint()
	mountTmpfs(t, r.vmsDir(), "size=200m")
	r.migrate("web01", "--landing", "tmpfs:128M", "--landing-listen", "127.0.0.1:0", "--landing-portmap", portmap).wantExit(0)
	r.compareImages(filepath.Join(r.vmsDir(), "web01"), "raw")
}

// A decamp that is killed during a copy leaves a datastore without a server and a retrying copy on the host. The next run
// ends with a correct image and without mounts on the host.
func TestKilledLandingIsRunAgain(t *testing.T) {
	t.Parallel()
	portmap := loopback.Reserve(t)
	r := newRig(t, lab.Config{
		NFS:    lab.NFS{Portmap: portmap},
		VMs:    []lab.VM{{Name: "web01", Disks: []lab.Disk{{Capacity: 48 << 20, Fill: 100, Seed: 3}}}},
		Faults: []lab.Fault{{Kind: lab.FaultCloneStall, At: 32 << 20, Count: 1}},
	}).withFingerprint()
	args := []string{"--transport", "landing", "--landing-listen", loopback.Reserve(t), "--landing-portmap", portmap}
	u := r.startMigration("web01", args...)
	r.untilLanded(12 << 20)
	u.endWith(syscall.SIGKILL)
	r.lab.Faults().Release()
	if left := r.lab.Mounts(); len(left) != 1 {
		t.Fatalf("the host has the datastores %v, want one", left)
	}
	r.migrate("web01", args...).wantExit(0).wantOutput("is migrated and published")
	r.compareImage(filepath.Join(r.vmsDir(), "web01", "web01-disk0.raw"), "web01", 0)
	if left := r.lab.Mounts(); len(left) > 0 {
		t.Errorf("the host still has the datastores %v", left)
	}
}

// untilLanded waits until the partial images have n bytes on the disk.
func (r *rig) untilLanded(n int64) {
	r.t.Helper()
	for r.landedBytes() < n {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-r.t.Context().Done():
			r.t.Fatalf("fewer than %d bytes landed", n)
		}
	}
}

// landedBytes returns the number of bytes that the partial images take on the disk.
func (r *rig) landedBytes() (n int64) {
	r.t.Helper()
	images, err := filepath.Glob(filepath.Join(r.vmsDir(), "*", "*.raw*"))
	must(r.t, err)
	hidden, err := filepath.Glob(filepath.Join(r.vmsDir(), ".*", "*.raw*"))
	must(r.t, err)
	for _, path := range append(images, hidden...) {
		var st syscall.Stat_t
		if syscall.Stat(path, &st) == nil { // decamp may have renamed the file
			n += st.Blocks * 512
		}
	}
	return n
}

// An ESXi host copies a disk to decamp land without a migration. decamp is killed during the copy and started again, and
// the copy continues. The acknowledged writes are in the page cache.
func TestHostCopyContinuesAfterLandIsKilled(t *testing.T) {
	t.Parallel()
	portmap, dir := loopback.Reserve(t), t.TempDir()
	r := newRig(t, lab.Config{
		NFS: lab.NFS{Portmap: portmap, Times: nfsclient.Times{Reconnect: 50 * time.Millisecond}},
		VMs: []lab.VM{{Name: "web01", Disks: []lab.Disk{{Capacity: 48 << 20, Fill: 100, Seed: 3}}}},
	}).withFingerprint()
	_, err := r.lab.Faults().Add(lab.Fault{Kind: lab.FaultCloneStall, Path: "web01.vmdk", At: 32 << 20, Count: 1})
	must(t, err)
	t.Cleanup(r.lab.Faults().Release)
	args := []string{"--allow", "127.0.0.1", "--listen", loopback.Reserve(t), "--portmap", portmap}
	first, _ := startLandWith(t, dir, args...)
	host, err := esx.Dial(t.Context(), esx.Config{
		URL:         &url.URL{Scheme: "esxi", User: url.User("root"), Host: r.lab.Addr()},
		Fingerprint: r.lab.Fingerprint(),
		Password:    func(context.Context) (esx.Secret, error) { return secret, nil },
	})
	must(t, err)
	t.Cleanup(func() { must(t, host.Close()) })
	vm, err := host.VM(t.Context(), "web01")
	must(t, err)
	_, _, err = host.MountNAS(t.Context(), vm.Host, esx.NAS{Server: first.Address, Path: dir, Name: "decamp"})
	must(t, err)
	copied := make(chan error, 1)
	halfway := make(chan bool, 1)
	go func() {
		copied <- host.CopyDisk(t.Context(), esx.DiskCopy{
			From: vm.Disks[0].Path, To: inventory.Path{Datastore: "decamp", File: "web01.vmdk"},
			Progress: func(percent int) {
				if percent > 0 {
					select {
					case halfway <- true:
					default:
					}
				}
			},
		})
	}()
	<-halfway
	must(t, first.cmd.Process.Kill())
	_ = first.cmd.Wait() // the process was killed
	r.lab.Faults().Release()
	second, lines := startLandWith(t, dir, args...)
	must(t, <-copied)
	r.compareImage(filepath.Join(dir, "web01-flat.vmdk"), "web01", 0)
	for state := ""; state != "landed"; {
		var o struct{ File struct{ Name, State string } }
		if !lines.Scan() {
			t.Fatal("decamp land did not print that the disk landed")
		}
		must(t, json.Unmarshal(lines.Bytes(), &o))
		if o.File.Name == "web01-flat.vmdk" {
			state = o.File.State
		}
	}
	must(t, second.cmd.Process.Signal(syscall.SIGTERM))
	var end struct {
		Ended struct {
			Files        int
			Open, Mounts []string
		}
	}
	for lines.Scan() {
		must(t, json.Unmarshal(lines.Bytes(), &end))
	}
	if code := exitCode(t, second.cmd); code != 0 || end.Ended.Files != 1 || len(end.Ended.Open) > 0 {
		t.Errorf("exit code %d, ended with %+v", code, end)
	}
}
