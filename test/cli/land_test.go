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

// landing is a decamp land that is ready.
type landing struct {
	*testing.T
	cmd     *exec.Cmd
	Address string
	Port    int
	Export  string
}

// land serves an export, without a port mapper, until the test ends.
func land(t *testing.T, dir string, args ...string) *landing {
	t.Helper()
	l, _ := landAt(t, dir, append([]string{"--listen", "127.0.0.1:0", "--portmap", "none"}, args...)...)
	return l
}

// landAt serves an export until the test ends, and returns the lines that it prints.
func landAt(t *testing.T, dir string, args ...string) (*landing, *bufio.Scanner) {
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
		t.Fatal("it said nothing")
	}
	must(t, json.Unmarshal(lines.Bytes(), l))
	return l, lines
}

// url is a file of the export as libnfs names it.
func (l *landing) url(name string) string {
	path := (&url.URL{Path: filepath.Join(l.Export, name)}).EscapedPath()
	return fmt.Sprintf("nfs://127.0.0.1%s?nfsport=%d&mountport=%d", path, l.Port, l.Port)
}

func (l *landing) try(name string, args ...string) error {
	out, err := exec.CommandContext(l.Context(), name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, out)
	}
	return nil
}

func TestLandTakesWhatIsCopiedThere(t *testing.T) {
	t.Parallel()
	program.Requires(t, "nfs-cp")
	dir := t.TempDir()
	l := land(t, dir, "--allow", "127.0.0.1")
	if l.Address != "127.0.0.1" || l.Export != dir {
		t.Errorf("served as %s:%s", l.Address, l.Export)
	}
	in := filepath.Join(t.TempDir(), "in")
	must(t, os.WriteFile(in, []byte(strings.Repeat("a disk ", 300_000)), 0o600))
	must(t, l.try("nfs-cp", in, l.url("web01-flat.vmdk")))
	must(t, l.try("cmp", in, filepath.Join(dir, "web01-flat.vmdk")))
	must(t, l.cmd.Process.Signal(syscall.SIGTERM))
	if code := exitCode(t, l.cmd); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestLandTalksToItsHostsOnly(t *testing.T) {
	t.Parallel()
	program.Requires(t, "nfs-ls")
	l := land(t, t.TempDir(), "--allow", "192.0.2.0/24", "--advertise", "192.0.2.1")
	if err := l.try("nfs-ls", l.url("")); err == nil {
		t.Error("a host that was not named may mount it")
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
	l := land(t, dir, "--allow", "127.0.0.1", "--read-only")
	must(t, l.try("nfs-cat", l.url("in")))
	if err := l.try("nfs-cp", in, l.url("out")); err == nil {
		t.Error("a read-only export was written to")
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 1 {
		t.Errorf("it holds %v, %v", list, err)
	}
}

// A whole migration by landing: the host mounts decamp's datastore, pushes its disks, and
// forgets it.
func TestMigrateByLanding(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"raw", "qcow2"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			portmap := loopback.Reserve(t)
			cfg := small()
			cfg.NFS = lab.NFS{Portmap: portmap}
			r := newRig(t, cfg).trusting()
			r.migrate("web01", "--format", format, "--transport", "landing", "--landing-listen", "127.0.0.1:0", "--landing-portmap", portmap,
				"--spot", "1M,2").ends(0).says("is migrated and published")
			folder := filepath.Join(r.vms(), "web01")
			r.matchesSource(folder, format)
			r.run("verify", folder).ends(0).says("is identical with the copied data")
			if left := r.lab.Mounts(); len(left) > 0 {
				t.Errorf("the host still has %v", left)
			}
		})
	}
}

// Landing in RAM needs no other flag, and is as right onto a folder that is slow to fill.
func TestMigrateByLandingInRAM(t *testing.T) {
	t.Parallel()
	portmap := loopback.Reserve(t)
	cfg := small()
	cfg.NFS = lab.NFS{Portmap: portmap}
	r := newRig(t, cfg).trusting()
	mount(t, r.vms(), "size=200m")
	r.migrate("web01", "--landing", "tmpfs:128M", "--landing-listen", "127.0.0.1:0", "--landing-portmap", portmap).ends(0)
	r.matchesSource(filepath.Join(r.vms(), "web01"), "raw")
}

// Killed in the middle of a copy, decamp leaves the host with a datastore whose server is
// gone, and a copy that retries. The next run makes both its own or stale, and ends as if
// nothing had been.
func TestKilledLandingIsRunAgain(t *testing.T) {
	t.Parallel()
	portmap := loopback.Reserve(t)
	r := newRig(t, lab.Config{
		NFS:    lab.NFS{Portmap: portmap},
		VMs:    []lab.VM{{Name: "web01", Disks: []lab.Disk{{Capacity: 48 << 20, Fill: 100, Seed: 3}}}},
		Faults: []lab.Fault{{Kind: lab.FaultCloneStall, At: 32 << 20, Count: 1}},
	}).trusting()
	args := []string{"--transport", "landing", "--landing-listen", loopback.Reserve(t), "--landing-portmap", portmap}
	u := r.begin("web01", args...)
	r.untilLanded(12 << 20)
	u.end(syscall.SIGKILL)
	r.lab.Faults().Release()
	if left := r.lab.Mounts(); len(left) != 1 {
		t.Fatalf("the host has %v", left)
	}
	r.migrate("web01", args...).ends(0).says("is migrated and published")
	r.sameAsSource(filepath.Join(r.vms(), "web01", "web01-disk0.raw"), "web01", 0)
	if left := r.lab.Mounts(); len(left) > 0 {
		t.Errorf("the host still has %v", left)
	}
}

// untilLanded waits for so many bytes of the images that grow.
func (r *rig) untilLanded(n int64) {
	r.t.Helper()
	for r.landed() < n {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-r.t.Context().Done():
			r.t.Fatal("nothing lands")
		}
	}
}

// landed is how many bytes the images that grow take on the disk.
func (r *rig) landed() (n int64) {
	r.t.Helper()
	images, err := filepath.Glob(filepath.Join(r.vms(), "*", "*.raw*"))
	must(r.t, err)
	hidden, err := filepath.Glob(filepath.Join(r.vms(), ".*", "*.raw*"))
	must(r.t, err)
	for _, path := range append(images, hidden...) {
		var st syscall.Stat_t
		if syscall.Stat(path, &st) == nil { // it may have been renamed
			n += st.Blocks * 512
		}
	}
	return n
}

// An ESXi host copies a disk onto decamp land, as people do by hand; decamp is killed in the
// middle and started again, and the copy goes on: what was acknowledged is in the page cache.
func TestLandIsKilledAndTheHostGoesOn(t *testing.T) {
	t.Parallel()
	portmap, dir := loopback.Reserve(t), t.TempDir()
	r := newRig(t, lab.Config{
		NFS: lab.NFS{Portmap: portmap, Times: nfsclient.Times{Reconnect: 50 * time.Millisecond}},
		VMs: []lab.VM{{Name: "web01", Disks: []lab.Disk{{Capacity: 48 << 20, Fill: 100, Seed: 3}}}},
	}).trusting()
	_, err := r.lab.Faults().Add(lab.Fault{Kind: lab.FaultCloneStall, Path: "web01.vmdk", At: 32 << 20, Count: 1})
	must(t, err)
	t.Cleanup(r.lab.Faults().Release)
	args := []string{"--allow", "127.0.0.1", "--listen", loopback.Reserve(t), "--portmap", portmap}
	first, _ := landAt(t, dir, args...)
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
	_ = first.cmd.Wait() // it was killed
	r.lab.Faults().Release()
	second, lines := landAt(t, dir, args...)
	must(t, <-copied)
	r.sameAsSource(filepath.Join(dir, "web01-flat.vmdk"), "web01", 0)
	for told := ""; told != "landed"; {
		var o struct{ File struct{ Name, State string } }
		if !lines.Scan() {
			t.Fatal("it did not say that the disk landed")
		}
		must(t, json.Unmarshal(lines.Bytes(), &o))
		if o.File.Name == "web01-flat.vmdk" {
			told = o.File.State
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
