package convert

import (
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/guest"
)

// ext4 on a logical volume is written in this process, extent by extent where LVM has it.
func TestExtOnLVM(t *testing.T) {
	const spec = "/dev/mapper/vg--0-root"
	image := diskOf(t, lvmOf(t, extOf(t, linux(spec))))
	disks := layered(t, image)
	if v := disks[0].Report.Verdict; !strings.Contains(v, "linux-append") {
		t.Errorf("the verdict before is %q", v)
	}
	result, err := convert.LinuxAppend(t.Context(), disks, convert.Options{})
	if err != nil {
		t.Fatal(err)
	}
	put(t, disks, image)
	part := outOfLVM(t, cut(t, image), 40<<20)
	run(t, "e2fsck", "-fn", part)
	if got := changed(result); !slices.Contains(got, initrd) || slices.Contains(got, "etc/fstab") {
		t.Errorf("changed %q", got)
	}
	if got := held(t, guest.Ext4, part, initrd); !strings.Contains(got, "decamp-appended") {
		t.Errorf("the initramfs has %d bytes and no second archive", len(got))
	}
	if got := held(t, guest.Ext4, part, "etc/fstab"); !strings.HasPrefix(got, spec) {
		t.Errorf("fstab is %q: the mapper's name stays", got)
	}
}
