// Package guest builds the test guests: small bootable Linux disks with Debian's cloud kernel, one Go program as init,
// GRUB and an ext4 root. The build takes seconds. It requires no root privileges, loop devices or mounts.
//
// A guest counts its boots on its disk and prints a marker line on the serial port. The line reports the disk driver, the
// MAC addresses and the SMBIOS UUID. Package init defines its format, and package boot parses it.
//
// Images are kept in build/guest and rebuilt when this package or the kernel changes.
package guest

import (
	"fmt"
	"path/filepath"
)

// Name is the name of a guest.
type Name string

const (
	// BIOS boots through GRUB from an MBR disk; it has virtio drivers too.
	BIOS Name = "bios"
	// NoVirtio is a guest as installed on VMware: root=/dev/sda1 and no virtio in its initramfs, so that
	// it boots only on VMware's hardware. The modules of its kernel are in its root file system, as those
	// of a distribution.
	NoVirtio Name = "novirtio"
	// UEFI boots from the EFI system partition of a GPT disk; it has virtio drivers too.
	UEFI Name = "uefi"
	// Vendor boots only by a boot entry for EFI/debian/grubx64.efi, which new firmware does not have. Its
	// initramfs has no virtio drivers.
	Vendor Name = "vendor"
	// Entry boots as Vendor does, and has virtio drivers.
	Entry Name = "entry"
	// Agent is BIOS with QEMU's guest agent and AgentAddress. In a VM with a channel for the agent it does
	// not power off. It is built only if scripts/setup.sh has fetched the agent.
	Agent Name = "agent"
)

// Names lists all guests.
func Names() []Name { return []Name{BIOS, NoVirtio, UEFI, Vendor, Entry, Agent} }

const (
	mib = 1 << 20

	// Size is the size of every image in bytes.
	Size = 64 * mib

	// RootUUID is the UUID of every image's root file system, DiskID that of its GPT.
	RootUUID = "8d1a40a3-9a52-4b93-a2cc-5a4dd15c4d2b"
	DiskID   = "0b6a2d36-61a9-4b86-8f04-3e1b7c0d5e11"

	// OSID and OSName are the values in the os-release of each image.
	OSID   = "decamp-tiny"
	OSName = "decamp tiny guest 1"

	// AgentAddress is the address of AgentCard in the guest with the agent.
	AgentAddress = "192.0.2.10"
	AgentCard    = "eth0"
)

// A variant is the difference of a guest from the others.
type variant struct {
	name    Name     // name of the guest
	gpt     bool     // whether the disk has a GPT with an ESP instead of an MBR
	root    string   // value of the kernel's root=
	modules []string // modules in the initramfs, without their dependencies
	kept    bool     // whether the root file system contains the kernel's modules
	folder  string   // folder of the ESP with the boot loader; default BOOT
	agent   bool     // whether it has QEMU's guest agent and a separate address
}

// vmwareModules are the drivers for VMware's virtual hardware. The largest is last: init does not load
// it if another one has found the root device.
func vmwareModules() []string { return []string{"vmw_pvscsi", "sd_mod", "vmxnet3", "ata_piix"} }

// virtioModules are the drivers for QEMU's paravirtual hardware.
func virtioModules() []string {
	return []string{"virtio_pci", "virtio_blk", "virtio_scsi", "virtio_net"}
}

// allVariants returns the variants of all guests.
func allVariants() []variant {
	both := append(virtioModules(), vmwareModules()...) // these guests boot on either hardware
	return []variant{
		{name: BIOS, root: "UUID=" + RootUUID, modules: both},
		{name: NoVirtio, root: "/dev/sda1", modules: vmwareModules(), kept: true},
		{name: UEFI, root: "UUID=" + RootUUID, modules: both, gpt: true},
		{name: Vendor, root: "UUID=" + RootUUID, modules: vmwareModules(), gpt: true, kept: true, folder: "debian"},
		{name: Entry, root: "UUID=" + RootUUID, modules: both, gpt: true, folder: "debian"},
		{name: Agent, root: "UUID=" + RootUUID, modules: append(both, "virtio_console"), kept: true, agent: true},
	}
}

// File returns the path of a guest's image in the repository at repo.
func File(repo string, name Name) string {
	return filepath.Join(repo, "build", "guest", fmt.Sprintf("tiny-%s.raw", name))
}
