package guest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/guest/linux"
)

// A judgement is the expected behaviour of a Linux on other hardware.
type judgement struct {
	guest     linux.Guest
	append    bool // linux-append can write where root and kernels are
	appliance bool // an appliance has to mount that for it
	encrypted bool // a volume waits for its passphrase at boot
	entry     bool // EFI starts it by a boot entry only, which stays behind
}

// sentence returns the verdict: boot, required actions, network.
func (j judgement) sentence() string {
	parts := []string{j.boots()}
	if j.encrypted || len(j.guest.Encrypted) > 0 {
		parts = append(parts, "needs its LUKS passphrase at boot")
	}
	switch {
	case j.entry && j.append:
		parts = append(parts, "EFI finds its loader after linux-append only")
	case j.entry:
		parts = append(parts, "EFI does not find its loader")
	}
	return strings.Join(append(parts, j.network()...), "; ")
}

const compat = "compat profile will boot: "

// boots judges by the newest kernel, which is the one that a boot loader starts.
func (j judgement) boots() string {
	if len(j.guest.Kernels) == 0 {
		return compat + "no kernel was found"
	}
	k := j.guest.Kernels[0]
	switch scsi, stays := k.Boots(linux.VirtioSCSI), j.guest.NamesStay(); {
	case scsi && stays:
		return "will boot with virtio-scsi as it is"
	case k.Boots(linux.VirtioBlk) && len(j.guest.DiskNames) == 0:
		return "will boot with virtio-blk as it is"
	case k.NotExamined != "":
		return compat + k.Initramfs + " is not examined: " + k.NotExamined
	case k.Unread:
		return compat + k.Initramfs + " is not understood"
	case !scsi && !k.Could(linux.VirtioSCSI):
		return compat + k.Image + " has no driver for virtio-scsi"
	case j.append && j.appliance:
		return "will boot with virtio-scsi after linux-append, by an appliance"
	case j.append:
		return "will boot with virtio-scsi after linux-append"
	case scsi:
		return compat + fmt.Sprintf("virtio needs %s to be replaced in %s, which linux-append cannot write", j.lost().Name, j.lost().File)
	}
	return compat + fmt.Sprintf("virtio needs drivers in %s, which linux-append cannot write", k.Initramfs)
}

// lost returns the first name of a disk that other hardware changes.
func (j judgement) lost() linux.Name {
	for _, n := range j.guest.DiskNames {
		if !n.Stays {
			return n
		}
	}
	return linux.Name{}
}

// network describes for each card whether its configuration still applies.
func (j judgement) network() []string {
	var kept, lost, parts []string
	for _, n := range j.guest.NICs {
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
	how := "before it moves"
	if j.append {
		how = "by linux-append"
	}
	if len(lost) > 0 {
		parts = append(parts, fmt.Sprintf("%s must be pinned to the MAC %s", strings.Join(lost, ", "), how))
	}
	for _, n := range j.guest.NICs {
		if part := fmt.Sprintf("%s must name its card otherwise than by %s, %s", n.File, n.Match, how); n.By == linux.ByHardware && !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}
	return parts
}

func nicName(n linux.NIC) string {
	if n.Name == "" {
		return n.MAC
	}
	return n.Name
}

// warnings are what the verdict hangs on, one by one.
func (j judgement) warnings() []Warning {
	var all []Warning
	for _, p := range j.guest.Problems {
		if strings.Contains(p, "not examined") {
			all = append(all, Warning{NotExamined, p})
			continue
		}
		all = append(all, Warning{"initramfs", "not understood: " + p})
	}
	for _, n := range j.guest.DiskNames {
		if !n.Stays {
			all = append(all, Warning{"disk-name", fmt.Sprintf("%s, line %d, names %s, which other hardware calls otherwise: write UUID= instead", n.File, n.Line, n.Name)})
		}
	}
	for _, n := range j.guest.NICs {
		switch n.By {
		case linux.ByName:
			all = append(all, Warning{"nic-name", fmt.Sprintf("%s configures %s by its name, which hangs on the slot of the card%s", n.File, n.Name, addresses(n))})
		case linux.ByHardware:
			all = append(all, Warning{"nic-hardware", fmt.Sprintf("%s configures a card by %s, which other hardware does not have%s", n.File, n.Match, addresses(n))})
		}
	}
	return all
}

func addresses(n linux.NIC) string {
	if what := slices.Concat(n.Addresses, n.Under); len(what) > 0 {
		return ": " + strings.Join(what, ", ") + " would be lost"
	}
	return ""
}
