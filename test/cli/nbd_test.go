package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/childenv/childenvtest"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab"
	tinyguest "github.com/decamp/decamp/test/guest"
	"github.com/decamp/decamp/test/program"
)

// nbdServer is a decamp nbd process that serves disks.
type nbdServer struct {
	*exec.Cmd
	t      *testing.T
	stderr bytes.Buffer
	lines  *bufio.Reader // standard output

	Snapshot, Transport, URI, Socket string
	Exports                          []struct {
		Name, Description, URI string
		Disk                   int32
		Size                   int64
	}
}

// serveNBD starts decamp nbd and waits until it serves web01.
func (r *rig) serveNBD(args ...string) *nbdServer {
	r.t.Helper()
	program.Requires(r.t, "nbdcopy")
	s := &nbdServer{t: r.t, Cmd: r.command(append(append([]string{"nbd", r.url(), "web01", "--json"}, r.extra...), args...)...)}
	s.Stderr = &s.stderr
	out, err := s.StdoutPipe()
	must(r.t, err)
	s.lines = bufio.NewReader(out)
	must(r.t, s.Start())
	r.t.Cleanup(func() { _ = s.Process.Kill(); _ = s.Wait() }) // usually it has ended
	line, err := s.lines.ReadBytes('\n')
	if err != nil {
		_ = s.Wait()
		r.t.Fatalf("decamp nbd: %v: %s%s", err, line, s.stderr.String())
	}
	must(r.t, json.Unmarshal(line, &struct{ Serving *nbdServer }{s}))
	if len(s.Exports) == 0 {
		r.t.Fatalf("nothing is served: %s", line)
	}
	return s
}

// stop ends decamp with a signal. It returns the number of bytes that decamp sent to clients and read from the host.
func (s *nbdServer) stop() (sent, read int64) {
	s.t.Helper()
	must(s.t, s.Process.Signal(syscall.SIGTERM))
	text, err := io.ReadAll(s.lines)
	must(s.t, err)
	if code := exitCode(s.t, s.Cmd); code != 0 {
		s.t.Fatalf("exit code %d: %s%s", code, text, s.stderr.String())
	}
	var last struct{ Ended struct{ Served, Read int64 } }
	must(s.t, json.Unmarshal(text, &last))
	if _, err := os.Stat(filepath.Dir(s.Socket)); s.Socket != "" && err == nil && !strings.Contains(strings.Join(s.Args, " "), "--socket") {
		s.t.Errorf("the private folder of %s still exists", s.Socket)
	}
	return last.Ended.Served, last.Ended.Read
}

// runTool runs a program and returns its output.
func runTool(t *testing.T, args ...string) string {
	t.Helper()
	program.Requires(t, args[0])
	out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// copyNBD copies a disk with nbdcopy and compares it with the disk of web01.
func (r *rig) copyNBD(uri string, n int) {
	r.t.Helper()
	want, err := r.lab.Disk("web01", n)
	must(r.t, err)
	program.SameDisk(r.t, r.nbdcopy(uri), want)
}

// nbdcopy copies a disk to a new file and returns its path.
func (r *rig) nbdcopy(uri string) string {
	r.t.Helper()
	file, copied := r.startNBDCopy(uri)
	must(r.t, <-copied)
	return file
}

// startNBDCopy starts nbdcopy, which copies a disk to a new file. The channel receives the error of nbdcopy.
func (r *rig) startNBDCopy(uri string) (path string, copied <-chan error) {
	r.t.Helper()
	program.Requires(r.t, "nbdcopy")
	file, err := os.CreateTemp(r.dir, "copy-*.raw")
	must(r.t, err)
	must(r.t, file.Close())
	cmd := exec.CommandContext(r.t.Context(), "nbdcopy", uri, file.Name())
	done := make(chan error, 1)
	go func() {
		out, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("nbdcopy %s: %w: %s", uri, err, out)
		}
		done <- err
	}()
	return file.Name(), done
}

func TestNBDServesDisks(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"https", "nfc"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, smallLab()).withFingerprint()
			s := r.serveNBD("--transport", transport)
			var list struct {
				Exports []struct {
					Name       string `json:"export-name"`
					Text       string `json:"description"`
					Size       int64  `json:"export-size"`
					ReadOnly   bool   `json:"is_read_only"`
					ManyConns  bool   `json:"can_multi_conn"`
					Structured bool
				}
			}
			must(t, json.Unmarshal([]byte(runTool(t, "nbdinfo", "--json", "--list", "nbd+unix:///?socket="+s.Socket)), &list))
			if len(list.Exports) != 2 || s.Transport != transport || s.Snapshot != "" {
				t.Fatalf("%s serves %+v", s.Transport, list.Exports)
			}
			for i, x := range list.Exports {
				want, err := r.lab.Disk("web01", i)
				must(t, err)
				if x.Name != fmt.Sprintf("disk-%d", want.Key) || x.Size != want.Size || !x.ReadOnly || !x.ManyConns || !strings.HasPrefix(x.Text, "[datastore1] web01/web01") {
					t.Errorf("export %+v", x)
				}
			}
			first, copied := r.startNBDCopy(s.Exports[0].URI) // two clients at once
			r.copyNBD(s.Exports[1].URI, 1)
			must(t, <-copied)
			want, err := r.lab.Disk("web01", 0)
			must(t, err)
			program.SameDisk(t, first, want)
			file := r.nbdcopy("nbd+unix:///?socket=" + s.Socket) // the empty name is the first disk
			program.SameDisk(t, file, want)
			if out := runTool(t, "qemu-img", "compare", "-f", "raw", "-F", "raw", s.URI, file); !strings.Contains(out, "identical") {
				t.Error(out)
			}
			if sent, read := s.stop(); sent < want.Allocated || read == 0 || read > 4*want.Allocated {
				t.Errorf("%d bytes were sent and %d read of a disk with %d allocated bytes", sent, read, want.Allocated)
			}
			for end := time.Now().Add(time.Minute); r.lab.Stats().NFC.SessionsOpen > 0; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%d NFC sessions are open", r.lab.Stats().NFC.SessionsOpen)
				}
			}
		})
	}
}

// decamp nbd serves the disks of a running VM as they were at its start, although the guest writes.
func TestNBDOfARunningVM(t *testing.T) {
	t.Parallel()
	for _, locks := range []lab.LockMode{lab.LockActive, lab.LockAll} {
		t.Run(string(locks), func(t *testing.T) {
			t.Parallel()
			cfg := writingLab()
			cfg.Locks, cfg.VMs[0].Guest.Writes.Rate, cfg.VMs[0].Guest.Writes.AtStop = locks, 0, 0
			r := newRig(t, cfg).withFingerprint()
			s := r.serveNBD()
			if transport := map[lab.LockMode]string{lab.LockActive: "https", lab.LockAll: "nfc"}[locks]; s.Transport != transport {
				t.Errorf("read over %s, want %s", s.Transport, transport)
			}
			if vm := r.sourceVM("web01"); vm.Snapshots != 1 || s.Snapshot == "" {
				t.Errorf("got %d snapshots and serve snapshot %q, want one snapshot", vm.Snapshots, s.Snapshot)
			}
			live, err := r.lab.Disk("web01", 0)
			must(t, err)
			before := r.nbdcopy(s.URI)
			program.SameDisk(t, before, live)
			must(t, r.lab.GuestWrites("web01", 20))
			file, err := os.Open(before)
			must(t, err)
			defer file.Close()
			if program.FirstDifference(t, file, live.ReaderAt, live.Size) < 0 {
				t.Fatal("the guest wrote nothing")
			}
			program.SameDisk(t, r.nbdcopy(s.URI), lab.DiskContent{ReaderAt: file, Size: live.Size})
			s.stop()
			r.checkRestored(inventory.PoweredOn)
			r.checkNoLeftovers()
		})
	}
}

// decamp clean and the next decamp nbd remove the snapshot of a killed decamp nbd. They keep the snapshot of a running
// one.
func TestKilledNBDLeavesNoSnapshot(t *testing.T) {
	t.Parallel()
	r := newRig(t, writingLab()).withFingerprint()
	killed := r.serveNBD("--transport", "nfc", "--socket", r.dir)
	must(t, killed.Process.Kill())
	_ = killed.Wait()
	r.run("runs").wantExit(0).wantOutput("Changes on hosts that are not reverted", "snapshot \"decamp nbd web01 ")
	s := r.serveNBD("--transport", "nfc", "--socket", r.dir) // replaces the old socket
	if n := r.sourceVM("web01").Snapshots; n != 1 {
		t.Errorf("%d snapshots: %s", n, s.stderr.String())
	}
	r.checkNoLeftovers() // the snapshot in use is not a leftover
	r.runOnSource("clean", r.url()).wantExit(0).wantOutput("has no recorded changes")
	if r.sourceVM("web01").Snapshots != 1 {
		t.Error("decamp clean removed the snapshot in use")
	}
	r.nbdcopy(s.URI)
	must(t, s.Process.Kill())
	_ = s.Wait()
	r.runOnSource("clean", r.url()).wantExit(0).wantOutput("Reverted on host", "snapshot \"decamp nbd web01 ")
	r.checkRestored(inventory.PoweredOn)
}

func TestNBDOfASnapshot(t *testing.T) {
	t.Parallel()
	cfg := smallLab()
	cfg.VMs[0].Snapshots = []string{"base", "twice", "twice"}
	r := newRig(t, cfg).withFingerprint()
	s := r.serveNBD("--snapshot", "base")
	r.copyNBD(s.URI, 0)
	s.stop()
	r.runOnSource("nbd", r.url(), "web01", "--snapshot", "bas").wantExit(3).wantOutput("near: base", "base > twice (snapshot-")
	got := r.runOnSource("nbd", r.url(), "web01", "--snapshot", "twice").wantExit(6).wantOutput("2 snapshots with the name \"twice\"", "base > twice (snapshot-", "base > twice > twice (snapshot-")
	_, ref, _ := strings.Cut(got.stderr, "--snapshot ")
	s = r.serveNBD("--snapshot", strings.TrimSpace(ref))
	if s.Snapshot != strings.TrimSpace(ref) {
		t.Errorf("decamp nbd serves %s, want %s", s.Snapshot, ref)
	}
	s.stop()
	current := r.serveNBD() // a delta disk, which only NFC can read
	r.copyNBD(current.URI, 0)
	if current.Transport != "nfc" {
		t.Errorf("read over %s", current.Transport)
	}
	current.stop()
	if n := r.sourceVM("web01").Snapshots; n != 3 {
		t.Errorf("got %d snapshots, want 3", n)
	}
}

func TestNBDRunsACommand(t *testing.T) {
	t.Parallel()
	r := newRig(t, smallLab()).withFingerprint()
	for _, name := range childenvtest.Secrets {
		if name != "LD_PRELOAD" {
			r.env = append(r.env, name+"=/nowhere")
		}
	}
	nbd := func(words ...string) result {
		return r.run(slices.Concat([]string{"nbd", r.url(), "web01"}, r.extra, []string{"--"}, words)...)
	}
	copied := filepath.Join(r.dir, "copied.raw")
	got := nbd(`echo copying; nbdcopy "$NBD_URI_2001" `+copied+` && env`).wantExit(0).wantOutput("Sent ", " to clients")
	want, err := r.lab.Disk("web01", 1)
	must(t, err)
	program.SameDisk(t, copied, want)
	if !strings.HasPrefix(got.stdout, "copying\n") || strings.Contains(got.stdout, "served") {
		t.Errorf("the standard output contains more than that of the command: %s", got.stdout)
	}
	for _, name := range []string{"NBD_URI=nbd+unix:///disk-2000?socket=", "NBD_URI_2000=", "NBD_URI_2001=", "PATH="} {
		if !strings.Contains("\n"+got.stdout, "\n"+name) {
			t.Errorf("the environment of the command does not contain %s: %s", name, got.stdout)
		}
	}
	for _, name := range append(childenvtest.Secrets, "DECAMP_PASSWORD_FILE") {
		if strings.Contains(got.stdout, name+"=") {
			t.Errorf("the environment of the command contains %s", name)
		}
	}
	if got := nbd("sh", "-c", `exit "$0"`, "7").wantExit(7); strings.Contains(got.stderr, "decamp:") {
		t.Errorf("decamp reports the exit code, too: %s", got.stderr)
	}
	nbd("kill -KILL $$").wantExit(128 + 9)
	nbd("/no/such/program", "x").wantExit(3).wantOutput("/no/such/program")
}

// decamp nbd passes SIGTERM to its command and ends when the command ends.
func TestNBDPassesSignals(t *testing.T) {
	t.Parallel()
	r := newRig(t, smallLab()).withFingerprint()
	s := r.serveNBD("--", `trap 'nbdinfo --size "$NBD_URI"; exit 9' TERM; echo ready; while :; do sleep 0.1; done`)
	if line, err := s.lines.ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	must(t, s.Process.Signal(syscall.SIGTERM))
	text, err := io.ReadAll(s.lines)
	must(t, err)
	if code := exitCode(t, s.Cmd); code != 9 || !strings.HasPrefix(string(text), fmt.Sprintln(s.Exports[0].Size)) || !strings.HasSuffix(string(text), "\"exitStatus\":9}}\n") {
		t.Errorf("exit code %d: %s%s", code, text, s.stderr.String())
	}
}

func TestNBDRefuses(t *testing.T) {
	t.Parallel()
	cfg := smallLab()
	cfg.Datastores = []lab.Datastore{{Name: "datastore1"}, {Name: "objects", Type: "vsan"}}
	disk := func(change func(*lab.Disk)) []lab.Disk {
		d := lab.Disk{Capacity: 4 << 20, Fill: 50, Seed: 9}
		change(&d)
		return []lab.Disk{{Capacity: 4 << 20}, d}
	}
	cfg.VMs = append(cfg.VMs,
		lab.VM{Name: "independent", PoweredOn: true, Disks: disk(func(d *lab.Disk) { d.Mode = "independent_persistent" })},
		lab.VM{Name: "encrypted", KeyID: "key", Disks: disk(func(*lab.Disk) {})},
		lab.VM{Name: "rdm", Disks: disk(func(d *lab.Disk) { d.RDM = "physicalMode" })},
		lab.VM{Name: "objects", Disks: disk(func(d *lab.Disk) { d.Datastore = "objects" })})
	r := newRig(t, cfg).withFingerprint()
	busy := r.serveNBD("--socket", r.dir)
	for name, tc := range map[string]struct {
		code   int
		output string
		args   []string // after the URL
	}{
		"any address without TLS":      {2, "add --tls-cert FILE", []string{"web01", "--listen", ":10809"}},
		"a public address without TLS": {2, "any machine that reaches this address", []string{"web01", "--listen", "192.0.2.1"}},
		"no address":                   {2, "such as 127.0.0.1:10809", []string{"web01", "--listen", "127.0.0.1:x"}},
		"TLS of a socket":              {2, "requires --listen", []string{"web01", "--tls-cert", "a", "--tls-key", "b"}},
		"TLS without a key":            {2, "want both", []string{"web01", "--listen", ":1", "--tls-cert", "a"}},
		"TLS without files":            {2, "no such file", []string{"web01", "--listen", ":1", "--tls-cert", "a", "--tls-key", "b"}},
		"socket and address":           {2, "exclude each other", []string{"web01", "--socket", r.dir, "--listen", "127.0.0.1"}},
		"socket in use":                {6, "another process serves", []string{"web01", "--socket", r.dir}},
		"no folder":                    {3, "mkdir -m 700", []string{"web01", "--socket", r.dir + "/none"}},
		"long path":                    {2, "longer than 107 bytes", []string{"web01", "--socket", r.longFolder()}},
		"landing":                      {7, "no random access", []string{"web01", "--transport", "landing"}},
		"other transport":              {2, "want auto, https or nfc", []string{"web01", "--transport", "ftp"}},
		"other VM":                     {3, "near: web01", []string{"web02"}},
		"other disk":                   {3, "2000 (Hard disk 1, 10 MiB, [datastore1] web01/web01.vmdk), 2001", []string{"web01", "--disk", "2009"}},
		"no snapshots":                 {3, "omit --snapshot", []string{"web01", "--snapshot", "x"}},
		"independent":                  {6, "snapshots do not include its disk 2001", []string{"independent"}},
		"encrypted":                    {7, "decrypt it first", []string{"encrypted"}},
		"RDM":                          {7, "disk 2001 of VM rdm is a raw device mapping", []string{"rdm"}},
		"object over https":            {7, "move the disk to a VMFS or NFS datastore", []string{"objects", "--transport", "https"}},
		"no VM":                        {2, "VM is missing", nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := *r
			r.t = t
			got := r.runOnSource(append([]string{"nbd", r.url()}, tc.args...)...).wantExit(tc.code).wantOutput(tc.output)
			if !strings.Contains(got.stderr, "Remedy: ") && tc.code != 2 {
				t.Errorf("no remedy: %s", got.stderr)
			}
		})
	}
	busy.stop()
}

// longFolder creates a folder whose path is too long for a socket.
func (r *rig) longFolder() string {
	dir := filepath.Join(r.dir, strings.Repeat("long", 30))
	must(r.t, os.MkdirAll(dir, 0o700))
	return dir
}

func TestNBDWithoutPermission(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*lab.Config)
		code   int
		output string
	}{
		"snapshot":     {func(c *lab.Config) { c.Lacks = []string{"VirtualMachine.State.CreateSnapshot"} }, 4, "grant the user the privilege VirtualMachine.State.CreateSnapshot"},
		"free licence": {func(c *lab.Config) { c.ReadOnlyLicence = true }, 4, "create a snapshot in the host's web client"},
		"disks": {func(c *lab.Config) {
			c.Lacks = []string{"VirtualMachine.Provisioning.GetVmFiles"}
			c.Locks = lab.LockAll
		}, 4, "VirtualMachine.Provisioning.GetVmFiles"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := writingLab()
			tc.change(&cfg)
			r := newRig(t, cfg).withFingerprint()
			r.runOnSource("nbd", r.url(), "web01").wantExit(tc.code).wantOutput(tc.output)
			r.checkRestored(inventory.PoweredOn)
			r.checkNoLeftovers()
		})
	}
}

// decamp nbd serves over TLS with the certificates of docs/nbd.md. With --tls-client-ca it refuses clients without a
// certificate.
func TestNBDOverTLS(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/nbd.md")
	must(t, err)
	_, commands, _ := strings.Cut(string(page), "### Certificates")
	_, commands, _ = strings.Cut(commands, "```sh\n")
	commands, _, _ = strings.Cut(commands, "```")
	r := newRig(t, smallLab()).withFingerprint()
	runTool(t, "sh", "-ec", "cd "+r.dir+"\n"+strings.ReplaceAll(commands, "mover.example.com", "localhost"))
	strange := filepath.Join(t.TempDir(), "strange") // folder of a client without a certificate
	must(t, os.Mkdir(strange, 0o700))
	authority, err := os.ReadFile(filepath.Join(r.dir, "ca-cert.pem"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(strange, "ca-cert.pem"), authority, 0o600))
	args := []string{"--listen", "127.0.0.1:0", "--tls-cert", r.dir + "/server-cert.pem", "--tls-key", r.dir + "/server-key.pem"}
	uri := func(s *nbdServer, folder string) string {
		return strings.Replace(s.URI, "127.0.0.1", "localhost", 1) + "?tls-certificates=" + folder
	}
	open := r.serveNBD(args...)
	if !strings.HasPrefix(open.URI, "nbds://127.0.0.1:") || open.Socket != "" {
		t.Errorf("%s, socket %q", open.URI, open.Socket)
	}
	runTool(t, "nbdinfo", uri(open, strange))
	open.stop()
	s := r.serveNBD(append(args, "--tls-client-ca", r.dir+"/ca-cert.pem")...)
	r.copyNBD(uri(s, r.dir), 0)
	for _, refused := range []string{uri(s, strange), strings.Replace(s.URI, "nbds", "nbd", 1)} {
		if out, err := exec.CommandContext(t.Context(), "nbdinfo", refused).CombinedOutput(); err == nil {
			t.Errorf("the server accepts %s: %s", refused, out)
		}
	}
	s.stop()
}

// A copy with nbdcopy is correct although the host restarts its agents twice, which ends all sessions.
func TestNBDSurvivesARestartOfTheHost(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"https", "nfc"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, lab.Config{
				Limits: lab.Limits{DatastoreRate: slowRate}, NFC: lab.NFC{HostRate: slowRate},
				VMs: []lab.VM{{Name: "web01", ChangeTracking: true, Disks: []lab.Disk{{Capacity: 64 << 20, Fill: 100, Seed: 3}}}},
			}).withFingerprint()
			s := r.serveNBD("--transport", transport)
			file, copied := r.startNBDCopy(s.URI)
			for _, share := range []int64{8 << 20, 24 << 20} {
				for stats := r.lab.Stats(); stats.BodyBytes+stats.NFC.ReadBytes < share; stats = r.lab.Stats() {
					select {
					case <-time.After(10 * time.Millisecond):
					case err := <-copied:
						t.Fatalf("nbdcopy ended before the restart: %v", err)
					}
				}
				must(t, r.lab.Restart())
			}
			r.lab.SetLimits(lab.Limits{})
			must(t, r.lab.SetNFC(lab.NFC{}))
			must(t, <-copied)
			want, err := r.lab.Disk("web01", 0)
			must(t, err)
			program.SameDisk(t, file, want)
			s.stop()
		})
	}
}

// If a read fails, the client gets an error and the log contains the reason: the VM was started, or the host did not
// answer within the time limit.
func TestNBDReportsFailedReads(t *testing.T) {
	t.Parallel()
	for output, tc := range map[string]struct {
		limit       string // time limit of a read
		breakSource func(*rig)
	}{
		"it is locked; remedy: power the VM off": {"10m", func(r *rig) { must(r.t, r.openSession().PowerOn(r.t.Context(), r.sourceVM("web01").Ref)) }},
		"the host did not answer in time":        {"2s", func(r *rig) { must(r.t, r.lab.Stop()) }},
	} {
		t.Run(output, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, smallLab()).withFingerprint()
			s := r.serveNBD("--transport", "https", "--read-timeout", tc.limit)
			tc.breakSource(r)
			out, err := exec.CommandContext(t.Context(), "nbdcopy", s.URI, "null:").CombinedOutput()
			if err == nil {
				t.Errorf("nbdcopy succeeds: %s", out)
			}
			_ = r.lab.Resume() // fails if the lab was not stopped
			s.stop()
			if !strings.Contains(s.stderr.String(), "read failed") || !strings.Contains(s.stderr.String(), output) {
				t.Errorf("the log does not contain %q: %s", output, s.stderr.String())
			}
		})
	}
}

// A snapshot that the host does not remove stays recorded, and the error contains the command that removes it.
func TestNBDReportsRemainingSnapshot(t *testing.T) {
	t.Parallel()
	r := newRig(t, writingLab()).withFingerprint()
	_, err := r.lab.Faults().Add(lab.Fault{Kind: lab.FaultSnapshotRemove, Count: 1})
	must(t, err)
	got := r.run(slices.Concat([]string{"nbd", r.url(), "web01"}, r.extra, []string{"--", "exit 5"})...).wantExit(5).wantOutput("still has snapshot \"decamp nbd web01 ", "decamp clean")
	if !strings.Contains(got.stderr, "the command ended with exit code 5") {
		t.Errorf("the exit code is not explained: %s", got.stderr)
	}
	r.run("runs").wantExit(0).wantOutput("snapshot \"decamp nbd web01 ")
	r.runOnSource("clean", r.url()).wantExit(0).wantOutput("Reverted on host")
	r.checkRestored(inventory.PoweredOn)
}

// A VM boots from its disk on the host. The writes of QEMU go to a temporary file.
func TestBootsOverNBD(t *testing.T) {
	t.Parallel()
	program.Requires(t, "qemu-system-x86_64")
	r := newRig(t, lab.Config{VMs: []lab.VM{{Name: "web01", Disks: []lab.Disk{{File: tinyguest.BootSector(t, 0)}}}}}).withFingerprint()
	s := r.serveNBD()
	qemu := exec.CommandContext(t.Context(), "qemu-system-x86_64", "-machine", "pc,accel=tcg", "-m", "64", "-nodefaults", "-display", "none", "-serial", "stdio",
		"-snapshot", "-device", "pvscsi", "-device", "scsi-hd,drive=disk", "-drive", "if=none,id=disk,format=raw,file="+s.URI)
	qemu.Stderr = os.Stderr
	serial, err := qemu.StdoutPipe()
	must(t, err)
	must(t, qemu.Start())
	lines := bufio.NewScanner(serial)
	for lines.Scan() && !strings.Contains(lines.Text(), bootMarker+" n=1") { // the guest has written to its disk
	}
	must(t, qemu.Process.Kill())
	if _ = qemu.Wait(); !strings.Contains(lines.Text(), bootMarker) {
		t.Errorf("the guest does not boot: %s, %v", lines.Text(), lines.Err())
	}
	s.stop()
}
