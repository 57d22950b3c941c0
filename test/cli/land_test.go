package cli

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/lab"
)

// landing is a decamp land that is ready.
type landing struct {
	*testing.T
	cmd     *exec.Cmd
	Address string
	Port    int
	Export  string
}

// land serves an export until the test ends.
func land(t *testing.T, dir string, args ...string) *landing {
	t.Helper()
	args = append([]string{"land", "--export", dir, "--listen", "127.0.0.1:0", "--portmap", "none", "--json"}, args...)
	l := &landing{T: t, cmd: exec.CommandContext(t.Context(), binary, args...)}
	l.cmd.Stderr = os.Stderr
	out, err := l.cmd.StdoutPipe()
	must(t, err)
	must(t, l.cmd.Start())
	t.Cleanup(func() { _ = l.cmd.Process.Kill(); _ = l.cmd.Wait() }) // usually it has ended
	decodeLine(t, out, l)
	return l
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
	requires(t, "nfs-cp")
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
	requires(t, "nfs-ls")
	l := land(t, t.TempDir(), "--allow", "192.0.2.0/24", "--advertise", "192.0.2.1")
	if err := l.try("nfs-ls", l.url("")); err == nil {
		t.Error("a host that was not named may mount it")
	}
}

func TestLandReadOnly(t *testing.T) {
	requires(t, "nfs-cp")
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
	for _, format := range []string{"raw", "qcow2"} {
		t.Run(format, func(t *testing.T) {
			portmap := freePort(t)
			cfg := small()
			cfg.NFS = lab.NFS{Portmap: portmap}
			r := newRig(t, cfg).trusting()
			r.migrate("web01", "--format", format, "--transport", "landing", "--landing-listen", "127.0.0.1:0", "--landing-portmap", portmap,
				"--spot", "1M,2").ends(0).says("is moved, proven and published")
			folder := filepath.Join(r.vms(), "web01")
			r.matchesSource(folder, format)
			r.run("verify", folder).ends(0).says("is what was copied")
			if left := r.lab.Mounts(); len(left) > 0 {
				t.Errorf("the host still has %v", left)
			}
		})
	}
}

// Landing in RAM needs no other flag, and is as right onto a folder that is slow to fill.
func TestMigrateByLandingInRAM(t *testing.T) {
	portmap := freePort(t)
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
	portmap := freePort(t)
	r := newRig(t, lab.Config{
		NFS: lab.NFS{Portmap: portmap},
		VMs: []lab.VM{{Name: "web01", Disks: []lab.Disk{{Capacity: 1 << 30, Fill: 100, Seed: 3}}}},
	}).trusting()
	args := []string{"--transport", "landing", "--landing-listen", freePort(t), "--landing-portmap", portmap}
	u := r.begin("web01", args...)
	for r.landed() < 64<<20 {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatal("nothing lands")
		}
	}
	u.end(syscall.SIGKILL)
	if left := r.lab.Mounts(); len(left) != 1 {
		t.Fatalf("the host has %v", left)
	}
	r.migrate("web01", args...).ends(0).says("is moved, proven and published")
	r.sameAsSource(filepath.Join(r.vms(), "web01", "web01-disk0.raw"), "web01", 0)
	if left := r.lab.Mounts(); len(left) > 0 {
		t.Errorf("the host still has %v", left)
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

// freePort returns an address that nobody listens on.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return l.Addr().String()
}
