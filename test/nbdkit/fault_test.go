package nbdkit

import (
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/lab/nfchost"
)

// A copy without the retry filter succeeds despite failures of sessions or the host. The host stalls at a position of
// the disk, so that the copy is incomplete when the failure occurs.
func TestCopySurvivesHostFailures(t *testing.T) {
	t.Parallel()
	for name, trouble := range map[string]func(*rig){
		"dropped sessions": func(r *rig) { r.lab.DropNFC() },
		"an expired login": func(r *rig) { r.lab.KillSessions(); r.lab.DropNFC() },
		"a restart": func(r *rig) {
			if err := r.lab.Restart(); err != nil {
				r.t.Error(err)
			}
		},
		"vMotion": func(r *rig) {
			hosts, err := r.newSession().Hosts(r.t.Context())
			if err != nil {
				r.t.Fatal(err)
			}
			i := slices.IndexFunc(hosts, func(h inventory.Host) bool { return h.Ref != r.vm.Host })
			if err := r.lab.MoveVM("web01", hosts[i].Name); err != nil {
				r.t.Error(err)
			}
			r.lab.DropNFC()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := newConfig(64)
			cfg.VMs[0].Disks[0].Fill, cfg.VCenter = 100, name == "vMotion"
			r := newRig(t, cfg)
			if _, err := r.lab.Faults().Add(lab.Fault{Kind: lab.FaultNFCStall, At: 40 << 20, Count: 1}); err != nil {
				t.Fatal(err)
			}
			args := r.virtV2V(r.parameters())
			i := slices.Index(args, "retry")
			r.startServer(slices.Delete(args, i-1, i+1)...)
			copying := exec.Command("nbdcopy", r.uri(), r.filePath("copy"))
			if err := copying.Start(); err != nil {
				t.Fatal(err)
			}
			waitUntil(t, "the stall", func() bool { return len(r.lab.Faults().List()) == 0 })
			trouble(r)
			r.lab.Faults().Clear()
			if err := copying.Wait(); err != nil {
				t.Fatal(err)
			}
			r.requireSameContent(r.diskContent())
		})
	}
}

// A disk of a host with little memory is copied. If sessions reserve memory, the copy uses fewer of them.
func TestHostShortOfMemory(t *testing.T) {
	t.Parallel()
	const enough = 4 // concurrent sessions of a copy if memory is not limited
	for _, policy := range []nfchost.Policy{nfchost.RefuseSession, nfchost.RefuseRead, nfchost.Queue} {
		cfg := newConfig(16)
		cfg.NFC = lab.NFC{Memory: 5 << 20, Exhausted: policy}
		r := newRig(t, cfg)
		s := r.startServer(r.virtV2V(r.parameters())...)
		r.copyAndCompare(r.diskContent())
		if got := r.lab.Stats().NFC.SessionsPeak; policy != nfchost.RefuseRead && got >= enough {
			t.Errorf("policy %q: %d concurrent sessions, want less than %d", policy, got, enough)
		}
		s.stopCleanly(syscall.SIGTERM)
	}
}

// A read that the host always refuses fails, and nbdkit prints the error. Later reads succeed.
func TestFailedReadIsReported(t *testing.T) {
	t.Parallel()
	r := newRig(t, newConfig(16))
	s := r.startServer("-f", "-P", r.filePath("pid"), "-U", r.filePath("socket"), plugin, r.parameters()[0], "vm=moref="+string(r.vm.Ref),
		"file="+r.vm.Disks[0].Path.String(), "user="+r.lab.User(), "password=+"+r.filePath("password"), "thumbprint="+r.thumbprint(),
		r.parameters()[5], "connections=1")
	r.runTool("nbdinfo", "--size", r.uri())
	if _, err := r.lab.Faults().Add(lab.Fault{Kind: lab.FaultNFCRefuse, Method: nfchost.OpSession}); err != nil {
		t.Fatal(err)
	}
	r.lab.DropNFC()
	read := exec.Command("qemu-io", "-r", "-f", "raw", "-c", "read 0 512", r.uri())
	if out, err := read.CombinedOutput(); err == nil {
		t.Errorf("the read succeeded: %s", out)
	}
	waitUntil(t, "the error of the host in the output of nbdkit", func() bool {
		return strings.Contains(s.output(), "nbdkit: nfc") && strings.Contains(s.output(), "530")
	})
	r.lab.Faults().Clear()
	r.copyAndCompare(r.diskContent())
}

// Signals end the server, even while the host does not answer. No NFC session is left, even after SIGKILL.
func TestServerEnds(t *testing.T) {
	t.Parallel()
	cfg := newConfig(16)
	cfg.VMs[0].Disks[0].Fill = 100
	r := newRig(t, cfg)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGKILL} {
		s := r.startServer(r.virtV2V(r.parameters())...)
		if _, err := r.lab.Faults().Add(lab.Fault{Kind: lab.FaultNFCStall, Count: 1}); err != nil {
			t.Fatal(err)
		}
		read := exec.Command("qemu-io", "-r", "-f", "raw", "-c", "read 0 1M", r.uri())
		if err := read.Start(); err != nil {
			t.Fatal(err)
		}
		waitUntil(t, "a read that the host does not answer", func() bool { return len(r.lab.Faults().List()) == 0 })
		if err := s.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		s.wait()
		if took := time.Since(began); took > time.Minute {
			t.Errorf("signal %v: the server ended after %v, want at most a minute", sig, took)
		}
		_ = read.Wait() // the read fails
		waitUntil(t, "the end of all NFC sessions", func() bool { return r.lab.Stats().NFC.SessionsOpen == 0 })
		for _, name := range []string{"pid", "socket"} {
			r.runTool("rm", "-f", r.filePath(name))
		}
		r.lab.Faults().Clear()
	}
}

// The server ends with its parent process or by the exitwhen filter, and leaves no session.
func TestServerEndsWithItsParent(t *testing.T) {
	t.Parallel()
	r := newRig(t, newConfig(16))
	args := append([]string{"-c", `"$@" & read line`, "sh", "nbdkit"}, r.virtV2V(r.parameters())...)
	parent := exec.Command("sh", args...)
	stdin, err := parent.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "a login", func() bool { return r.lab.Stats().NFC.SessionsOpen > 0 })
	stdin.Close()
	_ = parent.Wait() // read fails
	r.waitForLogout()

	r.runTool("rm", "-f", r.filePath("pid"), r.filePath("socket"))
	args = append([]string{"--filter", "exitwhen"}, append(r.virtV2V(r.parameters()), "exit-when-file-created="+r.filePath("end"), "exit-when-poll=1")...)
	s := r.startServer(args...)
	r.copyAndCompare(r.diskContent())
	r.writeFile("end", "")
	s.wait()
	r.waitForLogout()
}
