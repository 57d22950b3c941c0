package convert

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/test/lane"
)

// An appliance converts file systems that decamp cannot write: it appends to the initramfs, and replaces and creates
// files. The checker of the file system finds no errors.
func TestApplianceConverts(t *testing.T) {
	t.Parallel()
	const volume = "/dev/mapper/vg--0-root"
	for name, c := range map[string]struct {
		kind  guest.FileSystem
		make  func() string // creates a partition and returns its path
		take  func(part string) string
		below string
		check []string
		slow  bool
	}{
		"xfs":           {kind: guest.XFS, make: func() string { return newXFS(t, newDebian("/dev/sda1")) }, check: []string{"xfs_repair", "-n"}, slow: true},
		"btrfs":         {kind: guest.Btrfs, make: func() string { return newBtrfs(t, newDebian("/dev/sda1")) }, check: []string{"btrfs", "check"}, slow: true},
		"xfs on LVM":    {kind: guest.XFS, make: func() string { return newLVM(t, newXFS(t, newDebian(volume))) }, take: func(p string) string { return extractLVM(t, p, 320<<20) }, check: []string{"xfs_repair", "-n"}},
		"btrfs @rootfs": {kind: guest.Btrfs, make: func() string { return newBtrfs(t, newDebian("/dev/sda1").inFolder("@rootfs/")) }, below: "@rootfs/", check: []string{"btrfs", "check"}},
	} {
		if c.slow && !lane.Slow {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			image := newDisk(t, c.make())
			o := convert.Options{Appliance: newAppliance(t), Cards: []convert.Card{{MAC: "00:50:56:ab:cd:01", Name: "ens192"}}}
			disks := openDisks(t, image)
			began := time.Now()
			result, err := convert.LinuxAppend(t.Context(), disks, o)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%v, %d changes, %d ranges of the disk", time.Since(began), len(result.Changes), len(disks[0].Overlay.Changed()))
			applyChanges(t, disks, image)
			part := extractPartition(t, image)
			if c.take != nil {
				part = c.take(part)
			}
			runTool(t, c.check[0], append(c.check[1:], part)...)
			converted := changedPaths(result)
			for _, want := range []string{initrd, "etc/initramfs-tools/modules", "etc/systemd/network/10-decamp-ens192.link"} {
				if !slices.Contains(converted, want) {
					t.Errorf("changed %q, want %s among them", converted, want)
				}
			}
			if got := readGuestFile(t, c.kind, part, c.below+"etc/initramfs-tools/modules"); !strings.Contains(got, "virtio_blk\n") {
				t.Errorf("etc/initramfs-tools/modules is %q", got)
			}
			got := readGuestFile(t, c.kind, part, c.below+initrd)
			if before := newDebian("")[initrd]; !strings.HasPrefix(got, before) || !strings.Contains(got[len(before):], "decamp-appended") {
				t.Errorf("the initramfs (%d bytes) is not the old one (%d bytes) with an appended archive", len(got), len(before))
			}
			if c.kind == guest.Btrfs && !lane.Slow {
				return // the second run does not depend on the file system
			}
			again, err := convert.LinuxAppend(t.Context(), openDisks(t, image), o)
			if err != nil || len(again.Changes) != 0 || len(again.Notes) != 0 {
				t.Errorf("the second run: %v, %q, %v", again.Changes, again.Notes, err)
			}
		})
	}
}
