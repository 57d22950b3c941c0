package guest

import "github.com/decamp/decamp/internal/guest/linux"

// VirtioBus returns the virtio bus from which a guest can boot without changes: a Linux by its newest
// kernel, a Windows by its drivers. It is empty if no such bus exists. known is false if neither the
// initramfs nor the registry is readable.
func VirtioBus(reports []Report) (bus linux.Bus, known bool) {
	for _, r := range reports {
		switch {
		// Boot loaders start the newest kernel, which is first.
		case r.Linux != nil && len(r.Linux.Kernels) > 0 && !r.Linux.Kernels[0].Unread:
			return linuxBus(r.Linux), true
		case r.Windows != nil && !r.Windows.driversUnknown:
			return linux.Bus(r.Windows.virtioBus()), true
		}
	}
	return "", false
}

// linuxBus prefers virtio-scsi, unless the guest's configuration uses disk names of virtio-blk.
func linuxBus(g *linux.Guest) linux.Bus {
	k := g.Kernels[0]
	// A bus on which the configured disk names remain valid is better than one that only boots.
	scsi, blk := k.Boots(linux.VirtioSCSI), k.Boots(linux.VirtioBlk)
	switch {
	case scsi && !g.HasDiskName("/dev/vd"):
		return linux.VirtioSCSI
	case blk && !g.HasDiskName("/dev/sd"):
		return linux.VirtioBlk
	case scsi && !blk:
		return linux.VirtioSCSI
	case blk:
		return linux.VirtioBlk
	}
	return ""
}
