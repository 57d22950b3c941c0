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

// What this process cannot write an appliance does: the initramfs has its second archive, files
// are replaced and made, and the file system's own checker finds nothing to mend.
func TestApplianceConverts(t *testing.T) {
	t.Parallel()
	const volume = "/dev/mapper/vg--0-root"
	for name, c := range map[string]struct {
		kind  guest.FileSystem
		make  func() string // a partition
		take  func(part string) string
		below string
		check []string
		slow  bool
	}{
		"xfs":           {kind: guest.XFS, make: func() string { return xfsOf(t, linux("/dev/sda1")) }, check: []string{"xfs_repair", "-n"}, slow: true},
		"btrfs":         {kind: guest.Btrfs, make: func() string { return btrfsOf(t, linux("/dev/sda1")) }, check: []string{"btrfs", "check"}, slow: true},
		"xfs on LVM":    {kind: guest.XFS, make: func() string { return lvmOf(t, xfsOf(t, linux(volume))) }, take: func(p string) string { return outOfLVM(t, p, 320<<20) }, check: []string{"xfs_repair", "-n"}},
		"btrfs @rootfs": {kind: guest.Btrfs, make: func() string { return btrfsOf(t, linux("/dev/sda1").below("@rootfs/")) }, below: "@rootfs/", check: []string{"btrfs", "check"}},
	} {
		if c.slow && !lane.Slow {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			image := diskOf(t, c.make())
			o := convert.Options{Appliance: ourAppliance(t), Cards: []convert.Card{{MAC: "00:50:56:ab:cd:01", Name: "ens192"}}}
			disks := layered(t, image)
			began := time.Now()
			result, err := convert.LinuxAppend(t.Context(), disks, o)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%v, %d changes, %d ranges of the disk", time.Since(began), len(result.Changes), len(disks[0].Overlay.Changed()))
			put(t, disks, image)
			part := cut(t, image)
			if c.take != nil {
				part = c.take(part)
			}
			run(t, c.check[0], append(c.check[1:], part)...)
			converted := changed(result)
			for _, want := range []string{initrd, "etc/initramfs-tools/modules", "etc/systemd/network/10-decamp-ens192.link"} {
				if !slices.Contains(converted, want) {
					t.Errorf("changed %q, without %s", converted, want)
				}
			}
			if got := held(t, c.kind, part, c.below+"etc/initramfs-tools/modules"); !strings.Contains(got, "virtio_blk\n") {
				t.Errorf("etc/initramfs-tools/modules is %q", got)
			}
			got := held(t, c.kind, part, c.below+initrd)
			if before := linux("")[initrd]; !strings.HasPrefix(got, before) || !strings.Contains(got[len(before):], "decamp-appended") {
				t.Errorf("the initramfs has %d bytes, of which %d were there", len(got), len(before))
			}
			if c.kind == guest.Btrfs && !lane.Slow {
				return // the second run is the same for each file system
			}
			again, err := convert.LinuxAppend(t.Context(), layered(t, image), o)
			if err != nil || len(again.Changes) != 0 || len(again.Notes) != 0 {
				t.Errorf("the second run: %v, %q, %v", again.Changes, again.Notes, err)
			}
		})
	}
}
