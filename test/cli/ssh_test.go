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

// sshRig is a host for landings. The port of its SSH server is known before SSH is enabled.
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
	return &sshRig{newRig(t, cfg).withFingerprint(), []string{
		"--transport", "landing", "--landing-listen", loopback.Reserve(t), "--landing-portmap", portmap, "--ssh-port", port,
	}}
}

func (r *sshRig) migrateByLanding(more ...string) result {
	r.t.Helper()
	return r.migrate("web01", append(r.args, more...)...)
}

// checkHostClean checks that the host has no datastore of decamp, and that no leftover is recorded.
func (r *sshRig) checkHostClean() {
	r.t.Helper()
	if left := r.lab.Mounts(); len(left) > 0 {
		r.t.Errorf("the host still has the datastores %v", left)
	}
	records, err := filepath.Glob(filepath.Join(r.stateDir(), "leftovers", "*.json"))
	must(r.t, err)
	if len(records) > 0 {
		r.t.Errorf("recorded leftovers: %v", records)
	}
}

// freeLicence adds the free licence to a lab: its API is read-only. It enables SSH.
func freeLicence(cfg lab.Config) lab.Config {
	cfg.ReadOnlyLicence = true
	cfg.SSH.Enabled = true
	return cfg
}

// With a free licence decamp mounts, copies and unmounts by SSH. It reads the host key from the API, so the user confirms
// nothing.
func TestFreeLicenceLandsBySSH(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"raw", "qcow2"} {
		if !lane.Slow && format == "raw" {
			continue // the other tests of this file land raw images
		}
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			r := newSSHRig(t, freeLicence(smallLab()))
			r.migrateByLanding("--format", format).wantExit(0).wantOutput("is migrated and published", "Disks are copied by SSH")
			folder := filepath.Join(r.vmsDir(), "web01")
			r.compareImages(folder, format)
			r.run("verify", folder).wantExit(0)
			r.checkHostClean()
		})
	}
}

func TestFreeLicenceRefusesCopyByAPI(t *testing.T) {
	t.Parallel()
	r := newSSHRig(t, freeLicence(smallLab()))
	r.migrateByLanding("--landing-copy", "api").wantExit(7).wantOutput("licence")
	r.checkHostClean()
}

func TestUnknownSSHHostKeyIsShown(t *testing.T) {
	t.Parallel()
	cfg := freeLicence(smallLab())
	cfg.SSH.SecretKey = true
	r := newSSHRig(t, cfg)
	remedy := r.migrateByLanding().wantExit(4).wantOutput("is not known", "SHA256:").remedyCommand()
	r.checkHostClean()
	key := remedy[strings.Index(remedy, "SHA256:"):]
	if i := strings.IndexAny(key, " '\n"); i > 0 {
		key = key[:i]
	}
	wrong := "SHA256:" + strings.Repeat("A", 43)
	r.migrateByLanding("--ssh-host-key", wrong).wantExit(4).wantOutput("differs from the known one", key)
	r.migrateByLanding("--ssh-host-key", key).wantExit(0)
	r.compareImages(filepath.Join(r.vmsDir(), "web01"), "raw")
	r.checkHostClean()
}

// decamp enables SSH only with --enable-ssh, and disables it at the end.
func TestSSHIsStartedWithConsent(t *testing.T) {
	t.Parallel()
	r := newSSHRig(t, smallLab())
	r.migrateByLanding("--landing-copy", "ssh").wantExit(4).wantOutput("it is off", "--enable-ssh", "sshServer")
	r.checkHostClean()
	r.migrateByLanding("--landing-copy", "ssh", "--enable-ssh").wantExit(0)
	r.compareImages(filepath.Join(r.vmsDir(), "web01"), "raw")
	if addr := r.lab.SSHAddr(""); addr != "" {
		t.Errorf("SSH is on at %s", addr)
	}
	r.checkHostClean()
}

// With a free licence, --enable-ssh fails, because the API is read-only.
func TestSSHStartIsRefused(t *testing.T) {
	t.Parallel()
	cfg := freeLicence(smallLab())
	cfg.SSH.Enabled = false
	r := newSSHRig(t, cfg)
	r.migrateByLanding("--enable-ssh").wantExit(4).wantOutput("start SSH on the host", "vim-cmd hostsvc/start_ssh")
	r.checkHostClean()
}

func TestLockdownModeIsReported(t *testing.T) {
	t.Parallel()
	cfg := freeLicence(smallLab())
	cfg.SSH.Lockdown = true
	r := newSSHRig(t, cfg)
	r.migrateByLanding().wantExit(4).wantOutput("lockdown")
	r.checkHostClean()
}

// After decamp is killed during a copy, the copy continues on the host, and the writes in the memory of decamp are lost.
// The next run ends that copy and starts another one with another name, so that a file never has two writers.
func TestKilledSSHLandingIsRunAgain(t *testing.T) {
	t.Parallel()
	cfg := freeLicence(lab.Config{VMs: []lab.VM{{Name: "web01", Disks: []lab.Disk{{Capacity: 48 << 20, Fill: 100, Seed: 3}}}}})
	cfg.Faults = []lab.Fault{{Kind: lab.FaultCloneStall, At: 32 << 20, Count: 1}}
	r := newSSHRig(t, cfg)
	u := r.startMigration("web01", r.args...)
	r.untilLanded(12 << 20)
	u.endWith(syscall.SIGKILL)
	r.lab.Faults().Release()
	if left := r.lab.Mounts(); len(left) != 1 || left[0].OpenFiles == 0 {
		t.Fatalf("the host has the datastores %v, want one", left)
	}
	r.migrateByLanding().wantExit(0).wantOutput("is migrated and published", "a copy of [datastore1] web01/web01.vmdk that goes on")
	r.compareImage(filepath.Join(r.vmsDir(), "web01", "web01-disk0.raw"), "web01", 0)
	r.checkHostClean()
}

// If decamp is killed after it enabled SSH, decamp clean disables SSH.
func TestSSHOfAKilledRunIsStopped(t *testing.T) {
	t.Parallel()
	cfg := lab.Config{VMs: []lab.VM{{Name: "web01", Disks: []lab.Disk{{Capacity: 48 << 20, Fill: 100, Seed: 3}}}}}
	cfg.Faults = []lab.Fault{{Kind: lab.FaultCloneStall, At: 32 << 20}}
	r := newSSHRig(t, cfg)
	u := r.startMigration("web01", append(r.args, "--landing-copy", "ssh", "--enable-ssh")...)
	r.untilLanded(12 << 20)
	u.endWith(syscall.SIGKILL)
	if r.lab.SSHAddr("") == "" {
		t.Fatal("SSH is off")
	}
	r.run("runs").wantExit(0).wantOutput("SSH on, which was off", "a copy of")
	r.lab.Faults().Clear()
	port := r.args[len(r.args)-2:]
	r.runOnSource(append([]string{"clean", r.url()}, port...)...).wantExit(0).wantOutput("SSH on, which was off", "datastore decamp-")
	if addr := r.lab.SSHAddr(""); addr != "" {
		t.Errorf("SSH is on at %s", addr)
	}
	r.checkHostClean()
}

// Disks without a flat file (raw device mappings, vSAN objects) are migrated by landing with SSH. The host copies them by
// their descriptors. Other transports refuse them.
func TestDisksWithoutAFileLandBySSH(t *testing.T) {
	t.Parallel()
	cfg := smallLab()
	cfg.SSH.Enabled = true
	cfg.Datastores = []lab.Datastore{{Name: "datastore1"}, {Name: "vsan", Type: "vsan"}}
	cfg.VMs[0].Disks[0].RDM, cfg.VMs[0].Disks[0].Mode = "physicalMode", "independent_persistent"
	cfg.VMs[0].Disks[1].Datastore = "vsan"
	r := newSSHRig(t, cfg)
	r.migrate("web01").wantExit(7).wantOutput("raw device", "vSAN")
	r.migrateByLanding("--landing-copy", "api").wantExit(7).wantOutput("raw device", "vSAN")
	must(t, r.lab.SetSSH(false))
	r.migrateByLanding("--landing-copy", "auto").wantExit(4).wantOutput("SSH is required", "--enable-ssh") // decamp does not try the API
	r.checkHostClean()
	must(t, r.lab.SetSSH(true))
	r.migrateByLanding("--spot", "1M,2").wantExit(0)
	r.compareImages(filepath.Join(r.vmsDir(), "web01"), "raw")
	r.checkHostClean()
}
