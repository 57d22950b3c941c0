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

// bootMarker is the text that the test guests print after their boot.
const bootMarker = guest.Marker

// With --trial, a guest boots before it is published. decamp trial boots it again. Neither boot changes its images.
func TestTrialBoot(t *testing.T) {
	t.Parallel()
	r := newRig(t, lab.Config{VMs: []lab.VM{{Name: "web01", MemoryMB: 256, NICs: []lab.NIC{{Model: "vmxnet3"}},
		Disks: []lab.Disk{{File: guest.BootSector(t, 0), Controller: "pvscsi"}}}}}).withFingerprint()
	r.migrate("web01", "--format", "qcow2", "--trial", "--expect", bootMarker).wantExit(0).wantOutput("trial boot: it boots, after", bootMarker)
	folder := filepath.Join(r.vmsDir(), "web01")
	var report testboot.Report
	out := r.run("trial", folder, "--expect", bootMarker, "--keep", r.dir, "--accel", "tcg", "--json").wantExit(0).stdout
	must(t, json.Unmarshal([]byte(out), &report))
	if !report.Booted() || report.Accel != testboot.TCG {
		t.Errorf("%+v", report)
	}
	log, err := os.ReadFile(report.Serial)
	if err != nil || !strings.Contains(string(log), "n=1 ") {
		t.Errorf("an earlier boot wrote to the disk: %v", err)
	}
	r.run("verify", folder).wantExit(0)
}

// With --trial, a VM that does not boot is not published, and its images are kept. Without --trial it is published.
func TestTrialOfUnbootableVM(t *testing.T) {
	t.Parallel()
	r := newRig(t, lab.Config{VMs: []lab.VM{{Name: "data", MemoryMB: 64, Disks: []lab.Disk{{Capacity: 8 << 20, Fill: 50, Controller: "pvscsi"}}}}}).withFingerprint()
	r.migrate("data", "--trial").wantExit(7).wantOutput("does not boot (no-boot-device): No bootable device", "screen.png", "Nothing is published", "without --trial")
	if _, err := os.Stat(filepath.Join(r.vmsDir(), "data")); err == nil {
		t.Fatal("the VM is published")
	}
	r.migrate("data").wantExit(0).wantOutput("is already verified")
	r.run("trial", filepath.Join(r.vmsDir(), "data"), "--accel", "tcg").wantExit(7).wantOutput("no-boot-device", "check that the boot disk")
}
