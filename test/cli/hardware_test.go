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

// vmwareOnly is a host with a guest that has the drivers of VMware's hardware only.
func vmwareOnly(t *testing.T) *rig {
	return newRig(t, lab.Config{VMs: []lab.VM{{Name: "web01", MemoryMB: 256, NICs: []lab.NIC{{Model: "vmxnet3", MAC: "00:50:56:ab:cd:01", AddressType: "manual"}},
		Disks: []lab.Disk{{File: guest.Image(t, guest.NoVirtio), Controller: "pvscsi"}}}}}).trusting()
}

// A guest that has drivers for VMware's hardware only is converted to virtio and published. Package test/convert boots
// what it becomes.
func TestGuestIsConvertedAndPublished(t *testing.T) {
	t.Parallel()
	r := vmwareOnly(t)
	r.migrate("web01", "--format", "qcow2", "--hardware", "virtio").ends(0)
	folder := r.converted("web01")
	r.run("verify", folder, "--spot", "1M", "--source", r.url()).ends(2).says("was converted")
}

// converted returns the folder of a converted VM. It checks the record, and decamp verify.
func (r *rig) converted(name string) string {
	r.t.Helper()
	folder := filepath.Join(r.vms(), name)
	r.run("verify", folder).ends(0)
	record, err := dir.ReadRecord(folder)
	must(r.t, err)
	byUUID := slices.ContainsFunc(record.Converted.Changes, func(c convert.Change) bool {
		return c.Path == "boot/grub/grub.cfg" && strings.Contains(c.Reason, "UUID")
	})
	if img := record.Images[0]; record.Hardware != targets.Virtio || !byUUID || len(img.Copied) != 64 || img.Copied == img.Root {
		r.t.Errorf("recorded %q, %+v, %+v", record.Hardware, record.Converted, img)
	}
	if left, _ := filepath.Glob(filepath.Join(folder, "*.overlay")); left != nil {
		r.t.Errorf("left: %v", left)
	}
	return folder
}

// What holds no Linux is not published with virtio; auto moves it with what it had.
func TestGuestThatCannotBeConverted(t *testing.T) {
	t.Parallel()
	r := newRig(t, lab.Config{VMs: []lab.VM{{Name: "data", Disks: []lab.Disk{{Capacity: 8 << 20, Fill: 50, Controller: "pvscsi"}}}}}).trusting()
	r.migrate("data", "--hardware", "virtio").ends(7).says("cannot be converted for virtio", "--hardware compat")
	if _, err := os.Stat(filepath.Join(r.vms(), "data")); err == nil {
		t.Fatal("it is published")
	}
	r.migrate("data", "--hardware", "auto").ends(0).says("not-converted")
	record, err := dir.ReadRecord(filepath.Join(r.vms(), "data"))
	must(t, err)
	if record.Hardware != targets.Compat || record.Converted != nil {
		t.Errorf("recorded %q, %+v", record.Hardware, record.Converted)
	}
}
