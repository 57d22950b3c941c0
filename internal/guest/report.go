// Package guest reads the contents of an image: its partition table, its file systems and its operating
// system.
//
// Detect reads through a disk.Source, so that it works with a source as well as with a finished image. The
// input is untrusted: each parser is bounded in work and memory and fuzzed. Unreadable parts become a
// Warning of the Report.
//
// Terms: a Table is the partition scheme, a Partition one slice of the disk, a FileSystem the format of a
// slice by its first bytes. An OS comes only from os-release, or from the registry of a Windows. A Volume is
// a logical volume of LVM.
package guest

import (
	"github.com/decamp/decamp/internal/efi"
	"github.com/decamp/decamp/internal/guest/linux"
	"github.com/decamp/decamp/internal/guest/tree"
)

// Table is the partition scheme of a disk.
type Table string

const (
	None Table = "none" // no table: an empty disk, or a file system on the whole disk
	MBR  Table = "mbr"  // master boot record, with at most four primary partitions
	GPT  Table = "gpt"  // GUID partition table
)

// FileSystem is the content of a partition or a whole disk, by its magic number. The names are those of
// blkid.
type FileSystem string

const (
	Ext2      FileSystem = "ext2"
	Ext3      FileSystem = "ext3"
	Ext4      FileSystem = "ext4"
	XFS       FileSystem = "xfs"
	Btrfs     FileSystem = "btrfs"
	NTFS      FileSystem = "ntfs"
	FAT       FileSystem = "vfat"        // FAT12, FAT16 or FAT32
	LVM2      FileSystem = "LVM2_member" // physical volume of LVM
	LUKS      FileSystem = "crypto_LUKS" // encrypted by LUKS 1 or 2
	BitLocker FileSystem = "BitLocker"   // encrypted by BitLocker
	Swap      FileSystem = "swap"        // swap area of Linux
	Unknown   FileSystem = ""            // none of these
)

// Partition is one slice of a disk.
type Partition struct {
	Number     int        `json:"number"`               // number as in Linux: 5 is the first logical partition of an MBR
	Off        int64      `json:"off"`                  // offset on the disk in bytes
	Len        int64      `json:"len"`                  // length in bytes
	Type       string     `json:"type"`                 // MBR: two hex digits; GPT: type GUID, lower case
	UUID       string     `json:"uuid,omitempty"`       // PARTUUID of Linux
	Name       string     `json:"name,omitempty"`       // name of a GPT partition; empty in an MBR
	Active     bool       `json:"active,omitempty"`     // active in an MBR, or "legacy BIOS bootable" in a GPT
	FileSystem FileSystem `json:"fileSystem,omitempty"` // content; empty if unknown
	FSUUID     string     `json:"fsUUID,omitempty"`     // UUID as blkid prints it; empty for NTFS
	Label      string     `json:"label,omitempty"`      // label of the file system

	// Usage is the size and free space of the file system; nil if it is not readable.
	Usage *tree.Usage `json:"usage,omitempty"`
}

// IsESP reports whether the partition has the type of an EFI system partition.
func (p Partition) IsESP() bool { return p.Type == espGUID || p.Type == "ef" }

// Volume is a logical volume of LVM. It is in the report of the first disk that contains a physical
// volume.
type Volume struct {
	Group      string     `json:"group"`                // name of the volume group
	Name       string     `json:"name"`                 // name within the group
	Len        int64      `json:"len"`                  // length in bytes
	Kind       string     `json:"kind"`                 // "linear", "striped", or another type of LVM
	FileSystem FileSystem `json:"fileSystem,omitempty"` // content; empty if unknown or if the volume cannot be read
	FSUUID     string     `json:"fsUUID,omitempty"`     // UUID of the file system, as blkid prints it
	Label      string     `json:"label,omitempty"`      // label of the file system
	// size and free space of the file system; nil if it is not readable
	Usage *tree.Usage `json:"usage,omitempty"`
}

// OS is the operating system according to os-release or the registry. The zero OS means that none was
// found, not that none exists.
type OS struct {
	ID      string `json:"id,omitempty"`      // "debian"
	Name    string `json:"name,omitempty"`    // "Debian GNU/Linux 12 (bookworm)"
	Version string `json:"version,omitempty"` // "12"
}

// Boot describes how firmware can start the image.
type Boot struct {
	MBRCode bool `json:"mbrCode"` // sector 0 contains boot code, so a BIOS may boot from the disk
	ESP     bool `json:"esp"`     // the disk has an EFI system partition
	BCD     bool `json:"bcd"`     // a volume contains the configuration of Windows' boot loader

	// EFIFallback reports that the partition has \EFI\BOOT\BOOTX64.EFI (or that of ARM), which
	// firmware starts if it has no boot entry.
	EFIFallback bool `json:"efiFallback"`
}

// Warning is a property of the image that may prevent its guest from working.
type Warning struct {
	Code string `json:"code"` // stable identifier: "hibernated"
	Text string `json:"text"` // explanation, with the action to take if there is one
}

// Report is the result of Detect for one disk. The JSON names are stable.
type Report struct {
	Table      Table        `json:"table"`                // partition scheme
	Partitions []Partition  `json:"partitions,omitempty"` // partitions in the order of the table
	WholeDisk  FileSystem   `json:"wholeDisk,omitempty"`  // file system on the whole disk, if it has no partition table
	WholeUUID  string       `json:"wholeUUID,omitempty"`  // UUID of LUKS on the whole disk
	OS         OS           `json:"os"`                   // operating system on this disk
	Boot       Boot         `json:"boot"`                 // ways to start from this disk
	Loaders    []efi.Entry  `json:"loaders,omitempty"`    // boot entries for the loaders on the disk's EFI system partition
	Volumes    []Volume     `json:"volumes,omitempty"`    // logical volumes of LVM
	Linux      *linux.Guest `json:"linux,omitempty"`      // description of a Linux whose root is on this disk
	Windows    *Windows     `json:"windows,omitempty"`    // description of a Windows on this disk
	Dynamic    *Dynamic     `json:"dynamic,omitempty"`    // database of Windows' dynamic disks
	// result for the guest in one sentence; empty if this disk does not determine it
	Verdict  string    `json:"verdict,omitempty"`
	Warnings []Warning `json:"warnings,omitempty"` // problems: at most maxWarnings, and one or two about limits
}
