// Package nbdkit tests the plugin nbdkit-nfc-plugin.so under Debian's nbdkit, with the command lines of virt-v2v,
// against the emulated ESXi and vCenter.
package nbdkit

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha1" //nolint:gosec // the form of thumbprints in vSphere
	"encoding/hex"
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab"
)

// plugin is the path of the plugin that TestMain builds.
var plugin string

// testTimeout is the longest time that a test waits for an event on a busy machine.
const testTimeout = 2 * time.Minute

func TestMain(m *testing.M) { os.Exit(runAll(m)) }

// runAll builds the plugin in a temporary folder and runs the tests.
func runAll(m *testing.M) int {
	flag.Parse()
	if testing.Short() {
		fmt.Println("skipped under -short: these tests build the plugin and start nbdkit")
		return 0
	}
	dir, err := os.MkdirTemp("", "decamp-nbdkit-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	plugin = filepath.Join(dir, "nbdkit-nfc-plugin.so")
	if out, err := exec.Command("../../scripts/nbdkit-plugin.sh", plugin, "1.2.3").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the plugin: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// rig is an emulated host with the VM web01.
type rig struct {
	t   *testing.T
	lab *lab.Lab
	vm  *inventory.VM // web01 at the start
	dir string        // folder of files and sockets
}

// newConfig returns a host with the VM web01, which has one disk of mib MiB.
func newConfig(mib int64) lab.Config {
	return lab.Config{VMs: []lab.VM{{
		Name: "web01", ChangeTracking: true, Disks: []lab.Disk{{Capacity: lab.Bytes(mib << 20), Fill: 40, Seed: 7}},
	}}}
}

func newRig(t *testing.T, cfg lab.Config) *rig {
	t.Helper()
	l, err := lab.Start(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	r := &rig{t: t, lab: l, dir: t.TempDir()}
	s := r.newSession()
	if r.vm, err = s.VM(t.Context(), "web01"); err != nil {
		t.Fatal(err)
	}
	r.writeFile("password", l.Password())
	return r
}

// newSession opens a session, which is closed at the end of the test.
func (r *rig) newSession() *esx.Session {
	r.t.Helper()
	s, err := esx.Dial(r.t.Context(), esx.Config{
		URL: &url.URL{Scheme: "esxi", User: url.User(r.lab.User()), Host: r.lab.Addr()}, AnyProduct: true, Fingerprint: r.lab.Fingerprint(),
		Password: func(context.Context) (esx.Secret, error) { return esx.Secret(r.lab.Password()), nil },
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = s.Close() }) // the test may have stopped the host
	return s
}

// filePath returns a path in the folder of the test.
func (r *rig) filePath(name string) string { return filepath.Join(r.dir, name) }

// writeFile writes a file in the folder of the test, and returns its path.
func (r *rig) writeFile(name, text string) string {
	r.t.Helper()
	if err := os.WriteFile(r.filePath(name), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return r.filePath(name)
}

// thumbprint returns the SHA-1 of the host's certificate, as virt-v2v users get it from openssl.
func (r *rig) thumbprint() string {
	r.t.Helper()
	chain, err := esx.CertificateChain(r.t.Context(), r.lab.Addr())
	if err != nil {
		r.t.Fatal(err)
	}
	sum := sha1.Sum(chain[0].Raw)
	text := strings.ToUpper(hex.EncodeToString(sum[:]))
	var pairs []string
	for ; text != ""; text = text[2:] {
		pairs = append(pairs, text[:2])
	}
	return strings.Join(pairs, ":")
}

// parameters returns the parameters that virt-v2v passes. others replace or extend them; one without a value removes
// its parameter.
func (r *rig) parameters(others ...string) []string {
	host, port, err := net.SplitHostPort(r.lab.Addr())
	if err != nil {
		r.t.Fatal(err)
	}
	list := []string{
		"server=" + host, "insecure=true", "vm=moref=" + string(r.vm.Ref), "user=" + r.lab.User(), "password=+" + r.filePath("password"),
		"port=" + port, "thumbprint=" + r.thumbprint(), "file=" + r.vm.Disks[0].Path.String(),
	}
	for _, other := range others {
		name, _, _ := strings.Cut(other, "=")
		list = deleteParameter(list, name)
		if !strings.HasSuffix(other, "=") {
			list = append(list, other)
		}
	}
	return list
}

func deleteParameter(list []string, name string) (rest []string) {
	for _, p := range list {
		if !strings.HasPrefix(p, name+"=") {
			rest = append(rest, p)
		}
	}
	return rest
}

// virtV2V returns the arguments with which virt-v2v starts nbdkit, without the filter count, which Debian 12 does not
// have.
func (r *rig) virtV2V(parameters []string) []string {
	args := []string{
		"--exit-with-parent", "--foreground", "--pidfile", r.filePath("pid"), "--unix", r.filePath("socket"), "--threads", "16",
		"-D", "nbdkit.backend.datapath=0", "--filter", "cow", "--filter", "retry", plugin,
	}
	return append(append(args, parameters...), "cow-block-size=4096")
}

// uri returns the address of the socket of virtV2V.
func (r *rig) uri() string { return "nbd+unix:///?socket=" + r.filePath("socket") }

// server is a running nbdkit.
type server struct {
	r     *rig
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has ended
	mu    sync.Mutex    // guards text
	text  bytes.Buffer  // standard error
}

// Write implements io.Writer.
func (s *server) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

// output returns what nbdkit has printed.
func (s *server) output() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// startServer starts nbdkit with these arguments, and waits for its file with the process id.
func (r *rig) startServer(args ...string) *server {
	r.t.Helper()
	s := r.startProcess(args...)
	waitUntil(r.t, "the file with the process id", func() bool {
		_, err := os.Stat(r.filePath("pid"))
		return err == nil || s.hasEnded()
	})
	return s
}

// startProcess starts nbdkit with these arguments. It is killed at the end of the test.
func (r *rig) startProcess(args ...string) *server {
	r.t.Helper()
	s := &server{r: r, cmd: exec.Command("nbdkit", args...), ended: make(chan struct{})}
	s.cmd.Stdout, s.cmd.Stderr, s.cmd.Env = s, s, append(os.Environ(), "LANG=C")
	if err := s.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	go func() {
		_ = s.cmd.Wait() // tests inspect the state
		close(s.ended)
	}()
	r.t.Cleanup(func() {
		_ = s.cmd.Process.Kill() // fails if the process has ended
		<-s.ended
		if r.t.Failed() {
			r.t.Logf("nbdkit printed:\n%s", s.output())
		}
	})
	return s
}

func (s *server) hasEnded() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// stopCleanly sends a signal and requires that nbdkit ends with status 0, that no session is left, and that nothing was
// printed.
func (s *server) stopCleanly(sig os.Signal) {
	s.r.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.r.t.Fatal(err)
	}
	s.wait()
	if code := s.cmd.ProcessState.ExitCode(); code != 0 {
		s.r.t.Errorf("nbdkit ended with status %d, want 0", code)
	}
	if out := s.output(); out != "" {
		s.r.t.Errorf("nbdkit printed %s, want nothing", out)
	}
	s.r.requireNoSessions()
}

// wait waits for the end of nbdkit.
func (s *server) wait() {
	s.r.t.Helper()
	select {
	case <-s.ended:
	case <-time.After(testTimeout):
		_ = s.cmd.Process.Signal(syscall.SIGQUIT)
		s.r.t.Fatal("nbdkit did not end in time")
	}
}

// requireNoSessions requires that the host has no session of the plugin: only that of the test is logged in.
func (r *rig) requireNoSessions() {
	r.t.Helper()
	waitUntil(r.t, "the end of all NFC sessions", func() bool { return r.lab.Stats().NFC.SessionsOpen == 0 })
	if calls := r.lab.Stats().SOAP; calls["Login"] != calls["Logout"]+1 {
		r.t.Errorf("%d logins, %d logouts, want one login more", calls["Login"], calls["Logout"])
	}
}

// waitUntil waits until done returns true.
func waitUntil(t *testing.T, event string, done func() bool) {
	t.Helper()
	deadline := time.After(testTimeout)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-deadline:
			t.Fatalf("timeout while waiting for %s", event)
		case <-tick.C:
		}
	}
}

// runTool runs a program to its end and returns its output.
func (r *rig) runTool(name string, args ...string) string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		r.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// copyAndCompare copies the disk with nbdcopy, and requires that the copy has the content want.
func (r *rig) copyAndCompare(want lab.DiskContent, args ...string) {
	r.t.Helper()
	r.runTool("nbdcopy", append(args, r.uri(), r.filePath("copy"))...)
	r.requireSameContent(want)
}

// requireSameContent requires that the copy has the content want.
func (r *rig) requireSameContent(want lab.DiskContent) {
	r.t.Helper()
	got, err := os.Open(r.filePath("copy"))
	if err != nil {
		r.t.Fatal(err)
	}
	defer got.Close()
	st, err := got.Stat()
	if err != nil {
		r.t.Fatal(err)
	}
	if st.Size() != want.Size {
		r.t.Fatalf("the copy has %d bytes, want %d", st.Size(), want.Size)
	}
	a, b := make([]byte, 1<<20), make([]byte, 1<<20)
	for off := int64(0); off < want.Size; off += int64(len(a)) {
		n := min(int64(len(a)), want.Size-off)
		_, err := got.ReadAt(a[:n], off)
		_, failed := want.ReadAt(b[:n], off)
		if err = cmp.Or(err, failed); err != nil {
			r.t.Fatal(err)
		}
		if !bytes.Equal(a[:n], b[:n]) {
			r.t.Fatalf("the copy differs in the MiB at %d", off)
		}
	}
}

// diskContent returns the content of the disk on the host.
func (r *rig) diskContent() lab.DiskContent {
	r.t.Helper()
	c, err := r.lab.Disk("web01", 0)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// requireRefused starts nbdkit with these parameters, and requires that it ends with one line that contains all words.
func (r *rig) requireRefused(parameters []string, words ...string) {
	r.t.Helper()
	s := r.startProcess(r.virtV2V(parameters)...)
	s.wait()
	out := s.output()
	if s.cmd.ProcessState.Success() || strings.Count(out, "\n") != 1 {
		r.t.Errorf("%v: status %d, output %s, want an error and one line", parameters, s.cmd.ProcessState.ExitCode(), out)
	}
	for _, word := range words {
		if !strings.Contains(out, word) {
			r.t.Errorf("%v: %q is not in: %s", parameters, word, out)
		}
	}
	_ = os.Remove(r.filePath("socket"))
	_ = os.Remove(r.filePath("pid"))
}
