package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/testboot"
	"github.com/decamp/decamp/test/guest"
)

// up is what the test guests say when they are.
const up = guest.Marker

// A guest is moved, boots before it is published, and again when it is: its images are as they were.
func TestTrialBoot(t *testing.T) {
	t.Parallel()
	r := newRig(t, lab.Config{VMs: []lab.VM{{Name: "web01", MemoryMB: 256, NICs: []lab.NIC{{Model: "vmxnet3"}},
		Disks: []lab.Disk{{File: guest.BootSector(t, 0), Controller: "pvscsi"}}}}}).trusting()
	r.migrate("web01", "--format", "qcow2", "--trial", "--expect", up).ends(0).says("trial boot: it boots, after", up)
	folder := filepath.Join(r.vms(), "web01")
	var report testboot.Report
	out := r.run("trial", folder, "--expect", up, "--keep", r.dir, "--accel", "tcg", "--json").ends(0).stdout
	must(t, json.Unmarshal([]byte(out), &report))
	if !report.Booted() || report.Accel != testboot.TCG {
		t.Errorf("%+v", report)
	}
	log, err := os.ReadFile(report.Serial)
	if err != nil || !strings.Contains(string(log), "n=1 ") {
		t.Errorf("an earlier boot wrote on the disk: %v", err)
	}
	r.run("verify", folder).ends(0)
}

// A VM that does not boot is not published, and the output reports that its images are kept. Without --trial it is
// published.
func TestTrialOfWhatDoesNotBoot(t *testing.T) {
	t.Parallel()
	r := newRig(t, lab.Config{VMs: []lab.VM{{Name: "data", MemoryMB: 64, Disks: []lab.Disk{{Capacity: 8 << 20, Fill: 50, Controller: "pvscsi"}}}}}).trusting()
	r.migrate("data", "--trial").ends(7).says("does not boot (no-boot-device): No bootable device", "screen.png", "Nothing is published", "without --trial")
	if _, err := os.Stat(filepath.Join(r.vms(), "data")); err == nil {
		t.Fatal("it is published")
	}
	r.migrate("data").ends(0).says("is already verified")
	r.run("trial", filepath.Join(r.vms(), "data"), "--accel", "tcg").ends(7).says("no-boot-device", "check that the boot disk")
}
