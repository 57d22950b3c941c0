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

// The command line of virt-v2v -it nfc, against an ESXi and a vCenter: all bytes, the map, and no session left.
func TestVirtV2VCopiesADisk(t *testing.T) {
	t.Parallel()
	for name, vcenter := range map[string]bool{"ESXi": false, "vCenter": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(64)
			cfg.VCenter = vcenter
			r := newRig(t, cfg)
			s := r.start(r.virtV2V(r.parameters())...)
			r.mapMatches(r.disk())
			r.copied(r.disk())
			if out := r.run("nbdinfo", r.uri()); !strings.Contains(out, "can_multi_conn: true") || !strings.Contains(out, "web01") {
				t.Errorf("nbdinfo: %s", out)
			}
			if read := r.lab.Stats().NFC.ReadBytes; read > r.disk().Allocated*102/100 {
				t.Errorf("%d bytes read of %d allocated", read, r.disk().Allocated)
			}
			s.stop(syscall.SIGTERM)
		})
	}
}

// mapMatches requires that holes are zeros, and that data is what is allocated.
func (r *rig) mapMatches(want lab.DiskContent) {
	r.t.Helper()
	var extents []struct {
		Offset, Length int64
		Type           int
	}
	if err := json.Unmarshal([]byte(r.run("nbdinfo", "--json", "--map", r.uri())), &extents); err != nil {
		r.t.Fatal(err)
	}
	var data, at int64
	for _, x := range extents {
		if x.Offset != at {
			r.t.Fatalf("gap at %d", at)
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
		r.t.Errorf("%d bytes of %d, %d data of %d allocated", at, want.Size, data, want.Allocated)
	}
}

// nbdkit without -f forks after it has loaded the plugin.
func TestBackgroundServerCopiesADisk(t *testing.T) {
	t.Parallel()
	r := newRig(t, config(16))
	cmd := exec.Command("nbdkit", append([]string{"-P", r.path("pid"), "-U", r.path("socket"), plugin}, r.parameters("known-hosts=known.json", "thumbprint=")...)...)
	cmd.Dir = r.dir // of relative paths
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("%v: %s", err, out)
	}
	pid := 0
	until(t, "the process id", func() bool {
		text, _ := os.ReadFile(r.path("pid")) // it may not exist yet
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return pid > 0 && bytes.HasSuffix(text, []byte("\n"))
	})
	r.copied(r.disk())
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	r.mustEndSessions()
	if _, err := os.Stat(r.path("known.json")); err != nil {
		t.Error(err)
	}
}

// mustEndSessions waits until the plugin has logged out.
func (r *rig) mustEndSessions() {
	r.t.Helper()
	until(r.t, "a logout", func() bool {
		calls := r.lab.Stats().SOAP
		return calls["Login"] == calls["Logout"]+1
	})
	r.mustHaveNoSessions()
}

// nbdkit --run forks before the plugin starts Go, and ends with the command.
func TestRunEndsWithItsCommand(t *testing.T) {
	t.Parallel()
	r := newRig(t, config(16))
	args := append([]string{"-U", "-", plugin}, r.parameters("transport=https", "connections=2")...)
	out := r.run("nbdkit", append(args, "--run", `nbdcopy "$uri" `+r.path("copy")+` && nbdinfo --size "$uri"`)...)
	if strings.TrimSpace(out) != strconv.Itoa(16<<20) {
		t.Errorf("printed: %s", out)
	}
	r.isSame(r.disk())
	r.mustEndSessions()
}

// Many clients and requests at a time read the same bytes, also at odd offsets.
func TestParallelConnectionsReadTheSameBytes(t *testing.T) {
	t.Parallel()
	cfg := config(48)
	cfg.VMs[0].Disks[0].Capacity += 512 // no whole MiB, and no whole 64 KiB
	r := newRig(t, cfg)
	s := r.start(r.virtV2V(r.parameters("connections=3", "plain=true"))...)
	done := make(chan error)
	for range 3 {
		go func() {
			done <- exec.Command("nbdcopy", "--connections=4", "--requests=16", "--request-size=65536", r.uri(), "null:").Run()
		}()
	}
	r.copied(r.disk(), "--connections=8", "--requests=32")
	for range 3 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if out := r.run("qemu-img", "compare", "-f", "raw", "-F", "raw", r.uri(), r.path("copy")); !strings.Contains(out, "identical") {
		t.Error(out)
	}
	if peak := r.lab.Stats().NFC.SessionsPeak; peak != 3 {
		t.Errorf("%d NFC sessions at a time", peak)
	}
	s.stop(syscall.SIGINT)
}

// A VM that runs is read from a snapshot, by the name of its disk or of the frozen one.
func TestSnapshotOfARunningVM(t *testing.T) {
	t.Parallel()
	cfg := config(16)
	cfg.VMs[0].PoweredOn = true
	cfg.VMs[0].Guest.Writes = lab.Writes{Seed: 7, Rate: 10 << 20, Spread: 60}
	r := newRig(t, cfg)
	r.refused(r.parameters(), "web01 is powered on", "snapshot=MOREF")
	session := r.login()
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
		s := r.start(r.virtV2V(r.parameters("snapshot="+string(ref), "file="+file))...)
		r.copied(want)
		if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		s.wait()
		for _, name := range []string{"pid", "socket", "copy"} {
			_ = os.Remove(r.path(name))
		}
	}
	r.refused(r.parameters("snapshot=snapshot-999"), "snapshot-999")
}
