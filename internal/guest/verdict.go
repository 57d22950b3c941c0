package guest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/guest/linux"
)

// A verdict predicts how a Linux behaves on other hardware.
type verdict struct {
	guest          linux.Guest // description of the guest
	canAppend      bool        // linux-append can write to the root and to /boot
	needsAppliance bool        // an appliance has to mount a file system for that
	hasEncrypted   bool        // a volume requires its passphrase at boot
	needsBootEntry bool        // EFI starts the guest by a boot entry only, which is not on the disks
}

// sentence returns the verdict as one sentence: boot, required actions, network.
func (v verdict) sentence() string {
	parts := []string{v.describeBoot()}
	if v.hasEncrypted || len(v.guest.Encrypted) > 0 {
		parts = append(parts, "requests its LUKS passphrase at boot")
	}
	switch {
	case v.needsBootEntry && v.canAppend:
		parts = append(parts, "EFI firmware finds its loader only after linux-append")
	case v.needsBootEntry:
		parts = append(parts, "EFI firmware does not find its loader")
	}
	return strings.Join(append(parts, v.describeNetwork()...), "; ")
}

// compat begins the verdict on a guest that requires the compat profile.
const compat = "will boot only with the compat profile: "

// describeBoot describes the boot of the newest kernel, which is the one that boot loaders start.
func (v verdict) describeBoot() string {
	if len(v.guest.Kernels) == 0 {
		return compat + "no kernel was found"
	}
	k := v.guest.Kernels[0]
	switch scsi, stays := k.Boots(linux.VirtioSCSI), v.guest.NamesStay(); {
	case scsi && stays:
		return "will boot with virtio-scsi without changes"
	case k.Boots(linux.VirtioBlk) && len(v.guest.DiskNames) == 0:
		return "will boot with virtio-blk without changes"
	case k.NotExamined != "":
		return compat + k.Initramfs + " is not examined: " + k.NotExamined
	case k.Unread:
		return compat + k.Initramfs + " is not supported"
	case !scsi && !k.BootsIfRebuilt(linux.VirtioSCSI):
		return compat + k.Image + " has no driver for virtio-scsi"
	case v.canAppend && v.needsAppliance:
		return "will boot with virtio-scsi after linux-append in an appliance"
	case v.canAppend:
		return "will boot with virtio-scsi after linux-append"
	case scsi:
		return compat + fmt.Sprintf("virtio requires another name than %s in %s, which linux-append cannot write", v.changedName().Name, v.changedName().File)
	}
	return compat + fmt.Sprintf("virtio requires drivers in %s, which linux-append cannot write", k.Initramfs)
}

// changedName returns the first disk name that is different on other hardware; zero if none exists.
func (v verdict) changedName() linux.Name {
	for _, n := range v.guest.DiskNames {
		if !n.Stays {
			return n
		}
	}
	return linux.Name{}
}

// describeNetwork returns phrases about the configured cards: those that keep their configuration, and
// those that require a change.
func (v verdict) describeNetwork() []string {
	var kept, lost, parts []string
	for _, n := range v.guest.NICs {
		switch name := nicName(n); {
		case n.By == linux.ByMAC && !slices.Contains(kept, name):
			kept = append(kept, name)
		case n.By == linux.ByName && !slices.Contains(lost, name):
			lost = append(lost, name)
		}
	}
	if len(kept) > 0 {
		parts = append(parts, "keeps "+strings.Join(kept, ", ")+" by MAC")
	}
	how := "before the migration"
	if v.canAppend {
		how = "by linux-append"
	}
	if len(lost) > 0 {
		parts = append(parts, fmt.Sprintf("%s must be bound to the MAC %s", strings.Join(lost, ", "), how))
	}
	for _, n := range v.guest.NICs {
		if part := fmt.Sprintf("%s must select its card by another property than %s, %s", n.File, n.Match, how); n.By == linux.ByHardware && !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}
	return parts
}

// nicName returns the name of a card, or its MAC if the configuration does not name it.
func nicName(n linux.NIC) string {
	if n.Name == "" {
		return n.MAC
	}
	return n.Name
}

// listWarnings returns a Warning for each fact that the verdict depends on.
func (v verdict) listWarnings() []Warning {
	var all []Warning
	for _, p := range v.guest.Problems {
		if strings.Contains(p, "not examined") {
			all = append(all, Warning{NotExamined, p})
			continue
		}
		all = append(all, Warning{"initramfs", "not supported: " + p})
	}
	for _, n := range v.guest.DiskNames {
		if !n.Stays {
			all = append(all, Warning{"disk-name", fmt.Sprintf("%s, line %d, contains the disk name %s, which is different on other hardware: write UUID= instead", n.File, n.Line, n.Name)})
		}
	}
	for _, n := range v.guest.NICs {
		switch n.By {
		case linux.ByName:
			all = append(all, Warning{"nic-name", fmt.Sprintf("%s configures %s by its name, which depends on the slot of the card%s", n.File, n.Name, lostAddresses(n))})
		case linux.ByHardware:
			all = append(all, Warning{"nic-hardware", fmt.Sprintf("%s configures a card by %s, which other hardware does not have%s", n.File, n.Match, lostAddresses(n))})
		}
	}
	return all
}

// lostAddresses returns the end of a warning: the addresses and dependent interfaces of a card that
// would no longer work.
func lostAddresses(n linux.NIC) string {
	if what := slices.Concat(n.Addresses, n.Under); len(what) > 0 {
		return ": " + strings.Join(what, ", ") + " would be lost"
	}
	return ""
}
