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

// Table is the way a disk is cut into partitions.
type Table string

const (
	None Table = "none" // no table: an empty disk, or a file system on the whole of it
	MBR  Table = "mbr"
	GPT  Table = "gpt"
)

// FileSystem is what a partition or a whole disk holds, by its magic number. The names
// are those blkid uses.
type FileSystem string

const (
	Ext2      FileSystem = "ext2"
	Ext3      FileSystem = "ext3"
	Ext4      FileSystem = "ext4"
	XFS       FileSystem = "xfs"
	Btrfs     FileSystem = "btrfs"
	NTFS      FileSystem = "ntfs"
	FAT       FileSystem = "vfat"
	LVM2      FileSystem = "LVM2_member"
	LUKS      FileSystem = "crypto_LUKS"
	BitLocker FileSystem = "BitLocker"
	Swap      FileSystem = "swap"
	Unknown   FileSystem = ""
)

// Partition is one slice of a disk.
type Partition struct {
	Number     int        `json:"number"` // number as Linux counts: 5 is the first logical one of an MBR
	Off        int64      `json:"off"`
	Len        int64      `json:"len"`
	Type       string     `json:"type"` // MBR: two hex digits; GPT: type GUID, lower case
	UUID       string     `json:"uuid,omitempty"`
	Name       string     `json:"name,omitempty"` // GPT only
	Active     bool       `json:"active,omitempty"`
	FileSystem FileSystem `json:"fileSystem,omitempty"`
	FSUUID     string     `json:"fsUUID,omitempty"` // UUID as blkid prints it; empty for NTFS
	Label      string     `json:"label,omitempty"`  // label of the file system

	// Usage is how full the file system is, of those that can be read.
	Usage *tree.Usage `json:"usage,omitempty"`
}

// IsESP reports whether the table calls it an EFI system partition.
func (p Partition) IsESP() bool { return p.Type == espGUID || p.Type == "ef" }

// Volume is a logical volume. It is in the report of the first disk that has the description of its
// group.
type Volume struct {
	Group      string      `json:"group"`
	Name       string      `json:"name"`
	Len        int64       `json:"len"`
	Kind       string      `json:"kind"` // "linear", "striped", or what LVM calls it
	FileSystem FileSystem  `json:"fileSystem,omitempty"`
	FSUUID     string      `json:"fsUUID,omitempty"`
	Label      string      `json:"label,omitempty"`
	Usage      *tree.Usage `json:"usage,omitempty"`
}

// OS is the operating system in an image's os-release or registry. The zero OS means that none was
// found; one may still exist.
type OS struct {
	ID      string `json:"id,omitempty"`      // "debian"
	Name    string `json:"name,omitempty"`    // "Debian GNU/Linux 12 (bookworm)"
	Version string `json:"version,omitempty"` // "12"
}

// Boot is what an image offers to firmware.
type Boot struct {
	MBRCode bool `json:"mbrCode"` // sector 0 holds boot code: BIOS may boot from here
	ESP     bool `json:"esp"`     // there is an EFI system partition
	BCD     bool `json:"bcd"`     // a volume holds the configuration of Windows' boot loader

	// EFIFallback reports that the partition has \EFI\BOOT\BOOTX64.EFI (or that of ARM), which firmware
	// without a boot entry starts.
	EFIFallback bool `json:"efiFallback"`
}

// Warning is something found in the image that may stand in the way of its guest.
// Code is stable.
type Warning struct {
	Code string `json:"code"`
	Text string `json:"text"`
}

// Report is what Detect found in one image.
type Report struct {
	Table      Table        `json:"table"`
	Partitions []Partition  `json:"partitions,omitempty"`
	WholeDisk  FileSystem   `json:"wholeDisk,omitempty"` // file system on the whole disk, if it has no partition table
	WholeUUID  string       `json:"wholeUUID,omitempty"` // UUID of LUKS on the whole disk
	OS         OS           `json:"os"`
	Boot       Boot         `json:"boot"`
	Loaders    []efi.Entry  `json:"loaders,omitempty"` // on its system partition, as boot entries would name them
	Volumes    []Volume     `json:"volumes,omitempty"`
	Linux      *linux.Guest `json:"linux,omitempty"`
	Windows    *Windows     `json:"windows,omitempty"`
	Dynamic    *Dynamic     `json:"dynamic,omitempty"`
	Verdict    string       `json:"verdict,omitempty"` // result for the guest, in a sentence
	Warnings   []Warning    `json:"warnings,omitempty"`
}
