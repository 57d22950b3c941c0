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

// inNamespaceEnv is the environment variable that is set inside the network namespace of a test.
const inNamespaceEnv = "NFS_INSIDE"

// inNetNamespace runs the test again in a separate network namespace, in which ports 111 and 2049 are free:
// QEMU's driver has no option for either. It returns true inside the namespace. Outside it waits for the
// end of that run and returns false.
func inNetNamespace(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inNamespaceEnv) != "" {
		return true
	}
	requireRoot(t)
	requireTools(t, "unshare", "ip")
	ctx, cancel := context.WithTimeout(t.Context(), 2*testTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", "--net", "sh", "-c", `ip link set lo up && exec "$@"`, "sh", os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), inNamespaceEnv+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
	return false
}

// requireTools skips the test if one of the tools is not installed.
func requireTools(t *testing.T, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s: %v", tool, err)
		}
	}
}

// runTool runs a tool and returns its output.
func runTool(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out), err
}

func mustRunTool(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := runTool(t, name, args...)
	must(t, err)
	return out
}

// Foreign clients use decamp land one after the other: the tools of libnfs, QEMU over nfs://, fio, and the
// ESXi of the lab. The files on the server and the reads of the clients have the written content. With
// -tags slow Wireshark checks the captured traffic: no frame is malformed, no call is rejected, and no
// status is unexpected.
func TestLandServesForeignClients(t *testing.T) {
	requireTools(t, "nfs-ls", "nfs-cp", "nfs-cat", "qemu-img", "qemu-io", fioBinary)
	if slow {
		requireTools(t, "dumpcap", "tshark")
	}
	if !inNetNamespace(t) {
		return
	}
	c := &foreignClients{landServer: newLandAt(t, "127.0.0.1", "111"), work: t.TempDir()}
	end := func() {}
	if slow {
		end = startCapture(t, filepath.Join(c.work, "wire.pcapng"))
	}
	t.Run("libnfs", c.testLibnfs)
	t.Run("qemu-img", c.testQemuImg)
	t.Run("qemu-io", c.testQemuIO)
	t.Run("fio", c.testFio)
	t.Run("esxi", c.testESXi)
	if slow {
		end()
		t.Run("wireshark", func(t *testing.T) { checkCapture(t, filepath.Join(c.work, "wire.pcapng")) })
	}
}

// foreignClients are the clients of one decamp land.
type foreignClients struct {
	*landServer
	work string
}

func (c *foreignClients) url(name string) string {
	return "nfs://" + c.Address + filepath.Join(c.dir, name)
}

// writeFile creates a file outside the export and returns its path.
func (c *foreignClients) writeFile(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(c.work, name)
	must(t, os.WriteFile(path, content, 0o600))
	return path
}

// sparseContent returns n bytes with holes. The content depends only on n.
func sparseContent(n int) []byte {
	rnd := rand.New(rand.NewPCG(uint64(n), 8))
	p := make([]byte, n)
	for off := 0; off < n; off += ioSize {
		if rnd.IntN(3) > 0 {
			w := write{seed: rnd.Uint64() | 1}
			w.Len = int64(min(ioSize, n-off))
			copy(p[off:], w.content())
		}
	}
	return p
}

func (c *foreignClients) wantFile(t *testing.T, name string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(filepath.Join(c.dir, name))
	must(t, err)
	wantBytes(t, got, want)
}

func (c *foreignClients) testLibnfs(t *testing.T) {
	want := sparseContent(3<<20 + 777)
	in, out := c.writeFile(t, "in", want), filepath.Join(c.work, "out")
	mustRunTool(t, "nfs-cp", in, c.url("web01-flat.vmdk"))
	c.wantFile(t, "web01-flat.vmdk", want)
	mustRunTool(t, "nfs-cp", c.url("web01-flat.vmdk"), out)
	got, err := os.ReadFile(out)
	must(t, err)
	wantBytes(t, got, want)
	if cat := mustRunTool(t, "nfs-cat", c.url("web01-flat.vmdk")); cat != string(want) {
		t.Error("the output of nfs-cat differs from the file")
	}
	if list := mustRunTool(t, "nfs-ls", c.url("")); !strings.Contains(list, "web01-flat.vmdk") {
		t.Errorf("output of nfs-ls: %s, want web01-flat.vmdk in it", list)
	}
}

func (c *foreignClients) testQemuImg(t *testing.T) {
	want := sparseContent(16 << 20)
	in := c.writeFile(t, "disk.raw", want)
	mustRunTool(t, "qemu-img", "convert", "-f", "raw", "-O", "raw", in, c.url("disk.raw"))
	c.wantFile(t, "disk.raw", want)
	mustRunTool(t, "qemu-img", "convert", "-f", "raw", "-O", "qcow2", c.url("disk.raw"), c.url("disk.qcow2"))
	mustRunTool(t, "qemu-img", "check", c.url("disk.qcow2"))
	mustRunTool(t, "qemu-img", "compare", "-f", "raw", "-F", "qcow2", in, c.url("disk.qcow2"))
	mustRunTool(t, "qemu-img", "compare", "-f", "raw", "-F", "qcow2", in, filepath.Join(c.dir, "disk.qcow2"))
	if info := mustRunTool(t, "qemu-img", "info", c.url("disk.qcow2")); !strings.Contains(info, "virtual size: 16 MiB") {
		t.Errorf("output of qemu-img info: %s, want a virtual size of 16 MiB", info)
	}
}

// testQemuIO writes patterns and zeros at random offsets with qemu-io and resizes the file with qemu-img.
// qemu-io compares each write, and the test compares the whole file.
func (c *foreignClients) testQemuIO(t *testing.T) {
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
	out := mustRunTool(t, "qemu-io", append(append([]string{"-f", "raw"}, commands...), c.url("io.raw"))...)
	if strings.Contains(out, "failed") {
		t.Errorf("output of qemu-io: %s", out)
	}
	c.wantFile(t, "io.raw", model)
	mustRunTool(t, "qemu-img", "resize", "-f", "raw", c.url("io.raw"), fmt.Sprint(size+1<<20))
	c.wantFile(t, "io.raw", append(model, make([]byte, 1<<20)...))
}

func (c *foreignClients) testESXi(t *testing.T) {
	for _, unstable := range []bool{false, true} {
		p := newProgram(5)
		ds, err := nfsclient.Mount(t.Context(), nfsclient.Config{Host: c.Address, Path: c.dir, Times: fastTimes(), Unstable: unstable})
		must(t, err)
		name := fmt.Sprintf("web02-%v-flat.vmdk", unstable)
		f, err := ds.Create(t.Context(), name)
		must(t, err)
		must(t, errors.Join(p.play(t.Context(), f, func() {}), f.Close(t.Context()), ds.Unmount(t.Context())))
		c.wantFile(t, name, p.expectedDisk())
	}
}

// startCapture captures the loopback traffic to a file until the returned function is called.
func startCapture(t *testing.T, path string) (end func()) {
	t.Helper()
	cmd := exec.Command("dumpcap", "-q", "-i", "lo", "-B", "256", "-w", path)
	stderr, err := cmd.StderrPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // fails if the process has ended
	lines := bufio.NewScanner(stderr)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "File:") { // dumpcap prints this line when it captures
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

// checkCapture checks a capture with Wireshark.
func checkCapture(t *testing.T, path string) {
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
		t.Errorf("%d calls are rejected, the first is %s", len(bad), bad[0])
	}
	expected := map[string]bool{"0": true, "2": true} // clients look up a name before they create it
	statuses := map[string]int{}
	for _, line := range read("nfs.status3", "nfs.status3") {
		for _, s := range strings.Split(line, ",") { // a frame may hold several replies
			statuses[s]++
		}
	}
	for s, n := range statuses {
		if !expected[s] {
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
		t.Errorf("Wireshark found %d replies and %d procedures, want at least %d and %d", statuses["0"], len(calls), enough, procedures)
	}
}
