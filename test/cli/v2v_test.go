//go:build v2v

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/target"
	"github.com/decamp/decamp/internal/target/dir"
)

// The real virt-v2v converts a real Debian that scripts/v2v-guest.sh has built, with root=/dev/sda1 and an
// initramfs without virtio: names become UUIDs before, so that it boots from virtio-scsi after, which is
// tried before it is published.
func TestRealVirtV2V(t *testing.T) {
	image, err := filepath.Abs("../../build/v2v/debian.raw")
	must(t, err)
	r := newRig(t, lab.Config{VMs: []lab.VM{{Name: "deb12", MemoryMB: 768, NICs: []lab.NIC{{Model: "vmxnet3", MAC: "00:50:56:ab:cd:01", AddressType: "manual"}},
		Disks: []lab.Disk{{File: image, Controller: "pvscsi"}}}}}).trusting()
	r.migrate("deb12", "--hardware", "virtio", "--engine", "virt-v2v", "--trial", "--expect", "V2V-MARKER root=/dev/sda1 drv=sd").
		ends(0).says("virt-v2v: Inspecting the source", "converted by virt-v2v", "virtio-scsi", "trial boot: it boots, after")
	folder := filepath.Join(r.vms(), "deb12")
	record, err := dir.ReadRecord(folder)
	must(t, err)
	if record.Hardware != target.Virtio || !strings.HasPrefix(record.Converted.Engine, "virt-v2v 2.") || record.Images[0].Copied == record.Images[0].Root {
		t.Errorf("recorded %q, %+v", record.Hardware, record.Converted)
	}
	r.run("verify", folder).ends(0)
	logs, err := filepath.Glob(filepath.Join(r.state(), "runs", "deb12-*", "virt-v2v.log"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("logs %v, %v", logs, err)
	}
	if text, err := os.ReadFile(logs[0]); err != nil || !strings.Contains(string(text), "Finishing off") {
		t.Errorf("its log: %v", err)
	}
	for _, pattern := range []string{"*.overlay", "*.v2v"} {
		if left, _ := filepath.Glob(filepath.Join(folder, pattern)); left != nil {
			t.Errorf("left: %v", left)
		}
	}
}

// What the real one says of disks without a system is brought forward, with its log.
func TestRealVirtV2VFindsNoSystem(t *testing.T) {
	r := newRig(t, lab.Config{VMs: []lab.VM{{Name: "data", Disks: []lab.Disk{{Capacity: 8 << 20, Fill: 50, Controller: "pvscsi"}}}}}).trusting()
	r.migrate("data", "--hardware", "virtio", "--engine", "virt-v2v").ends(7).says("virt-v2v: ", "virt-v2v.log", "--hardware compat")
	if _, err := os.Stat(filepath.Join(r.vms(), "data")); err == nil {
		t.Fatal("it is published")
	}
}
