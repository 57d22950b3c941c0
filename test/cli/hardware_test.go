package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/dir"
	"github.com/decamp/decamp/test/guest"
)

// newVMwareOnlyRig returns a host with a guest that has only drivers for VMware hardware.
func newVMwareOnlyRig(t *testing.T) *rig {
	return newRig(t, lab.Config{VMs: []lab.VM{{Name: "web01", MemoryMB: 256, NICs: []lab.NIC{{Model: "vmxnet3", MAC: "00:50:56:ab:cd:01", AddressType: "manual"}},
		Disks: []lab.Disk{{File: guest.Image(t, guest.NoVirtio), Controller: "pvscsi"}}}}}).withFingerprint()
}

// A guest that has only drivers for VMware hardware is converted to virtio and published. Package test/convert boots such
// a guest.
func TestGuestIsConvertedAndPublished(t *testing.T) {
	t.Parallel()
	r := newVMwareOnlyRig(t)
	r.migrate("web01", "--format", "qcow2", "--hardware", "virtio").wantExit(0)
	folder := r.checkConverted("web01")
	r.run("verify", folder, "--spot", "1M", "--source", r.url()).wantExit(2).wantOutput("was converted")
}

// checkConverted checks the record of a converted VM and verifies its images. It returns the folder of the VM.
func (r *rig) checkConverted(name string) string {
	r.t.Helper()
	folder := filepath.Join(r.vmsDir(), name)
	r.run("verify", folder).wantExit(0)
	record, err := dir.ReadRecord(folder)
	must(r.t, err)
	byUUID := slices.ContainsFunc(record.Converted.Changes, func(c convert.Change) bool {
		return c.Path == "boot/grub/grub.cfg" && strings.Contains(c.Reason, "UUID")
	})
	if img := record.Images[0]; record.Hardware != targets.Virtio || !byUUID || len(img.Copied) != 64 || img.Copied == img.Root {
		r.t.Errorf("recorded %q, %+v, %+v", record.Hardware, record.Converted, img)
	}
	if left, _ := filepath.Glob(filepath.Join(folder, "*.overlay")); left != nil {
		r.t.Errorf("temporary files are left: %v", left)
	}
	return folder
}

// A VM without an operating system is not published with --hardware virtio. With --hardware auto it keeps its hardware.
func TestUnconvertibleGuestIsNotPublishedWithVirtio(t *testing.T) {
	t.Parallel()
	r := newRig(t, lab.Config{VMs: []lab.VM{{Name: "data", Disks: []lab.Disk{{Capacity: 8 << 20, Fill: 50, Controller: "pvscsi"}}}}}).withFingerprint()
	r.migrate("data", "--hardware", "virtio").wantExit(7).wantOutput("cannot be converted for virtio", "--hardware compat")
	if _, err := os.Stat(filepath.Join(r.vmsDir(), "data")); err == nil {
		t.Fatal("the VM is published")
	}
	r.migrate("data", "--hardware", "auto").wantExit(0).wantOutput("not-converted")
	record, err := dir.ReadRecord(filepath.Join(r.vmsDir(), "data"))
	must(t, err)
	if record.Hardware != targets.Compat || record.Converted != nil {
		t.Errorf("recorded %q, %+v", record.Hardware, record.Converted)
	}
}
