package migrate

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/convert/virtv2v"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/inventory"
)

// checkConvertible returns an error for a guest that was not examined completely, and for one that
// would resume from hibernation: its memory image depends on the old hardware. The conversion finds all
// other obstacles.
func checkConvertible(reports []guest.Report) error {
	if err := guest.Examined(reports); err != nil {
		return fault.New(fault.Unsupported, "%w", err).WithHint("use the compat profile, which changes nothing in the guest")
	}
	for _, g := range reports {
		for _, w := range g.Warnings {
			if w.Code == "hibernated" {
				return fault.New(fault.Conflict, "the guest hibernates: %s", w.Text).WithHint("start it at the source, shut it down, and copy it again")
			}
		}
	}
	return nil
}

// isRefusal reports whether a conversion failed because of the guest, and not because of another error
// or a full disk.
func isRefusal(err error) bool {
	return !errors.Is(err, fault.ErrNoRoom) && slices.Contains([]fault.Kind{fault.Unsupported, fault.Conflict, fault.Full, fault.NotFound, fault.Invalid, fault.Corrupt}, fault.KindOf(err))
}

// BootWarnings compares the firmware with the boot code in the images. It returns nothing if an image
// was not examined completely.
func BootWarnings(firmware inventory.Firmware, reports []guest.Report) []inventory.Warning {
	if guest.Examined(reports) != nil {
		return nil // an undetected system may still exist
	}
	var mbr, esp bool
	for _, r := range reports {
		mbr, esp = mbr || r.Boot.MBRCode, esp || r.Boot.ESP
	}
	switch {
	case firmware == inventory.EFI && !esp:
		return []inventory.Warning{{Code: "no-esp", Text: "the VM boots by EFI, but no disk has an EFI system partition",
			Remedy: "check that it boots at the source; it may boot from the network"}}
	case firmware == inventory.BIOS && !mbr:
		return []inventory.Warning{{Code: "no-boot-code", Text: "the VM boots by BIOS, but no disk has boot code",
			Remedy: "check that it boots at the source; it may boot from the network"}}
	}
	return nil
}

// seatsOf returns the network cards with the addresses that the guest knows from the source.
func seatsOf(vm *inventory.VM) (seats []convert.SourceNIC) {
	for _, n := range vm.NICs {
		seats = append(seats, convert.SourceNIC{MAC: n.MAC, PCI: n.PCIAddress(), Driver: n.Model})
	}
	return seats
}

// TakenByV2V returns an error for a guest that virt-v2v would refuse after minutes, with another text:
// encrypted volumes without a key, dynamic disks and dirty file systems.
func TakenByV2V(reports []guest.Report, keys []virtv2v.Key) error {
	for _, l := range lockedIn(reports) {
		if !l.Opened(keys) {
			return noKey(l)
		}
	}
	for _, g := range reports {
		if g.Windows != nil && g.Windows.Dynamic {
			return fault.New(fault.Unsupported, "Windows is on a dynamic disk, which virt-v2v does not support").WithHint("use the compat profile, which changes nothing in the guest")
		}
		for _, w := range g.Warnings {
			if w.Code == "ntfs-dirty" {
				return fault.New(fault.Conflict, "virt-v2v does not support the guest in this state: %s", w.Text).
					WithHint("in the guest, at the source: chkdsk /f, and restart; then shut it down and copy it again")
			}
		}
	}
	return nil
}

// WindowsOf returns the Windows that needs drivers; nil if there is no Windows. The version of a
// Windows encrypted by BitLocker is unknown.
func WindowsOf(reports []guest.Report) *virtv2v.Windows {
	for _, g := range reports {
		if w := g.Windows; w != nil {
			return &virtv2v.Windows{Build: w.Build, Arch: w.Arch, Server: strings.Contains(w.Product, "Server")}
		}
	}
	if slices.ContainsFunc(lockedIn(reports), func(l virtv2v.Locked) bool { return l.Kind == string(guest.BitLocker) }) {
		return &virtv2v.Windows{}
	}
	return nil
}

// lockedIn returns the encrypted volumes of a guest, with the names that virt-v2v gives them.
func lockedIn(reports []guest.Report) (all []virtv2v.Locked) {
	for i, g := range reports {
		if isEncrypted(g.WholeDisk) {
			all = append(all, virtv2v.Locked{UUID: g.WholeUUID, Device: virtv2v.Device(i, 0), Kind: string(g.WholeDisk)})
		}
		for _, p := range g.Partitions {
			if isEncrypted(p.FileSystem) {
				all = append(all, virtv2v.Locked{UUID: p.FSUUID, Device: virtv2v.Device(i, p.Number), Kind: string(p.FileSystem)})
			}
		}
		for _, v := range g.Volumes {
			if isEncrypted(v.FileSystem) {
				all = append(all, virtv2v.Locked{UUID: v.FSUUID, Device: fmt.Sprintf("/dev/%s/%s", v.Group, v.Name), Kind: string(v.FileSystem)})
			}
		}
	}
	return all
}

// isEncrypted reports whether a file system is an encrypted container.
func isEncrypted(fs guest.FileSystem) bool { return fs == guest.LUKS || fs == guest.BitLocker }

// noKey returns the error for an encrypted volume without a key. virt-v2v requires one for each such
// volume, even if the system is on none of them.
func noKey(l virtv2v.Locked) error {
	what, undone := "LUKS, and its passphrase is required", ""
	if l.Kind == string(guest.BitLocker) {
		what, undone = "BitLocker, and its recovery key is required", "; or decrypt it at the source with manage-bde -off C:, and copy it again"
	}
	return fault.New(fault.Conflict, "virt-v2v cannot read the guest: %s is encrypted by %s", l.Device, what).
		WithHint("write it to a file that only you can read, and set the file: --key-file PATH, or only for this volume --key-file %s=PATH%s", l.ID(), undone)
}

// dependsOnShutdown reports whether a refusal may not apply after the guest was shut down. The file
// systems of a running guest are not unmounted, so they may be unreadable, and only an appliance can
// write them.
func dependsOnShutdown(err error, reports []guest.Report) bool {
	unread := func(w guest.Warning) bool { return w.Code == "file-system" }
	return fault.Is(err, fault.Conflict) || fault.Is(err, fault.Corrupt) ||
		slices.ContainsFunc(reports, func(g guest.Report) bool { return slices.ContainsFunc(g.Warnings, unread) })
}
