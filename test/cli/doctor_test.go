package cli

import (
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/test/guest"
)

// Each failure that decamp doctor reports also fails the migration. With the remedy neither fails.
func TestDoctorForetellsWhatFails(t *testing.T) {
	t.Parallel()
	const privilege = "VirtualMachine.State.CreateSnapshot"
	cfg := lab.Config{Lacks: []string{privilege}, VMs: []lab.VM{{
		Name: "db01", PoweredOn: true, Disks: []lab.Disk{{Capacity: 16 << 20, Fill: 30, Seed: 1}},
	}}}
	r := newRig(t, cfg).trusting()
	said := r.source("doctor", r.url(), "db01", "--to", "dir:"+r.vms(), "--warm").ends(6)
	if first := "failure: host-privilege: VM db01: user root has no privilege " + privilege + "\n"; !strings.HasPrefix(said.stdout, first) {
		t.Errorf("the first line is not %q:\n%s", first, said.stdout)
	}
	said.says("govc role.update -a decamp "+privilege, "govc permissions.set -principal root", "Remedy: apply their remedies")
	r.migrate("db01", "--warm").ends(4).says("failure: host-privilege: VM db01: user root has no privilege "+privilege, "NoPermission")

	cfg.Lacks = nil
	cured := newRig(t, cfg).trusting()
	cured.source("doctor", cured.url(), "db01", "--to", "dir:"+cured.vms(), "--warm").ends(0)
	var report struct {
		Worst    string
		Findings []struct{ Code, Status, Remedy string }
	}
	cured.source("doctor", cured.url(), "--warm", "--json").ends(0).last(&report)
	for _, f := range report.Findings {
		if f.Code == "" || f.Status == "failure" || f.Status != "ok" && f.Remedy == "" {
			t.Errorf("%+v", f)
		}
	}
	if len(report.Findings) < 20 {
		t.Errorf("only %d findings", len(report.Findings))
	}
}

// decamp doctor reports what a conversion would do to a guest before its disks are copied.
func TestDoctorLooksIntoGuests(t *testing.T) {
	t.Parallel()
	r := newRig(t, lab.Config{VMs: []lab.VM{{Name: "web01", MemoryMB: 256, Disks: []lab.Disk{{File: guest.Image(t, guest.NoVirtio)}}}}}).trusting()
	r.source("doctor", r.url(), "web01", "--verbose").says("ok: vm-guest: VM web01: will boot with virtio-scsi after linux-append")
	if got := r.source("doctor", r.url(), "web01", "--verbose", "--short"); strings.Contains(got.stdout, "vm-guest") {
		t.Errorf("the short form reads disks:\n%s", got.stdout)
	}
}
