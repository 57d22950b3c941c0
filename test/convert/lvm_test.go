package convert

import (
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/guest"
)

// A conversion writes ext4 on a logical volume without an appliance, at the positions of the LVM extents.
func TestExt4OnLVM(t *testing.T) {
	const spec = "/dev/mapper/vg--0-root"
	image := newDisk(t, newLVM(t, newExt4(t, newDebian(spec))))
	disks := openDisks(t, image)
	if v := disks[0].Report.Verdict; !strings.Contains(v, "linux-append") {
		t.Errorf("the verdict before is %q", v)
	}
	result, err := convert.LinuxAppend(t.Context(), disks, convert.Options{})
	if err != nil {
		t.Fatal(err)
	}
	applyChanges(t, disks, image)
	part := extractLVM(t, extractPartition(t, image), 40<<20)
	runTool(t, "e2fsck", "-fn", part)
	if got := changedPaths(result); !slices.Contains(got, initrd) || slices.Contains(got, "etc/fstab") {
		t.Errorf("changed %q", got)
	}
	if got := readGuestFile(t, guest.Ext4, part, initrd); !strings.Contains(got, "decamp-appended") {
		t.Errorf("the initramfs has %d bytes and no second archive", len(got))
	}
	if got := readGuestFile(t, guest.Ext4, part, "etc/fstab"); !strings.HasPrefix(got, spec) {
		t.Errorf("fstab is %q, want %s unchanged", got, spec)
	}
}
