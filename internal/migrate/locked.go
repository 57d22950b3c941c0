package migrate

import (
	"fmt"

	"github.com/decamp/decamp/internal/convert/virtv2v"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest"
)

// lockedIn lists the encrypted volumes of a guest, by the names that virt-v2v has for them.
func lockedIn(reports []guest.Report) (all []virtv2v.Locked) {
	for i, g := range reports {
		if encrypted(g.WholeDisk) {
			all = append(all, virtv2v.Locked{UUID: g.WholeUUID, Device: virtv2v.Device(i, 0), Kind: string(g.WholeDisk)})
		}
		for _, p := range g.Partitions {
			if encrypted(p.FileSystem) {
				all = append(all, virtv2v.Locked{UUID: p.FSUUID, Device: virtv2v.Device(i, p.Number), Kind: string(p.FileSystem)})
			}
		}
		for _, v := range g.Volumes {
			if encrypted(v.FileSystem) {
				all = append(all, virtv2v.Locked{UUID: v.FSUUID, Device: fmt.Sprintf("/dev/%s/%s", v.Group, v.Name), Kind: string(v.FileSystem)})
			}
		}
	}
	return all
}

func encrypted(fs guest.FileSystem) bool { return fs == guest.LUKS || fs == guest.BitLocker }

// noKey refuses a guest with a volume that nobody gave a key of: virt-v2v wants one for each that it
// sees, also where the system is on none of them.
func noKey(l virtv2v.Locked) error {
	what, undone := "LUKS, and its passphrase is wanted", ""
	if l.Kind == string(guest.BitLocker) {
		what, undone = "BitLocker, and its recovery key is wanted", "; or decrypt it at the source, manage-bde -off C:, and copy it again"
	}
	return fault.New(fault.Conflict, "virt-v2v does not take the guest: %s is encrypted by %s", l.Device, what).
		WithHint("put it in a file that only you can read, and name that: --key-file PATH, or for this volume alone --key-file %s=PATH%s", l.ID(), undone)
}
