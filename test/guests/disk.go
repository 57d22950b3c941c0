package guests

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const espEnd = 33 * mib // end of the EFI system partition, which begins at 1 MiB

// writePartitions creates an empty disk with the partitions of the variant.
func (b builder) writePartitions() error {
	if err := errors.Join(os.WriteFile(b.imagePath(), nil, 0o644), os.Truncate(b.imagePath(), b.variant.size*mib)); err != nil {
		return err
	}
	return runTool(b.ctx, b.variant.table, "sfdisk", "-q", b.imagePath())
}

// layExt4 fills the only partition with all files.
func layExt4(b builder) error {
	if err := b.makeExt4(b.rootPath(), rootUUID, b.variant.fileSystems[0]); err != nil {
		return err
	}
	return b.installBIOS(rootUUID, "ext2")
}

// layBtrfs fills a subvolume of the only partition. It mounts the file system, because no tool fills a
// subvolume from a folder.
func layBtrfs(b builder) error {
	const fill = `mount -o loop "$1" "$2"; btrfs -q subvolume create "$2/@rootfs"; cp -a "$0/." "$2/@rootfs/"; umount "$2"`
	part := b.pathIn("part")
	if err := b.createFile(part, b.variant.fileSystems[0].Len); err != nil {
		return err
	}
	if err := runTool(b.ctx, "", "mkfs.btrfs", "-q", "-m", "single", "-U", rootUUID, part); err != nil {
		return err
	}
	if err := b.fillMounted(fill, part); err != nil {
		return err
	}
	if err := b.copyToDisk(part, mib); err != nil {
		return err
	}
	return b.installBIOS(rootUUID, "btrfs")
}

// layGPT fills an EFI system partition, and an ext4 partition with all other files.
func layGPT(b builder) error {
	if err := os.MkdirAll(filepath.Join(b.rootPath(), "boot/efi"), 0o755); err != nil {
		return err
	}
	if err := b.makeExt4(b.rootPath(), rootUUID, b.variant.fileSystems[0]); err != nil {
		return err
	}
	return b.makeESP()
}

// makeExt4 creates a file system at its place on the disk, with the files of a folder.
func (b builder) makeExt4(dir, uuid string, at FileSystem) error {
	return runTool(b.ctx, "", "mke2fs", "-q", "-F", "-t", "ext4", "-U", uuid, "-E", fmt.Sprintf("root_owner=0:0,offset=%d", at.Off),
		"-d", dir, b.imagePath(), fmt.Sprintf("%dK", at.Len/1024))
}

// fillMounted runs a script that mounts a file system, in a separate mount namespace, and copies the
// root to it. The script's arguments are the root, the file system and a mount point.
func (b builder) fillMounted(script, part string) error {
	if err := os.MkdirAll(b.pathIn("mnt"), 0o700); err != nil {
		return err
	}
	return runTool(b.ctx, "", "unshare", "--mount", "--propagation", "private", "sh", "-ec", script, b.rootPath(), part, b.pathIn("mnt"))
}

// createFile creates a sparse file of size bytes.
func (b builder) createFile(path string, size int64) error {
	return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, size))
}

// copyToDisk copies a file to the disk at an offset, which must be a multiple of 1 MiB. Holes stay
// holes.
func (b builder) copyToDisk(part string, off int64) error {
	return runTool(b.ctx, "", "dd", "if="+part, "of="+b.imagePath(), "bs=1M", fmt.Sprintf("seek=%d", off/mib), "conv=sparse,notrunc", "status=none")
}

// installBIOS writes GRUB to sectors 0 and 1, where its defaults expect it. It does not change the
// partition table in sector 0.
func (b builder) installBIOS(uuid, module string) error {
	early := "search.fs_uuid " + uuid + " root\nset prefix=($root)" + b.variant.grub + "\n"
	if err := os.WriteFile(b.pathIn("early.cfg"), []byte(early), 0o600); err != nil {
		return err
	}
	if err := runTool(b.ctx, "", "grub-mkimage", "-O", "i386-pc", "-p", b.variant.grub, "-c", b.pathIn("early.cfg"), "-o", b.pathIn("core.img"),
		"biosdisk", "part_msdos", module, "search_fs_uuid", "normal", "configfile", "linux", "search"); err != nil {
		return err
	}
	if err := runTool(b.ctx, "", "dd", "if=/usr/lib/grub/i386-pc/boot.img", "of="+b.imagePath(), "bs=440", "count=1", "conv=notrunc", "status=none"); err != nil {
		return err
	}
	return runTool(b.ctx, "", "dd", "if="+b.pathIn("core.img"), "of="+b.imagePath(), "bs=512", "seek=1", "conv=notrunc", "status=none")
}

// makeESP creates the EFI system partition as Debian does: with its signed loaders, also at the
// fallback path of firmware without boot entries.
func (b builder) makeESP() error {
	esp, cfg := b.pathIn("esp"), b.pathIn("esp.cfg")
	shim := filepath.Join(b.rootPath(), "usr/lib/shim/shimx64.efi.signed")
	grub := filepath.Join(b.rootPath(), "usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed")
	early := "search.fs_uuid " + rootUUID + " root\nset prefix=($root)" + b.variant.grub + "\nconfigfile $prefix/grub.cfg\n"
	if err := os.WriteFile(cfg, []byte(early), 0o600); err != nil {
		return err
	}
	for _, cmd := range [][]string{
		{"mkfs.fat", "--invariant", "-C", "-n", "ESP", esp, fmt.Sprint((espEnd - mib) / 1024)},
		{"mmd", "-i", esp, "::EFI", "::EFI/BOOT", "::EFI/debian"},
		{"mcopy", "-i", esp, shim, "::EFI/BOOT/BOOTX64.EFI"},
		{"mcopy", "-i", esp, grub, "::EFI/BOOT/grubx64.efi"},
		{"mcopy", "-i", esp, shim, "::EFI/debian/shimx64.efi"},
		{"mcopy", "-i", esp, grub, "::EFI/debian/grubx64.efi"},
		{"mcopy", "-i", esp, cfg, "::EFI/debian/grub.cfg"},
	} {
		if err := runTool(b.ctx, "", cmd[0], cmd[1:]...); err != nil {
			return err
		}
	}
	return b.copyToDisk(esp, mib)
}
