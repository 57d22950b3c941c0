package guests

import (
	"fmt"
	"os"
	"path/filepath"
)

// Offsets on the disk of XFSOnLVM, in bytes. LVM gets them as parameters.
const (
	bootSize   = 256 * mib               // size of the partition of /boot
	pvAt       = mib + bootSize          // offset of the physical volume
	pvSize     = 1281 * mib              // size of the physical volume, including LVM's metadata
	extent     = 4 * mib                 // size of an LVM extent
	swapSize   = 64 * mib                // size of the swap volume
	swapInPV   = pvAt + mib              // offset of the swap volume: LVM's extents begin after 1 MiB of metadata
	rootInPV   = swapInPV + swapSize     // offset of the root volume
	rootLVSize = pvSize - mib - swapSize // size of the root volume
)

// makeGroup creates the volume group with LVM's tools, on a loop device that ends with its last user.
// It activates nothing, so that it does not need the device mapper. It fails if a volume is not at the
// offset of the constants.
const makeGroup = `
export LVM_SUPPRESS_FD_WARNINGS=1
loop=$(losetup -f --show "$0")
exec 9<>"$loop"
losetup -d "$loop"
lvm() { command lvm "$@" --driverloaded n --devices "$loop" --config 'backup{backup=0 archive=0}'; }
lvm vgcreate -q --dataalignment 1m -s 4m debian-vg "$loop"
lvm lvcreate -q -an -Zn -Wn -l "$1" -n swap_1 debian-vg
lvm lvcreate -q -an -Zn -Wn -l 100%FREE -n root debian-vg
at=$(lvm lvs --noheadings -o seg_pe_ranges debian-vg/root | tr -d ' ')
[ "$at" = "$loop:$1-$2" ] || { echo "the root is at $at"; exit 1; }
start=$(lvm pvs --noheadings --units b --nosuffix -o pe_start "$loop" | tr -d ' ')
[ "$start" = 1048576 ] || { echo "extents begin at $start"; exit 1; }
`

// layLVM fills a partition with /boot, and another one with a volume group that contains swap and root.
func layLVM(b builder) error {
	boot, pv := b.pathIn("boot"), b.pathIn("pv")
	if err := os.Rename(filepath.Join(b.rootPath(), "boot"), boot); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(b.rootPath(), "boot"), 0o755); err != nil {
		return err
	}
	if err := b.makeExt4(boot, bootUUID, b.variant.fileSystems[0]); err != nil {
		return err
	}
	if err := b.createFile(pv, pvSize); err != nil {
		return err
	}
	const first, last = swapSize / extent, (swapSize+rootLVSize)/extent - 1
	if err := runTool(b.ctx, "", "sh", "-ec", makeGroup, pv, fmt.Sprint(first), fmt.Sprint(last)); err != nil {
		return err
	}
	if err := b.copyToDisk(pv, pvAt); err != nil {
		return err
	}
	if err := b.fillVolumes(); err != nil {
		return err
	}
	return b.installBIOS(bootUUID, "ext2")
}

// fillVolumes creates swap and the XFS of the root, and copies them to their offsets in the volume
// group.
func (b builder) fillVolumes() error {
	const fill = `mount -o loop,nouuid "$1" "$2"; cp -a "$0/." "$2/"; umount "$2"`
	swap, root := b.pathIn("swap"), b.pathIn("part")
	if err := b.createFile(swap, swapSize); err != nil {
		return err
	}
	if err := b.createFile(root, rootLVSize); err != nil {
		return err
	}
	if err := runTool(b.ctx, "", "mkswap", "-U", swapUUID, swap); err != nil {
		return err
	}
	if err := runTool(b.ctx, "", "mkfs.xfs", "-q", "-m", "uuid="+rootUUID, root); err != nil {
		return err
	}
	if err := b.fillMounted(fill, root); err != nil {
		return err
	}
	if err := b.copyToDisk(swap, swapInPV); err != nil {
		return err
	}
	return b.copyToDisk(root, rootInPV)
}
