package cli

import (
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/lab/loopback"
	"github.com/decamp/decamp/test/lane"
)

// sshRig is a host that disks are landed from, with SSH on a port that is known before it
// is on.
type sshRig struct {
	*rig
	args []string
}

func newSSHRig(t *testing.T, cfg lab.Config) *sshRig {
	t.Helper()
	portmap := loopback.Reserve(t)
	cfg.NFS.Portmap, cfg.SSH.Addr = portmap, loopback.Reserve(t)
	_, port, err := net.SplitHostPort(cfg.SSH.Addr)
	must(t, err)
	return &sshRig{newRig(t, cfg).trusting(), []string{
		"--transport", "landing", "--landing-listen", loopback.Reserve(t), "--landing-portmap", portmap, "--ssh-port", port,
	}}
}

func (r *sshRig) land(more ...string) result {
	r.t.Helper()
	return r.migrate("web01", append(r.args, more...)...)
}

// cleared checks that nothing of ours is left on the host or on record.
func (r *sshRig) cleared() {
	r.t.Helper()
	if left := r.lab.Mounts(); len(left) > 0 {
		r.t.Errorf("the host still has %v", left)
	}
	records, err := filepath.Glob(filepath.Join(r.state(), "leftovers", "*.json"))
	must(r.t, err)
	if len(records) > 0 {
		r.t.Errorf("on record: %v", records)
	}
}

// free is a lab with the free licence: its API changes nothing.
func free(cfg lab.Config) lab.Config {
	cfg.ReadOnlyLicence = true
	cfg.SSH.Enabled = true
	return cfg
}

// With a free licence the host mounts, copies and forgets by SSH, and its key comes by the
// API: there is nothing to set up, and nothing to confirm.
func TestFreeLicenceLandsBySSH(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"raw", "qcow2"} {
		if !lane.Slow && format == "raw" {
			continue // the other tests of this file land raw images
		}
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			r := newSSHRig(t, free(small()))
			r.land("--format", format).ends(0).says("is migrated and published", "Disks are copied by SSH")
			folder := filepath.Join(r.vms(), "web01")
			r.matchesSource(folder, format)
			r.run("verify", folder).ends(0)
			r.cleared()
		})
	}
}

func TestCopyingByAPIIsRefusedByTheLicence(t *testing.T) {
	t.Parallel()
	r := newSSHRig(t, free(small()))
	r.land("--landing-copy", "api").ends(7).says("licence")
	r.cleared()
}

func TestUnknownSSHHostKeyIsShown(t *testing.T) {
	t.Parallel()
	cfg := free(small())
	cfg.SSH.SecretKey = true
	r := newSSHRig(t, cfg)
	remedy := r.land().ends(4).says("is not known", "SHA256:").remedy()
	r.cleared()
	key := remedy[strings.Index(remedy, "SHA256:"):]
	if i := strings.IndexAny(key, " '\n"); i > 0 {
		key = key[:i]
	}
	wrong := "SHA256:" + strings.Repeat("A", 43)
	r.land("--ssh-host-key", wrong).ends(4).says("differs from the known one", key)
	r.land("--ssh-host-key", key).ends(0)
	r.matchesSource(filepath.Join(r.vms(), "web01"), "raw")
	r.cleared()
}

// SSH is started with consent only, and off again in the end.
func TestSSHIsStartedWithConsent(t *testing.T) {
	t.Parallel()
	r := newSSHRig(t, small())
	r.land("--landing-copy", "ssh").ends(4).says("it is off", "--enable-ssh", "sshServer")
	r.cleared()
	r.land("--landing-copy", "ssh", "--enable-ssh").ends(0)
	r.matchesSource(filepath.Join(r.vms(), "web01"), "raw")
	if addr := r.lab.SSHAddr(""); addr != "" {
		t.Errorf("SSH is on at %s", addr)
	}
	r.cleared()
}

// A licence that changes nothing does not start SSH either.
func TestSSHThatCannotBeStarted(t *testing.T) {
	t.Parallel()
	cfg := free(small())
	cfg.SSH.Enabled = false
	r := newSSHRig(t, cfg)
	r.land("--enable-ssh").ends(4).says("start SSH on the host", "vim-cmd hostsvc/start_ssh")
	r.cleared()
}

func TestLockdownModeIsNamed(t *testing.T) {
	t.Parallel()
	cfg := free(small())
	cfg.SSH.Lockdown = true
	r := newSSHRig(t, cfg)
	r.land().ends(4).says("lockdown")
	r.cleared()
}

// Killed during a copy, decamp leaves a copy that continues at the host. The writes in decamp's memory are lost. The
// next run ends that copy and starts another one with another name, so that a file never has two writers.
func TestKilledSSHLandingIsRunAgain(t *testing.T) {
	t.Parallel()
	cfg := free(lab.Config{VMs: []lab.VM{{Name: "web01", Disks: []lab.Disk{{Capacity: 48 << 20, Fill: 100, Seed: 3}}}}})
	cfg.Faults = []lab.Fault{{Kind: lab.FaultCloneStall, At: 32 << 20, Count: 1}}
	r := newSSHRig(t, cfg)
	u := r.begin("web01", r.args...)
	r.untilLanded(12 << 20)
	u.end(syscall.SIGKILL)
	r.lab.Faults().Release()
	if left := r.lab.Mounts(); len(left) != 1 || left[0].OpenFiles == 0 {
		t.Fatalf("the host has %v", left)
	}
	r.land().ends(0).says("is migrated and published", "a copy of [datastore1] web01/web01.vmdk that goes on")
	r.sameAsSource(filepath.Join(r.vms(), "web01", "web01-disk0.raw"), "web01", 0)
	r.cleared()
}

// Killed while SSH was on for it, decamp turns it off the next time it comes by.
func TestSSHOfAKilledRunIsStopped(t *testing.T) {
	t.Parallel()
	cfg := lab.Config{VMs: []lab.VM{{Name: "web01", Disks: []lab.Disk{{Capacity: 48 << 20, Fill: 100, Seed: 3}}}}}
	cfg.Faults = []lab.Fault{{Kind: lab.FaultCloneStall, At: 32 << 20}}
	r := newSSHRig(t, cfg)
	u := r.begin("web01", append(r.args, "--landing-copy", "ssh", "--enable-ssh")...)
	r.untilLanded(12 << 20)
	u.end(syscall.SIGKILL)
	if r.lab.SSHAddr("") == "" {
		t.Fatal("SSH is off")
	}
	r.run("runs").ends(0).says("SSH on, which was off", "a copy of")
	r.lab.Faults().Clear()
	port := r.args[len(r.args)-2:]
	r.source(append([]string{"clean", r.url()}, port...)...).ends(0).says("SSH on, which was off", "datastore decamp-")
	if addr := r.lab.SSHAddr(""); addr != "" {
		t.Errorf("SSH is on at %s", addr)
	}
	r.cleared()
}

// Raw device mappings and vSAN objects have no file to read, but a descriptor that the host
// copies by. Other transports go on refusing them.
func TestDisksWithoutAFileLandBySSH(t *testing.T) {
	t.Parallel()
	cfg := small()
	cfg.SSH.Enabled = true
	cfg.Datastores = []lab.Datastore{{Name: "datastore1"}, {Name: "vsan", Type: "vsan"}}
	cfg.VMs[0].Disks[0].RDM, cfg.VMs[0].Disks[0].Mode = "physicalMode", "independent_persistent"
	cfg.VMs[0].Disks[1].Datastore = "vsan"
	r := newSSHRig(t, cfg)
	r.migrate("web01").ends(7).says("raw device", "vSAN")
	r.land("--landing-copy", "api").ends(7).says("raw device", "vSAN")
	must(t, r.lab.SetSSH(false))
	r.land("--landing-copy", "auto").ends(4).says("SSH is required", "--enable-ssh") // the API is not tried
	r.cleared()
	must(t, r.lab.SetSSH(true))
	r.land("--spot", "1M,2").ends(0)
	r.matchesSource(filepath.Join(r.vms(), "web01"), "raw")
	r.cleared()
}
