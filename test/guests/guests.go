// Package guests builds real guests: Debian as it is installed on VMware, with the properties that a
// conversion must handle. Each has root=/dev/sda1 or similar, an initramfs with VMware's drivers only,
// and a fixed address on ens192. They differ in partitions, file systems and boot loaders. A unit in
// each prints one marker line on the serial port when its network is up; package boot defines its
// format. The systems are Debian's packages (mmdebstrap), kept in build/guests as one archive for each
// set of packages. Images are kept beside them, and built again when this package changes. The build
// requires root: it keeps the owners of files, and mounts file systems that no tool fills from a
// folder. Mounts are in a separate mount namespace, and loop devices end with their last user, so a
// killed build leaves only a folder.
package guests

import (
	"fmt"
	"path/filepath"
)

// Name is the name of a guest.
type Name string

const (
	// Ext4 has ext4 on an MBR partition, initramfs-tools and ifupdown.
	Ext4 Name = "ext4"
	// XFSOnLVM has its root on XFS in a volume group, /boot on ext4, and systemd-networkd.
	XFSOnLVM Name = "xfs-lvm"
	// Btrfs has all files in a subvolume, including /boot, and NetworkManager.
	Btrfs Name = "btrfs"
	// Dracut boots with UEFI and Secure Boot from a GPT, and has an initramfs of dracut and QEMU's guest
	// agent.
	Dracut Name = "dracut"
)

// Names lists all guests.
func Names() []Name { return []Name{Ext4, XFSOnLVM, Btrfs, Dracut} }

// File returns the path of a guest's image in the repository at repo.
func File(repo string, name Name) string { return filepath.Join(imagesDir(repo), string(name)+".raw") }

// imagesDir returns the folder of images and archives.
func imagesDir(repo string) string { return filepath.Join(repo, "build", "guests") }

// Facts are the properties of a guest, for assertions of tests.
type Facts struct {
	Address string // static address of ens192, with its prefix
	SysRoot string // value of the kernel's root=
	UUID    string // UUID of the root file system
	EFI     bool   // whether the guest boots with UEFI and Secure Boot
	Agent   bool   // whether it has QEMU's guest agent

	// FileSystems are those that a conversion may write to.
	FileSystems []FileSystem
}

// A FileSystem is the position of a file system on a guest's disk.
type FileSystem struct {
	Kind     string // "ext4", "xfs" or "btrfs"
	Off, Len int64  // offset and length in bytes
}

// Card is the name of every guest's only network card, which is in slot 192 of a VMware VM.
const Card = "ens192"

const (
	mib = 1 << 20 // bytes

	rootUUID = "5d3b1c0e-7a41-4f0b-9c55-2f6f0c1d8a01" // UUID of the root file system of every guest
	bootUUID = "5d3b1c0e-7a41-4f0b-9c55-2f6f0c1d8a02" // UUID of a separate /boot
	swapUUID = "5d3b1c0e-7a41-4f0b-9c55-2f6f0c1d8a03" // UUID of the swap space
)

// patience is a mount option: on a busy machine, disks of an emulated guest may take longer than
// systemd's 90 seconds.
const patience = "x-systemd.device-timeout=10min"

// Look returns the properties of a guest.
func Look(name Name) Facts {
	v := allVariants()[name]
	return Facts{Address: v.address, SysRoot: v.root, UUID: rootUUID, EFI: v.efi, Agent: name == Dracut, FileSystems: v.fileSystems}
}

// A variant is the difference of a guest from the others.
type variant struct {
	base        base              // installation that it is built from
	address     string            // static address with its prefix
	root        string            // value of the kernel's root=
	arguments   string            // further arguments of the kernel
	fstab       string            // content of /etc/fstab
	network     map[string]string // files that configure the address, by path
	enabled     []string          // units to enable
	masked      []string          // units to mask
	modules     string            // names of modules for the initramfs
	efi         bool              // whether the guest boots with UEFI
	table       string            // input of sfdisk
	size        int64             // size of the disk in MiB
	fileSystems []FileSystem
	lay         func(builder) error // copies the root to the partitions
	grub        string              // path of GRUB's folder on its file system
}

// allVariants returns the variants by name.
func allVariants() map[Name]variant {
	return map[Name]variant{Ext4: ext4Variant(), XFSOnLVM: lvmVariant(), Btrfs: btrfsVariant(), Dracut: dracutVariant()}
}

// ext4Variant returns the variant Ext4.
func ext4Variant() variant {
	const address = "192.0.2.11/24"
	return variant{
		base: initramfsBase(), address: address, root: "/dev/sda1", network: ifupdownConfig(address), masked: []string{"NetworkManager.service"},
		fstab: "/dev/sda1 / ext4 errors=remount-ro 0 1\n", modules: "ext4",
		table: "label: dos\nstart=2048, type=83, bootable\n", size: 1024, grub: "/boot/grub",
		fileSystems: []FileSystem{{"ext4", mib, 1022 * mib}}, lay: layExt4,
	}
}

// lvmVariant returns the variant XFSOnLVM.
func lvmVariant() variant {
	const address = "192.0.2.12/24"
	return variant{
		base: initramfsBase(), address: address, root: "/dev/mapper/debian--vg-root", modules: "xfs\ndm_mod",
		fstab: "/dev/mapper/debian--vg-root / xfs defaults 0 0\n/dev/sda1 /boot ext4 defaults," + patience + " 0 2\n/dev/mapper/debian--vg-swap_1 none swap sw," + patience + " 0 0\n",
		network: map[string]string{
			"etc/network/interfaces":                      "auto lo\niface lo inet loopback\n",
			"etc/systemd/network/20-" + Card + ".network": "[Match]\nName=" + Card + "\n\n[Network]\nAddress=" + address + "\nGateway=192.0.2.1\n",
		},
		enabled: []string{"systemd-networkd.service"}, masked: []string{"NetworkManager.service", "systemd-networkd-wait-online.service"},
		table: "label: dos\nstart=2048, size=524288, type=83, bootable\nstart=526336, type=8e\n", size: 1538, grub: "/grub",
		fileSystems: []FileSystem{{"ext4", mib, bootSize}, {"xfs", rootInPV, rootLVSize}}, lay: layLVM,
	}
}

// btrfsVariant returns the variant Btrfs.
func btrfsVariant() variant {
	const address = "192.0.2.13/24"
	return variant{
		base: initramfsBase(), address: address, root: "/dev/sda1", arguments: "rootflags=subvol=@rootfs", modules: "btrfs\nxxhash_generic\nsha256_generic\nblake2b_generic",
		fstab: "/dev/sda1 / btrfs defaults,subvol=@rootfs 0 0\n",
		network: map[string]string{
			"etc/network/interfaces": "auto lo\niface lo inet loopback\n",
			"etc/NetworkManager/system-connections/Wired.nmconnection": "[connection]\nid=Wired\nuuid=" + swapUUID + "\ntype=ethernet\ninterface-name=" + Card +
				"\n\n[ipv4]\nmethod=manual\naddress1=" + address + ",192.0.2.1\n\n[ipv6]\nmethod=ignore\n",
		},
		masked: []string{"NetworkManager-wait-online.service"},
		table:  "label: dos\nstart=2048, type=83, bootable\n", size: 1282, grub: "/@rootfs/boot/grub",
		fileSystems: []FileSystem{{"btrfs", mib, 1280 * mib}}, lay: layBtrfs,
	}
}

// dracutVariant returns the variant Dracut. Dracut waits three minutes for a missing root unless
// rd.retry is shorter.
func dracutVariant() variant {
	const address = "192.0.2.14/24"
	return variant{
		base: dracutBase(), address: address, root: "/dev/sda2", arguments: "rd.retry=30", network: ifupdownConfig(address),
		fstab:   "/dev/sda2 / ext4 errors=remount-ro 0 1\n/dev/sda1 /boot/efi vfat umask=0077," + patience + " 0 1\n",
		modules: "vmw_pvscsi sd_mod ext4 vmxnet3", efi: true, grub: "/boot/grub",
		table: "label: gpt\nstart=2048, size=65536, type=uefi\nstart=67584, size=2095104, type=linux\n", size: 1058,
		fileSystems: []FileSystem{{"ext4", espEnd, 1023 * mib}}, lay: layGPT,
	}
}

// ifupdownConfig returns the configuration of ifupdown for an address.
func ifupdownConfig(address string) map[string]string {
	return map[string]string{"etc/network/interfaces": fmt.Sprintf(
		"auto lo\niface lo inet loopback\n\nauto %s\niface %s inet static\n\taddress %s\n\tgateway 192.0.2.1\n", Card, Card, address)}
}
