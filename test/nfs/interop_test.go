package nfs

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/lab/nfsclient"
)

// insideEnv tells the test binary that it runs where it has a network of its own.
const insideEnv = "NFS_INSIDE"

// inside runs the test again in a network namespace of its own, where ports 111 and 2049
// are free: QEMU's driver has no option for either. It returns true there, and false where
// the test began and is already over.
func inside(t *testing.T) bool {
	t.Helper()
	if os.Getenv(insideEnv) != "" {
		return true
	}
	needRoot(t)
	requires(t, "unshare", "ip")
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", "--net", "sh", "-c", `ip link set lo up && exec "$@"`, "sh", os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
	return false
}

// requires skips a test whose tools are not installed.
func requires(t *testing.T, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s: %v", tool, err)
		}
	}
}

// try runs a tool and returns what it says.
func try(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out), err
}

func mustRun(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := try(t, name, args...)
	must(t, err)
	return out
}

// Clients of others on decamp land, one after the other: libnfs' tools, QEMU over nfs://,
// fio, and the lab's ESXi. What they write is what is there, and what they read. With
// -tags slow all of it is captured, and dissected by Wireshark: no frame is malformed, no
// call is refused, and no status is one that the tools did not provoke.
func TestClientsOfOthers(t *testing.T) {
	requires(t, "nfs-ls", "nfs-cp", "nfs-cat", "qemu-img", "qemu-io", fioBinary)
	if slow {
		requires(t, "dumpcap", "tshark")
	}
	if !inside(t) {
		return
	}
	c := &clients{land: newLandAt(t, "127.0.0.1", "111"), work: t.TempDir()}
	end := func() {}
	if slow {
		end = capture(t, filepath.Join(c.work, "wire.pcapng"))
	}
	t.Run("libnfs", c.libnfs)
	t.Run("qemu-img", c.qemuImg)
	t.Run("qemu-io", c.qemuIO)
	t.Run("fio", c.fio)
	t.Run("esxi", c.esxi)
	if slow {
		end()
		t.Run("wireshark", func(t *testing.T) { dissect(t, filepath.Join(c.work, "wire.pcapng")) })
	}
}

// clients are those of one decamp land.
type clients struct {
	*land
	work string
}

func (c *clients) url(name string) string {
	return "nfs://" + c.Address + filepath.Join(c.dir, name)
}

// file makes a file outside of the export.
func (c *clients) file(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(c.work, name)
	must(t, os.WriteFile(path, content, 0o600))
	return path
}

// sparse is n bytes with holes, the same ones each time.
func sparse(n int) []byte {
	rnd := rand.New(rand.NewPCG(uint64(n), 8))
	p := make([]byte, n)
	for off := 0; off < n; off += ioSize {
		if rnd.IntN(3) > 0 {
			w := write{seed: rnd.Uint64() | 1}
			w.Len = int64(min(ioSize, n-off))
			copy(p[off:], w.bytes())
		}
	}
	return p
}

func (c *clients) wantFile(t *testing.T, name string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(filepath.Join(c.dir, name))
	must(t, err)
	wantBytes(t, got, want)
}

func (c *clients) libnfs(t *testing.T) {
	want := sparse(3<<20 + 777)
	in, out := c.file(t, "in", want), filepath.Join(c.work, "out")
	mustRun(t, "nfs-cp", in, c.url("web01-flat.vmdk"))
	c.wantFile(t, "web01-flat.vmdk", want)
	mustRun(t, "nfs-cp", c.url("web01-flat.vmdk"), out)
	got, err := os.ReadFile(out)
	must(t, err)
	wantBytes(t, got, want)
	if cat := mustRun(t, "nfs-cat", c.url("web01-flat.vmdk")); cat != string(want) {
		t.Error("nfs-cat shows something else")
	}
	if list := mustRun(t, "nfs-ls", c.url("")); !strings.Contains(list, "web01-flat.vmdk") {
		t.Errorf("nfs-ls shows %s", list)
	}
}

func (c *clients) qemuImg(t *testing.T) {
	want := sparse(16 << 20)
	in := c.file(t, "disk.raw", want)
	mustRun(t, "qemu-img", "convert", "-f", "raw", "-O", "raw", in, c.url("disk.raw"))
	c.wantFile(t, "disk.raw", want)
	mustRun(t, "qemu-img", "convert", "-f", "raw", "-O", "qcow2", c.url("disk.raw"), c.url("disk.qcow2"))
	mustRun(t, "qemu-img", "check", c.url("disk.qcow2"))
	mustRun(t, "qemu-img", "compare", "-f", "raw", "-F", "qcow2", in, c.url("disk.qcow2"))
	mustRun(t, "qemu-img", "compare", "-f", "raw", "-F", "qcow2", in, filepath.Join(c.dir, "disk.qcow2"))
	if info := mustRun(t, "qemu-img", "info", c.url("disk.qcow2")); !strings.Contains(info, "virtual size: 16 MiB") {
		t.Errorf("qemu-img info says %s", info)
	}
}

// qemuIO writes patterns here and there, zeros and new sizes among them, and has them read
// back and compared, by qemu-io and by itself.
func (c *clients) qemuIO(t *testing.T) {
	const size, ops = 8 << 20, 60
	rnd := rand.New(rand.NewPCG(7, 9))
	model := make([]byte, size)
	must(t, os.WriteFile(filepath.Join(c.dir, "io.raw"), model, 0o600))
	var commands []string
	for range ops {
		const unit = 512
		off := rnd.IntN(size/unit) * unit
		n := min((1+rnd.IntN(500))*unit, size-off)
		pattern := byte(1 + rnd.IntN(255))
		do := fmt.Sprintf("write -P %d %d %d", pattern, off, n)
		if rnd.IntN(5) == 0 {
			pattern, do = 0, fmt.Sprintf("write -z %d %d", off, n)
		}
		copy(model[off:], bytes.Repeat([]byte{pattern}, n))
		commands = append(commands, "-c", do, "-c", fmt.Sprintf("read -P %d %d %d", pattern, off, n))
		if rnd.IntN(8) == 0 {
			commands = append(commands, "-c", "flush")
		}
	}
	out := mustRun(t, "qemu-io", append(append([]string{"-f", "raw"}, commands...), c.url("io.raw"))...)
	if strings.Contains(out, "failed") {
		t.Errorf("qemu-io says %s", out)
	}
	c.wantFile(t, "io.raw", model)
	mustRun(t, "qemu-img", "resize", "-f", "raw", c.url("io.raw"), fmt.Sprint(size+1<<20))
	c.wantFile(t, "io.raw", append(model, make([]byte, 1<<20)...))
}

func (c *clients) esxi(t *testing.T) {
	for _, unstable := range []bool{false, true} {
		p := newProgram(5)
		ds, err := nfsclient.Mount(t.Context(), nfsclient.Config{Host: c.Address, Path: c.dir, Times: quick(), Unstable: unstable})
		must(t, err)
		name := fmt.Sprintf("web02-%v-flat.vmdk", unstable)
		f, err := ds.Create(t.Context(), name)
		must(t, err)
		must(t, errors.Join(p.play(t.Context(), f, func() {}), f.Close(t.Context()), ds.Unmount(t.Context())))
		c.wantFile(t, name, p.model())
	}
}

// capture writes what goes over loopback to a file until the end of it is asked for.
func capture(t *testing.T, path string) (end func()) {
	t.Helper()
	cmd := exec.Command("dumpcap", "-q", "-i", "lo", "-B", "256", "-w", path)
	said, err := cmd.StderrPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it has usually ended
	lines := bufio.NewScanner(said)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "File:") { // what it says once it captures
		continue
	}
	return func() {
		t.Helper()
		must(t, cmd.Process.Signal(os.Interrupt))
		var last string
		for lines.Scan() {
			last = lines.Text()
			if strings.Contains(last, "dropped") && !strings.Contains(last, "/0 (") {
				t.Logf("dumpcap: %s", last)
			}
		}
		must(t, cmd.Wait())
	}
}

// dissect has Wireshark judge what was captured.
func dissect(t *testing.T, path string) {
	read := func(filter string, fields ...string) []string {
		t.Helper()
		args := []string{"-r", path, "-d", "tcp.port==2049,rpc", "-Y", filter}
		if len(fields) > 0 {
			args = append(args, "-T", "fields")
		}
		for _, f := range fields {
			args = append(args, "-e", f)
		}
		out, err := exec.Command("tshark", args...).Output()
		must(t, err)
		return strings.FieldsFunc(string(out), func(r rune) bool { return r == '\n' })
	}
	if bad := read("_ws.malformed"); len(bad) > 0 {
		t.Errorf("%d frames are malformed, the first is %s", len(bad), bad[0])
	}
	if bad := read("rpc.state_accept != 0 || rpc.replystat != 0"); len(bad) > 0 {
		t.Errorf("%d calls are refused, the first is %s", len(bad), bad[0])
	}
	provoked := map[string]bool{"0": true, "2": true} // a name is looked up before it is created
	statuses := map[string]int{}
	for _, line := range read("nfs.status3", "nfs.status3") {
		for _, s := range strings.Split(line, ",") { // several replies in one frame
			statuses[s]++
		}
	}
	for s, n := range statuses {
		if !provoked[s] {
			t.Errorf("%d replies have nfsstat3 %s", n, s)
		}
	}
	calls := map[string]bool{}
	for _, line := range read("nfs && rpc.msgtyp == 0", "nfs.procedure_v3") {
		for _, p := range strings.Split(line, ",") {
			calls[p] = true
		}
	}
	t.Logf("%v replies by nfsstat3, procedures %v", statuses, calls)
	const enough, procedures = 500, 12
	if statuses["0"] < enough || len(calls) < procedures {
		t.Errorf("Wireshark has seen %d replies and %d procedures, want %d and %d at least", statuses["0"], len(calls), enough, procedures)
	}
}
