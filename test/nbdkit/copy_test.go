package nbdkit

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/lab"
)

// With the command line of virt-v2v -it nfc, an ESXi and a vCenter serve the whole disk and its map, and no session
// is left.
func TestVirtV2VCopiesADisk(t *testing.T) {
	t.Parallel()
	for name, vcenter := range map[string]bool{"ESXi": false, "vCenter": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := newConfig(64)
			cfg.VCenter = vcenter
			r := newRig(t, cfg)
			s := r.startServer(r.virtV2V(r.parameters())...)
			r.requireMap(r.diskContent())
			r.copyAndCompare(r.diskContent())
			if out := r.runTool("nbdinfo", r.uri()); !strings.Contains(out, "can_multi_conn: true") || !strings.Contains(out, "web01") {
				t.Errorf("nbdinfo: %s", out)
			}
			if read := r.lab.Stats().NFC.ReadBytes; read > r.diskContent().Allocated*102/100 {
				t.Errorf("%d bytes read, want at most 2 %% more than the %d allocated", read, r.diskContent().Allocated)
			}
			s.stopCleanly(syscall.SIGTERM)
		})
	}
}

// requireMap requires that all holes are zeros, and that the size of the data is about that of the allocated bytes.
func (r *rig) requireMap(want lab.DiskContent) {
	r.t.Helper()
	var extents []struct {
		Offset, Length int64
		Type           int
	}
	if err := json.Unmarshal([]byte(r.runTool("nbdinfo", "--json", "--map", r.uri())), &extents); err != nil {
		r.t.Fatal(err)
	}
	var data, at int64
	for _, x := range extents {
		if x.Offset != at {
			r.t.Fatalf("gap in the map at %d", at)
		}
		at += x.Length
		if x.Type == 0 {
			data += x.Length
			continue
		}
		p := make([]byte, x.Length)
		if _, err := want.ReadAt(p, x.Offset); err != nil {
			r.t.Fatal(err)
		}
		if x.Type != 3 || strings.Trim(string(p), "\x00") != "" {
			r.t.Errorf("the extent %+v is not a hole of zeros", x)
		}
	}
	if at != want.Size || data < want.Allocated || data > want.Allocated*102/100 {
		r.t.Errorf("the map has %d bytes, want %d, and %d bytes of data, want about %d", at, want.Size, data, want.Allocated)
	}
}

// A background server works, although nbdkit without -f forks after it has loaded the plugin.
func TestBackgroundServerCopiesADisk(t *testing.T) {
	t.Parallel()
	r := newRig(t, newConfig(16))
	cmd := exec.Command("nbdkit", append([]string{"-P", r.filePath("pid"), "-U", r.filePath("socket"), plugin}, r.parameters("known-hosts=known.json", "thumbprint=")...)...)
	cmd.Dir = r.dir // base of relative paths
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("%v: %s", err, out)
	}
	pid := 0
	waitUntil(t, "the process id", func() bool {
		text, _ := os.ReadFile(r.filePath("pid")) // the file may not exist yet
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return pid > 0 && bytes.HasSuffix(text, []byte("\n"))
	})
	r.copyAndCompare(r.diskContent())
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	r.waitForLogout()
	if _, err := os.Stat(r.filePath("known.json")); err != nil {
		t.Error(err)
	}
}

// waitForLogout waits until the plugin has logged out.
func (r *rig) waitForLogout() {
	r.t.Helper()
	waitUntil(r.t, "a logout", func() bool {
		calls := r.lab.Stats().SOAP
		return calls["Login"] == calls["Logout"]+1
	})
	r.requireNoSessions()
}

// nbdkit --run, which forks before the plugin starts Go, serves the disk and ends with the command.
func TestRunEndsWithItsCommand(t *testing.T) {
	t.Parallel()
	r := newRig(t, newConfig(16))
	args := append([]string{"-U", "-", plugin}, r.parameters("transport=https", "connections=2")...)
	out := r.runTool("nbdkit", append(args, "--run", `nbdcopy "$uri" `+r.filePath("copy")+` && nbdinfo --size "$uri"`)...)
	if strings.TrimSpace(out) != strconv.Itoa(16<<20) {
		t.Errorf("printed %s, want the size", out)
	}
	r.requireSameContent(r.diskContent())
	r.waitForLogout()
}

// Concurrent clients with many requests read the correct bytes, also at unaligned offsets.
func TestParallelConnectionsReadTheSameBytes(t *testing.T) {
	t.Parallel()
	cfg := newConfig(48)
	cfg.VMs[0].Disks[0].Capacity += 512 // not a multiple of 64 KiB
	r := newRig(t, cfg)
	s := r.startServer(r.virtV2V(r.parameters("connections=3", "plain=true"))...)
	done := make(chan error)
	for range 3 {
		go func() {
			done <- exec.Command("nbdcopy", "--connections=4", "--requests=16", "--request-size=65536", r.uri(), "null:").Run()
		}()
	}
	r.copyAndCompare(r.diskContent(), "--connections=8", "--requests=32")
	for range 3 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if out := r.runTool("qemu-img", "compare", "-f", "raw", "-F", "raw", r.uri(), r.filePath("copy")); !strings.Contains(out, "identical") {
		t.Error(out)
	}
	if peak := r.lab.Stats().NFC.SessionsPeak; peak != 3 {
		t.Errorf("peak of %d NFC sessions, want 3", peak)
	}
	s.stopCleanly(syscall.SIGINT)
}

// A disk of a running VM is read from a snapshot. file= may name the current disk or the one of the snapshot.
func TestSnapshotOfARunningVM(t *testing.T) {
	t.Parallel()
	cfg := newConfig(16)
	cfg.VMs[0].PoweredOn = true
	cfg.VMs[0].Guest.Writes = lab.Writes{Seed: 7, Rate: 10 << 20, Spread: 60}
	r := newRig(t, cfg)
	r.requireRefused(r.parameters(), "web01 is powered on", "snapshot=MOREF")
	session := r.newSession()
	ref, err := session.CreateSnapshot(t.Context(), r.vm.Ref, esx.SnapshotSpec{Name: "frozen"})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.lab.GuestWrites("web01", 100); err != nil {
		t.Fatal(err)
	}
	want, err := r.lab.DiskAt("web01", 0, "frozen")
	if err != nil {
		t.Fatal(err)
	}
	now, err := session.VM(t.Context(), "web01")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{r.vm.Disks[0].Path.String(), now.Disks[0].Path.String()} {
		s := r.startServer(r.virtV2V(r.parameters("snapshot="+string(ref), "file="+file))...)
		r.copyAndCompare(want)
		if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		s.wait()
		for _, name := range []string{"pid", "socket", "copy"} {
			_ = os.Remove(r.filePath(name))
		}
	}
	r.requireRefused(r.parameters("snapshot=snapshot-999"), "snapshot-999")
}
