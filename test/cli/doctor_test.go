package cli

import (
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/test/guest"
)

// A failure that decamp doctor reports also fails the migration. After the remedy, decamp doctor reports no failure.
func TestDoctorFailureAlsoFailsMigration(t *testing.T) {
	t.Parallel()
	const privilege = "VirtualMachine.State.CreateSnapshot"
	cfg := lab.Config{Lacks: []string{privilege}, VMs: []lab.VM{{
		Name: "db01", PoweredOn: true, Disks: []lab.Disk{{Capacity: 16 << 20, Fill: 30, Seed: 1}},
	}}}
	r := newRig(t, cfg).withFingerprint()
	got := r.runOnSource("doctor", r.url(), "db01", "--to", "dir:"+r.vmsDir(), "--warm").wantExit(6)
	if first := "failure: host-privilege: VM db01: user root has no privilege " + privilege + "\n"; !strings.HasPrefix(got.stdout, first) {
		t.Errorf("the first line is not %q:\n%s", first, got.stdout)
	}
	got.wantOutput("govc role.update -a decamp "+privilege, "govc permissions.set -principal root", "Remedy: apply their remedies")
	r.migrate("db01", "--warm").wantExit(4).wantOutput("failure: host-privilege: VM db01: user root has no privilege "+privilege, "NoPermission")

	cfg.Lacks = nil
	cured := newRig(t, cfg).withFingerprint()
	cured.runOnSource("doctor", cured.url(), "db01", "--to", "dir:"+cured.vmsDir(), "--warm").wantExit(0)
	var report struct {
		Worst    string
		Findings []struct{ Code, Status, Remedy string }
	}
	cured.runOnSource("doctor", cured.url(), "--warm", "--json").wantExit(0).decodeLast(&report)
	for _, f := range report.Findings {
		if f.Code == "" || f.Status == "failure" || f.Status != "ok" && f.Remedy == "" {
			t.Errorf("%+v", f)
		}
	}
	if len(report.Findings) < 20 {
		t.Errorf("only %d findings", len(report.Findings))
	}
}

// decamp doctor reports the changes that a conversion would make to a guest. It reads no disks with --short.
func TestDoctorInspectsGuests(t *testing.T) {
	t.Parallel()
	r := newRig(t, lab.Config{VMs: []lab.VM{{Name: "web01", MemoryMB: 256, Disks: []lab.Disk{{File: guest.Image(t, guest.NoVirtio)}}}}}).withFingerprint()
	r.runOnSource("doctor", r.url(), "web01", "--verbose").wantOutput("ok: vm-guest: VM web01: will boot with virtio-scsi after linux-append")
	if got := r.runOnSource("doctor", r.url(), "web01", "--verbose", "--short").wantExit(0); strings.Contains(got.stdout, "vm-guest") {
		t.Errorf("decamp doctor --short reads disks:\n%s", got.stdout)
	}
}
